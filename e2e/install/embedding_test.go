package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// The binary is the one that the option names, or the variable, or the package, or PATH has. With required, wrap throws if
// there is none.
func TestEmbeddingFindsBinary(t *testing.T) {
	t.Parallel()
	for name, host := range map[string][]string{
		"node": {need.Program(t, "node"), "-e", "const { wrap } = require('fini-init'); const [required, binary] = process.argv.slice(1);" +
			"try { console.log(wrap('server', [], [], { required: required === 'true', binary }).command) }" +
			"catch (error) { console.log('threw ' + error.message) }"},
		"python": {need.Program(t, "python3"), "-c", "import sys, fini_init; required, *binary = sys.argv[1:]\n" +
			"try: print(fini_init.wrap('server', required=required == 'true', binary=binary[0] if binary else None).command)\n" +
			"except FileNotFoundError as error: print('threw', error)"},
	} {
		t.Run(name, func(t *testing.T) {
			k := recipes.WithModules(t, map[string]string{"fini": "# PyPI's fini, or the script of the npm package"})
			rig.NoError(t, os.Mkdir(filepath.Join(k.Dir, "elf"), 0o755))
			onPath := filepath.Join(k.Dir, "elf/fini")
			rig.NoError(t, os.Symlink(rig.Fini, onPath))
			for _, tt := range []struct{ script, says string }{
				{`host false "$FINI"`, rig.Fini},
				{`FINI_BINARY=$FINI host true`, rig.Fini},
				{`FINI_BINARY=/no/such/file host true`, "threw fini: FINI_BINARY: /no/such/file does not exist"},
				{`host true "$PWD"`, "threw .*binary: .* is not a file"},
				{`mkfifo fifo; host true fifo`, "threw .*binary: .* is not a file"},
				{`cp "$FINI" other; printf '\375' | dd of=other bs=1 seek=18 conv=notrunc 2>&-; host true other`, // e_machine in elf(5): none that there is
					"threw .*(is not a program for this machine|can't be read: .*)"},
				{`host true bin/fini`, "threw .*(is not a program for this machine|can't be read: .*)"},
				{`cp "$FINI" plain; chmod 644 plain; host true plain`, "threw .*binary: .*plain is not executable"},
				{`FINI_BINARY=/no/such/file host false`, "server"},
				// A file that lost its execute bit on the way is no package that is missing.
				{`for file in node_modules/@fini-init/*/bin/fini python/bin/fini-init; do rm $file; cp plain $file; done; PATH=$PWD/bin host true`,
					"threw .*/bin/fini(-init)? is not executable"},
				{`PATH=$PWD/bin:$PWD/elf host true`, onPath},
				{`rm -r node_modules/@fini-init/*/bin python/bin; PATH=$PWD/bin:$PWD/elf host true`, onPath},
				{`PATH=$PWD/bin host true`, "threw fini: .* is missing: (npm|pip) install .*fini-init.*"},
				{`PATH=$PWD/bin host false`, "server"},
				// The working directory is a stranger's checkout, whose fini is not to be executed.
				{`ln -s "$FINI" fini; unset PATH; host false`, "server"},
				{`PATH= host false`, "server"},
				{`PATH=. host false`, "server"},
				{`PATH=elf host false`, "server"},
				{`PATH=$PWD/bin: host false`, "server"},
				{`PATH=:/bin host false`, "server"},
				{`PATH=./elf:/bin host false`, "server"},
				{`PATH=.:$PWD/elf host false`, onPath},
			} {
				script := "host() { " + strings.Join(recipes.Quoted(host), " ") + ` "$@"; }; ` + tt.script
				cmd := exec.Command("/bin/sh", "-c", script)
				cmd.Dir, cmd.Env = k.Dir, append(k.Env, "FINI="+rig.Fini)
				if out, err := cmd.Output(); err != nil || !regexp.MustCompile("^"+tt.says+"\n$").Match(out) {
					t.Errorf("%s: %q, %v; want %q", tt.script, out, err, tt.says)
				}
			}
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
	page := rig.ReadFile(t, "../docs/hosts.md")
	for row, argv := range map[string][]string{
		"the command exited with 3":            {"sh", "-c", "exit 3"},
		"a signal killed it":                   {"sh", "-c", "kill -TERM $$"},
		"the time of `-t` or `--idle` ran out": {"-q", "-t", "0.1", "sleep", "1000"},
		"`fini` failed, or a flag is wrong":    {"--no-such-flag", "true"},
		"there is no such command":             {"no such command"},
	} {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) +
			" \\| `([^`]+)` \\| `([^`]+)` \\| `([^`]+)` \\|$").FindStringSubmatch(page)
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

// A Go program that carries fini writes it to the cache folder once, and again if it was changed, and runs a command under it.
func TestGoEmbed(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	compiler := need.Program(t, "go")
	k := recipes.NewDir(t, nil)
	k.File("go.mod", rig.ReadFile(t, "../docs/goembed/go.mod"), 0o644)
	recipe, err := filepath.Glob("../docs/goembed/*.go")
	if err != nil || len(recipe) != 1 {
		t.Fatalf("%q, %v", recipe, err)
	}
	// The file is for amd64, and says what to change for another architecture.
	k.File("fini_linux.go", rig.ReadFile(t, recipe[0]), 0o644)
	k.File("fini-linux-amd64", rig.ReadFile(t, rig.Fini), 0o644)
	k.File("host/main.go", `package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"example.com/fini"
)

func main() {
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			path, err := fini.Path()
			cmd := exec.Command(path, "--linger=0", "-q", "--", "sh", "-c", "setsid sleep 1000 & exit 7")
			if err == nil {
				err = cmd.Run()
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				fmt.Println(err)
				os.Exit(1)
			}
		}()
	}
	all.Wait()
	fmt.Println(fini.Path())
}
`, 0o644)
	k.Env = append(k.Env, "GOFLAGS=-trimpath", "CGO_ENABLED=0", "XDG_CACHE_HOME="+filepath.Join(k.Dir, "cache"))
	k.MustLeaveNothing(k.Start(compiler, "vet", "./..."), 0)
	k.MustLeaveNothing(k.Start(compiler, "build", "-o", "program", "./host"), 0)
	var last os.FileInfo
	run := func() (path string, same bool) {
		t.Helper()
		path, _, _ = strings.Cut(k.MustLeaveNothing(k.Start(filepath.Join(k.Dir, "program")), 0), " ")
		reports.MustHaveOnly(t, path)
		file, err := os.Open(path)
		rig.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() }) // until then no other file gets its inode
		info, err := file.Stat()
		if err != nil || rig.ReadFile(t, path) != rig.ReadFile(t, rig.Fini) {
			t.Fatalf("%q is another file than fini: %v", path, err)
		}
		same = last != nil && os.SameFile(last, info)
		last = info
		return path, same
	}
	path, _ := run() // twenty times at once
	if _, same := run(); !same {
		t.Error("the second program writes it again")
	}
	rig.NoError(t, os.Truncate(path, 1000))
	if _, same := run(); same {
		t.Error("a file that was changed is not replaced")
	}
}
