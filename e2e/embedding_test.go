package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// What docs/embedding.md shows and says, with Node, Python and Go as they are.

// withModules is a directory in which Node and Python find fini's modules, as the packages install them.
func withModules(t *testing.T, standIns map[string]string) *recipeDir {
	t.Helper()
	k := newRecipeDir(t, standIns)
	part := "fini-init-linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	k.file("node_modules/fini-init/package.json", `{"name": "fini-init", "version": "0.1.0", "optionalDependencies": {"`+part+`": "0.1.0"}}`, 0o644)
	k.file("node_modules/fini-init/index.js", readFile(t, "../packaging/npm/index.js"), 0o644)
	k.file("node_modules/"+part+"/bin/README", "", 0o644)
	k.file("python/fini_init/__init__.py", readFile(t, "../packaging/fini_init/__init__.py"), 0o644)
	k.file("python/bin/README", "", 0o644)
	for _, name := range []string{"node_modules/" + part + "/bin/fini", "python/bin/fini-init"} {
		if err := os.Symlink(finiPath, filepath.Join(k.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	k.env = append(k.env, "PYTHONPATH="+filepath.Join(k.dir, "python"))
	return k
}

// A server that leaves a process behind, ends at the end of its standard input, and has the report say so.
const embedded = "sleep 1000 >/dev/null 2>&1 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; cat >/dev/null; exit 3"

func embedsNode(t *testing.T, text string) {
	node := need.Program(t, "node")
	k := withModules(t, map[string]string{"server": embedded})
	file := k.file("host.js", strings.Replace(text, "wrap('node', ['server.js']", "wrap('server', []", 1), 0o644)
	if out := k.mustLeaveNothing(k.start(node, file), 0); out != "3 null [ 'sleep 1000' ]\n" {
		t.Errorf("the host says %q", out)
	}
	// Another system has no fini, and the command runs as it is.
	k.file("bin/server", "#!/bin/sh\nexit 3\n", 0o755)
	mac := k.file("mac.js", "Object.defineProperty(process, 'platform', {value: 'darwin'})", 0o644)
	l := k.start(node, "--require", mac, file)
	if out := k.mustLeaveNothing(l, 0); out != "3 null \n" || l.Err.text() != "fini: it needs Linux, and this is darwin: server runs without it\n" {
		t.Errorf("the host says %q and %q", out, l.Err.text())
	}
}

// embedsTransport connects the SDK's client to a real server, closes it, and reads the report.
func embedsTransport(t *testing.T, text string) {
	node := need.Program(t, "node")
	needMCP(t)
	k := withModules(t, nil)
	sdk, err := filepath.Abs("node_modules/@modelcontextprotocol")
	if err == nil {
		err = os.Symlink(sdk, filepath.Join(k.dir, "node_modules/@modelcontextprotocol"))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.file("transport.mjs", strings.Replace(text, "'server.js'", "'"+filepath.Join(sdk, "server-everything/dist/index.js")+"'", 1), 0o644)
	host := k.file("host.mjs", `import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { transport } from './transport.mjs';
const client = new Client({ name: 'host', version: '1' });
await client.connect(transport);
await client.close();
console.log(JSON.parse(readFileSync('report.json', 'utf8')).leftovers.length);
`, 0o644)
	if out := k.mustLeaveNothing(k.start(node, host), 0); out != "0\n" {
		t.Errorf("the host says %q", out)
	}
}

func embedsPython(t *testing.T, text string) {
	python := need.Program(t, "python3")
	k := withModules(t, map[string]string{"server": embedded})
	file := k.file("host.py", strings.Replace(text, `wrap("node", ["server.js"]`, `wrap("server", []`, 1), 0o644)
	if out := k.mustLeaveNothing(k.start(python, file), 0); out != "3 ['sleep 1000']\n" {
		t.Errorf("the host says %q", out)
	}
	k.file("bin/server", "#!/bin/sh\nexit 3\n", 0o755)
	k.env = append(k.env, "FINI_BINARY=/no/such/file")
	l := k.start(python, file)
	if out := k.mustLeaveNothing(l, 0); out != "3 \n" || !strings.HasSuffix(l.Err.whole(), ": server runs without it\n") {
		t.Errorf("the host says %q and %q", out, l.Err.text())
	}
}

// The binary is the one that the option names, or the variable, or the package, or PATH has. With required, wrap throws if
// there is none.
func TestEmbeddingFindsBinary(t *testing.T) {
	t.Parallel()
	// What esbuild makes of a host is one file, far from the packages: there is the module, and nothing beside it.
	hosts := map[string][]string{
		"node": {need.Program(t, "node"), "-e", "const { wrap } = require('fini-init'); const [required, binary] = process.argv.slice(1);" +
			"try { console.log(wrap('server', [], [], { required: required === 'true', binary }).command) }" +
			"catch (error) { console.log('threw ' + error.message) }"},
		"python": {need.Program(t, "python3"), "-c", "import sys, fini_init; required, *binary = sys.argv[1:]\n" +
			"try: print(fini_init.wrap('server', required=required == 'true', binary=binary[0] if binary else None).command)\n" +
			"except FileNotFoundError as error: print('threw', error)"},
	}
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			k := withModules(t, nil)
			onPath := filepath.Join(k.dir, "elf")
			if err := os.Mkdir(onPath, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(finiPath, filepath.Join(onPath, "fini")); err != nil {
				t.Fatal(err)
			}
			k.file("bin/fini", "#!/bin/sh\n# PyPI's fini, or the script of the npm package\n", 0o755)
			scripts := "PATH=" + filepath.Join(k.dir, "bin")
			says := func(want string, env []string, args ...string) {
				t.Helper()
				cmd := exec.Command(host[0], slices.Concat(host[1:], args)...)
				cmd.Dir, cmd.Env = k.dir, slices.Concat(k.env, env)
				if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), want) {
					t.Errorf("%q with %q: %q, %v; want %q", args, env, out, err, want)
				}
			}
			says(finiPath+"\n", nil, "false", finiPath)
			says(finiPath+"\n", []string{"FINI_BINARY=" + finiPath}, "true")
			says("threw ", []string{"FINI_BINARY=/no/such/file"}, "true")
			says("server\n", []string{"FINI_BINARY=/no/such/file"}, "false")
			for _, folder := range []string{"node_modules/fini-init-linux-x64", "node_modules/fini-init-linux-arm64", "python/bin"} {
				if err := os.RemoveAll(filepath.Join(k.dir, folder)); err != nil {
					t.Fatal(err)
				}
			}
			says(filepath.Join(onPath, "fini")+"\n", []string{scripts + ":" + onPath}, "true")
			says("threw ", []string{scripts}, "true")
			says("server\n", []string{scripts}, "false")
		})
	}
}

func embedsGo(t *testing.T, text string) {
	k := newRecipeDir(t, map[string]string{"server": embedded})
	k.env = append(k.env, "GOCACHE="+goCache(t))
	k.file("go.mod", "module host\n\ngo 1.21\n", 0o644)
	k.file("host.go", text, 0o644)
	k.file("host_test.go", `package host

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	state, report, err := Run("server")
	if err != nil || state.ExitCode() != 3 || !strings.Contains(string(report), "\"command\": \"sleep 1000\"") {
		t.Errorf("%v, %v: %s", state, err, report)
	}
}
`, 0o644)
	k.mustLeaveNothing(k.start("go", "test", "-count=1", "."), 0)
}

// Both SDKs start what wrap names, and leave nothing.
func TestEmbeddingBySDKs(t *testing.T) {
	t.Parallel()
	needHosts(t)
	k := withModules(t, nil)
	wrapped := map[string][]string{
		"node": {"node", "-e", "const { wrap } = require('fini-init'); const w = wrap('npx', ['-y', '" + mcpPackage +
			"'], ['-i', '-k', '5s']); console.log([w.command, ...w.args].join('\\n'))"},
		"python3": {"python3", "-c", "import fini_init; w = fini_init.wrap('npx', ['-y', '" + mcpPackage +
			"'], ['-i', '-k', '5s'])._asdict(); print('\\n'.join([w['command'], *w['args']]))"},
	}
	for _, program := range [][]string{nodeHost, pythonHost} {
		t.Run(program[0], func(t *testing.T) {
			out := k.mustLeaveNothing(k.start(wrapped[program[0]]...), 0)
			argv := strings.Split(strings.TrimSpace(out), "\n")
			h := openHost(t, program, offline(t), argv...)
			h.echo("embedded")
			h.close()
			h.mustLeaveNothing("0")
		})
	}
}

// The table of statuses, as each language sees them.
func TestEmbeddingStatuses(t *testing.T) {
	t.Parallel()
	node, python := need.Program(t, "node"), need.Program(t, "python3")
	page := readFile(t, "../docs/embedding.md")
	for row, argv := range map[string][]string{
		"the command exits 3":                {"sh", "-c", "exit 3"},
		"a signal ends it":                   {"sh", "-c", "kill -TERM $$"},
		"`-t` is over":                       {"-q", "-t", "0.1", "sleep", "1000"},
		"fini fails, or its flags are wrong": {"--no-such-flag", "true"},
		"there is no such command":           {"no such command"},
	} {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + " \\| `([^`]+)` \\| `([^`]+)` \\| `([^`]+)` \\|$").FindStringSubmatch(page)
		if m == nil {
			t.Errorf("no row of %q", row)
			continue
		}
		words := append([]string{finiPath}, argv...)
		js := "const [f, ...a] = process.argv.slice(1); require('child_process').spawn(f, a, {stdio: 'ignore'}).on('exit', (c, s) => " +
			"console.log(c + ', ' + (s && \"'\" + s + \"'\")))"
		py := "import subprocess, sys; print(subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode)"
		gone := exec.Command(words[0], words[1:]...)
		_ = gone.Run()
		for i, got := range []string{
			run(t, node, append([]string{"-e", js, "--"}, words...)...), run(t, python, append([]string{"-c", py}, words...)...),
			fmt.Sprintln(gone.ProcessState),
		} {
			if got != m[i+1]+"\n" {
				t.Errorf("%s: %q, and the page has %q", row, got, m[i+1])
			}
		}
	}
}
