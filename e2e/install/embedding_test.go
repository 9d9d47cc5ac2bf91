package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
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
	noPath := []string{"no PATH"}
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			k := recipes.WithModules(t, nil)
			onPath := filepath.Join(k.Dir, "elf")
			rig.NoError(t, os.Mkdir(onPath, 0o755))
			rig.NoError(t, os.Symlink(rig.Fini, filepath.Join(onPath, "fini")))
			k.File("bin/fini", "#!/bin/sh\n# PyPI's fini, or the script of the npm package\n", 0o755)
			scripts := "PATH=" + filepath.Join(k.Dir, "bin")
			says := func(want string, env []string, args ...string) {
				t.Helper()
				cmd := exec.Command(host[0], slices.Concat(host[1:], args)...)
				cmd.Dir, cmd.Env = k.Dir, slices.Concat(k.Env, env)
				if slices.Equal(env, noPath) {
					cmd.Env = slices.DeleteFunc(cmd.Env, func(line string) bool { return strings.HasPrefix(line, "PATH=") })
				}
				if out, err := cmd.Output(); err != nil || !regexp.MustCompile("^"+want+"\n").Match(out) {
					t.Errorf("%q with %q: %q, %v; want %q", args, env, out, err, want)
				}
			}
			says(rig.Fini, nil, "false", rig.Fini)
			says(rig.Fini, []string{"FINI_BINARY=" + rig.Fini}, "true")
			says("threw .*FINI_BINARY: /no/such/file does not exist", []string{"FINI_BINARY=/no/such/file"}, "true")
			other := []byte(rig.ReadFile(t, rig.Fini)[:4096])
			other[18] = 0xfd // e_machine in elf(5): none that there is
			fifo := filepath.Join(k.Dir, "fifo")
			rig.NoError(t, syscall.Mkfifo(fifo, 0o755))
			for _, file := range []string{k.Dir, fifo} {
				says("threw .*binary: .* is not a file", nil, "true", file)
			}
			for _, file := range []string{k.File("other", string(other), 0o755), k.File("script", "#!/bin/sh\n", 0o755)} {
				says("threw .*(is not a program for this machine|can't be read: .*)", nil, "true", file)
			}
			says("threw .*binary: .*/plain is not executable", nil, "true", k.File("plain", rig.ReadFile(t, rig.Fini), 0o644))
			says("server", []string{"FINI_BINARY=/no/such/file"}, "false")

			// A file that lost its execute bit on the way is no package that is missing.
			packages := []string{"node_modules/@fini-init/linux-x64/bin/fini", "node_modules/@fini-init/linux-arm64/bin/fini", "python/bin/fini-init"}
			for _, file := range packages {
				if _, err := os.Lstat(filepath.Join(k.Dir, file)); err == nil {
					_ = os.Remove(filepath.Join(k.Dir, file))
					k.File(file, rig.ReadFile(t, rig.Fini), 0o644)
				}
			}
			says("threw .*/bin/fini(-init)? is not executable", []string{scripts}, "true")
			says(filepath.Join(onPath, "fini"), []string{scripts + ":" + onPath}, "true")
			for _, file := range packages {
				rig.NoError(t, os.RemoveAll(filepath.Dir(filepath.Join(k.Dir, file))))
			}
			says(filepath.Join(onPath, "fini"), []string{scripts + ":" + onPath}, "true")
			says("threw .*(missing|a wheel for this machine).*", []string{scripts}, "true")
			says("server", []string{scripts}, "false")

			// The working directory is a stranger's checkout, whose fini is not to be executed.
			rig.NoError(t, os.Symlink(rig.Fini, filepath.Join(k.Dir, "fini")))
			for _, path := range [][]string{noPath, {"PATH="}, {"PATH=."}, {"PATH=elf"}, {scripts + ":"}, {"PATH=:/bin"}, {"PATH=./elf:/bin"}} {
				says("server", path, "false")
			}
			says(filepath.Join(onPath, "fini"), []string{"PATH=.:" + onPath}, "false")
		})
	}
}

// fini-sh takes the fini that was installed with it, however it is called, and no other that PATH has.
func TestShellTakesFiniBesideIt(t *testing.T) {
	t.Parallel()
	k := recipes.NewDir(t, map[string]string{"fini": "echo another fini; exit 9"})
	link := func(to, name string) {
		t.Helper()
		rig.NoError(t, os.Symlink(to, filepath.Join(k.Dir, name)))
	}
	sh := k.File("installed/bin/fini-sh", rig.ReadFile(t, "../packaging/fini-sh"), 0o755)
	link(rig.Fini, "installed/bin/fini")
	link("installed/bin/fini-sh", "relative")
	link(sh, "bin/absolute")
	k.Env = append(k.Env, "PATH="+filepath.Join(k.Dir, "bin")+":"+filepath.Dir(sh)+":"+os.Getenv("PATH"))
	for _, argv := range [][]string{{sh}, {"./relative"}, {"absolute"}, {"fini-sh"}, {"sh", "installed/bin/fini-sh"}} {
		if out := k.MustLeaveNothing(k.Start(append(argv, "-c", recipes.Leaky+"; exit 7")...), 7); out != "done\n" {
			t.Errorf("%q: %q", argv, out)
		}
	}
}

// The table of statuses, as each language sees them.
func TestEmbeddingStatuses(t *testing.T) {
	t.Parallel()
	node, python := need.Program(t, "node"), need.Program(t, "python3")
	page := rig.ReadFile(t, "../docs/embedding.md")
	for row, argv := range map[string][]string{
		"the command exits 3":                     {"sh", "-c", "exit 3"},
		"a signal ends it":                        {"sh", "-c", "kill -TERM $$"},
		"the time of `-t` or `--idle` has passed": {"-q", "-t", "0.1", "sleep", "1000"},
		"fini fails, or its flags are wrong":      {"--no-such-flag", "true"},
		"there is no such command":                {"no such command"},
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
