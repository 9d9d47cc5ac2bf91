package report

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// TypeScript takes a real report for one, and knows each field.
func TestReportTypesInTypeScript(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	node := need.Program(t, "node")
	compiler := need.Module(t, "typescript/bin/tsc")
	k := recipes.NewDir(t, nil)
	path := reports.Path(t)
	l := rig.Start(t, rig.Alone, "--linger=0", "--report="+path, "--", "/bin/sh", "-c", `setsid sleep 1000 & kill -TERM $$`)
	l.MustEnd(143)
	k.File("fini-init/index.d.ts", rig.ReadFile(t, "../packaging/npm/index.d.ts"), 0o644)
	k.File("fini-init/report.d.ts", reportTypes(t, "ts"), 0o644)
	const host = `import { wrap, type Report, type Leftover } from './fini-init/index';
const report: Report = %s;
const names: string[] = report.leftovers.map((left: Leftover) => left.command);
const reason: Exclude<Report['stopped'], 'bind' | 'timeout'> = report.stopped === 'bind' || report.stopped === 'timeout' ? null : report.stopped;
export const all = [names, reason, report.exit?.signal?.startsWith('SIG'), wrap('a').command];
`
	for name, tt := range map[string]struct{ text, fails string }{
		"right.ts":   {fmt.Sprintf(host, rig.ReadFile(t, path)), ""},
		"unknown.ts": {fmt.Sprintf(host, rig.ReadFile(t, path)) + "export const x = report.exitCode;\n", "'exitCode' does not exist"},
		"null.ts":    {fmt.Sprintf(host, rig.ReadFile(t, path)) + "export const x = report.ended.length;\n", "possibly 'null'"},
		"word.ts":    {fmt.Sprintf(host, rig.ReadFile(t, path)) + "export const x = report.stopped === 'no such word';\n", "have no overlap"},
	} {
		k.File(name, tt.text, 0o644)
		out, err := exec.Command(node, compiler, "--strict", "--noEmit", "--skipLibCheck", "false", "--target", "es2022",
			"--module", "node16", "--moduleResolution", "node16", "--types", "", filepath.Join(k.Dir, name)).CombinedOutput()
		if (err == nil) != (tt.fails == "") || !strings.Contains(string(out), tt.fails) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// So does mypy, with the types of the wheel.
func TestReportTypesInPython(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	mypy := need.Program(t, "mypy")
	k := recipes.NewDir(t, nil)
	k.File("fini_init/__init__.py", rig.ReadFile(t, "../packaging/fini_init/__init__.py"), 0o644)
	k.File("fini_init/report.py", reportTypes(t, "py"), 0o644)
	k.File("fini_init/py.typed", "", 0o644)
	const host = `import fini_init
from fini_init.report import Leftover, Report

def commands(report: Report) -> list[str]:
    left: list[Leftover] = report["leftovers"]
    return [one["command"] for one in left if one["startedBy"][0]["name"] != "sh"]

run = fini_init.wrap("sh", ["-c", "true"], required=True)
argv: list[str] = [run.command, *run.args]
`
	check := func(name, text string) (string, error) {
		cmd := exec.Command(mypy, "--strict", "--python-version", "3.9", "--cache-dir", filepath.Join(k.Dir, "cache"), k.File(name, text, 0o644))
		cmd.Env = append(os.Environ(), "MYPYPATH="+k.Dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check("right.py", host); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, _ := check("wrong.py", host+"def code(report: Report) -> int: return len(report['ended']) + report['exitCode']\n")
	for _, want := range []string{`has no key "exitCode"`, `has incompatible type "Optional[str]"`} {
		if !strings.Contains(out, want) {
			t.Errorf("mypy does not say %s: %s", want, out)
		}
	}
}

// reportTypes are what the packages have for a language.
func reportTypes(t *testing.T, language string) string {
	t.Helper()
	cmd := exec.Command(recipes.Packaging(t), "types", language)
	cmd.Dir = ".."
	out, err := cmd.Output()
	rig.NoError(t, err)
	return string(out)
}
