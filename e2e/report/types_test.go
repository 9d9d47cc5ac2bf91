package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// TypeScript takes a real report for one, and knows each field.
func TestReportTypesInTypeScript(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	node, compiler := need.Program(t, "node"), need.Module(t, "typescript/bin/tsc")
	path := reports.Path(t)
	rig.Start(t, rig.Alone, "--linger=0", "--report="+path, "--", "/bin/sh", "-c", `setsid sleep 1000 & kill -TERM $$`).MustEnd(143)
	host := `import { wrap, type Report, type Leftover } from './fini-init/index';
const report: Report = ` + rig.ReadFile(t, path) + `;
const names: string[] = report.leftovers.map((left: Leftover) => left.command);
const reason: Exclude<Report['stopped'], 'bind' | 'timeout'> = report.stopped === 'bind' || report.stopped === 'timeout' ? null : report.stopped;
export const all = [names, reason, report.exit?.signal?.startsWith('SIG'), wrap('a').command];
`
	mustCheck(t, map[string]string{"fini-init/index.d.ts": rig.ReadFile(t, "../packaging/npm/index.d.ts"), "fini-init/report.d.ts": reportTypes(t, "ts")},
		host, ".ts", map[string]string{
			"":                                    "",
			"export const x = report.exitCode;\n": "'exitCode' does not exist",
			"export const x = report.ended.length;\n":               "possibly 'null'",
			"export const x = report.stopped === 'no such word';\n": "have no overlap",
		}, node, compiler, "--strict", "--noEmit", "--skipLibCheck", "false", "--target", "es2022",
		"--module", "node16", "--moduleResolution", "node16", "--types", "")
}

// So does mypy, with the types of the wheel.
func TestReportTypesInPython(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	const host = `import fini_init
from fini_init.report import Leftover, Report

def commands(report: Report) -> list[str]:
    left: list[Leftover] = report["leftovers"]
    return [one["command"] for one in left if one["startedBy"][0]["name"] != "sh"]

run = fini_init.wrap("sh", ["-c", "true"], required=True)
argv: list[str] = [run.command, *run.args]
`
	mustCheck(t, map[string]string{"fini_init/__init__.py": rig.ReadFile(t, "../packaging/fini_init/__init__.py"),
		"fini_init/report.py": reportTypes(t, "py"), "fini_init/py.typed": ""},
		host, ".py", map[string]string{
			"": "",
			"def code(report: Report) -> int: return report['exitCode']\n":   `has no key "exitCode"`,
			"def code(report: Report) -> int: return len(report['ended'])\n": `has incompatible type "Optional[str]"`,
		}, need.Program(t, "mypy"), "--strict", "--python-version", "3.9", "--cache-dir", "cache")
}

// mustCheck asserts that a checker takes a program among these files, and says what is wrong with one that goes on as none may.
func mustCheck(t *testing.T, files map[string]string, program, ending string, wrong map[string]string, checker ...string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		rig.Put(t, filepath.Join(dir, name), text, 0o644)
	}
	for more, says := range wrong {
		cmd := rig.CommandOf(append(checker, rig.Put(t, filepath.Join(dir, "program"+ending), program+more, 0o644)))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MYPYPATH="+dir)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (says == "") || !strings.Contains(string(out), says) {
			t.Errorf("with %q it says %v: %s", more, err, out)
		}
	}
}

// reportTypes are what the packages have for a language.
func reportTypes(t *testing.T, language string) string {
	t.Helper()
	return rig.Run(t, "env", "-C", "..", recipes.Packaging(t), "types", language)
}
