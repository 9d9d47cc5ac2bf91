package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

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
			k := rig.WithModules(t, nil)
			onPath := filepath.Join(k.Dir, "elf")
			if err := os.Mkdir(onPath, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(rig.Fini, filepath.Join(onPath, "fini")); err != nil {
				t.Fatal(err)
			}
			k.File("bin/fini", "#!/bin/sh\n# PyPI's fini, or the script of the npm package\n", 0o755)
			scripts := "PATH=" + filepath.Join(k.Dir, "bin")
			says := func(want string, env []string, args ...string) {
				t.Helper()
				cmd := exec.Command(host[0], slices.Concat(host[1:], args)...)
				cmd.Dir, cmd.Env = k.Dir, slices.Concat(k.Env, env)
				if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), want) {
					t.Errorf("%q with %q: %q, %v; want %q", args, env, out, err, want)
				}
			}
			says(rig.Fini+"\n", nil, "false", rig.Fini)
			says(rig.Fini+"\n", []string{"FINI_BINARY=" + rig.Fini}, "true")
			says("threw ", []string{"FINI_BINARY=/no/such/file"}, "true")
			other := []byte(rig.ReadFile(t, rig.Fini)[:4096])
			other[18] = 0xfd // e_machine in elf(5): none that there is
			for _, file := range []string{k.Dir, k.File("other", string(other), 0o755), k.File("script", "#!/bin/sh\n", 0o755)} {
				says("threw ", nil, "true", file)
			}
			says("server\n", []string{"FINI_BINARY=/no/such/file"}, "false")
			for _, folder := range []string{"node_modules/fini-init-linux-x64", "node_modules/fini-init-linux-arm64", "python/bin"} {
				if err := os.RemoveAll(filepath.Join(k.Dir, folder)); err != nil {
					t.Fatal(err)
				}
			}
			says(filepath.Join(onPath, "fini")+"\n", []string{scripts + ":" + onPath}, "true")
			says("threw ", []string{scripts}, "true")
			says("server\n", []string{scripts}, "false")
		})
	}
}

// The table of statuses, as each language sees them.
func TestEmbeddingStatuses(t *testing.T) {
	t.Parallel()
	node, python := need.Program(t, "node"), need.Program(t, "python3")
	page := rig.ReadFile(t, "../docs/embedding.md")
	for row, argv := range map[string][]string{
		"the command exits 3":                {"sh", "-c", "exit 3"},
		"a signal ends it":                   {"sh", "-c", "kill -TERM $$"},
		"the time of `-t` has passed":        {"-q", "-t", "0.1", "sleep", "1000"},
		"fini fails, or its flags are wrong": {"--no-such-flag", "true"},
		"there is no such command":           {"no such command"},
	} {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + " \\| `([^`]+)` \\| `([^`]+)` \\| `([^`]+)` \\|$").FindStringSubmatch(page)
		if m == nil {
			t.Errorf("no row of %q", row)
			continue
		}
		words := append([]string{rig.Fini}, argv...)
		js := "const [f, ...a] = process.argv.slice(1); require('child_process').spawn(f, a, {stdio: 'ignore'}).on('exit', (c, s) => " +
			"console.log(c + ', ' + (s && \"'\" + s + \"'\")))"
		py := "import subprocess, sys; print(subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode)"
		gone := exec.Command(words[0], words[1:]...)
		_ = gone.Run()
		for i, got := range []string{
			rig.Run(t, node, append([]string{"-e", js, "--"}, words...)...), rig.Run(t, python, append([]string{"-c", py}, words...)...),
			fmt.Sprintln(gone.ProcessState),
		} {
			if got != m[i+1]+"\n" {
				t.Errorf("%s: %q, and the page has %q", row, got, m[i+1])
			}
		}
	}
}
