package transparent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// The environment is the command's: what fini's own runtime would take for itself changes
// nothing, and the command gets it byte for byte.

// goVariables are those that the Go runtime documents, and others that it or the packages of
// fini read; and what GODEBUG can set.
func goVariables(t testing.TB) (variables, settings []string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	need.That(t, err == nil, "go")
	words := func(file, pattern string) (all []string) {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src/runtime", file))
		need.That(t, err == nil, "the source of the Go runtime")
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	variables = append(words("extern.go", `\b(GO[A-Z]+)\b`), "GOCOVERDIR", "GOEXPERIMENT", "GOROOT", "TZ", "ZONEINFO")
	settings = words("runtime1.go", `\{name: "([a-z0-9]+)"`)
	for _, want := range []string{"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK"} {
		if !slices.Contains(variables, want) || len(settings) < 20 {
			t.Errorf("%s is not found among %q, or only %q", want, variables, settings)
		}
	}
	return variables, settings
}

// What the Go runtime reads changes neither what fini says nor how it ends.
func TestGoVariablesAreTheCommands(t *testing.T) {
	t.Parallel()
	variables, settings := goVariables(t)
	var cases []string
	for _, name := range variables {
		for _, value := range []string{"", "0", "1", "-1", "off", "512MB", "x=,=\xff", "/dev/tty"} {
			cases = append(cases, name+"="+value)
		}
	}
	for _, setting := range settings {
		cases = append(cases, "GODEBUG="+setting+"=1")
	}
	for _, value := range []string{"1", "100", "-1"} { // all at once
		cases = append(cases, "GODEBUG="+strings.Join(settings, "="+value+",")+"="+value)
	}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for n, variable := range cases {
			if quick := n >= len(cases)-3 || strings.HasSuffix(variable, "=1") || strings.HasSuffix(variable, "=off"); !quick && (rig.Quick() || p != rig.Pair && !rig.Full()) {
				continue // all settings at once are quick; no place has a way of its own to pass them on
			}
			name, _, _ := strings.Cut(variable, "=")
			command := []string{"/bin/sh", "-c", `echo "$` + name + `"; echo line >&2; exit 3`}
			run := func(cmd *exec.Cmd) string {
				status, stdout, stderr := rig.Ask(t, cmd)
				return fmt.Sprintf("status %d, stdout %q, stderr %q", status, stdout, stderr)
			}
			before := []string{need.Program(t, "env"), variable}
			want := run(rig.CommandOf(slices.Concat(before, command)))
			if got := run(p.Executed(before, append([]string{"--"}, command...)...)); got != want {
				t.Errorf("%q: %s; without fini %s", variable, got, want)
			}
		}
	})
}

// execRaw is a Python program that executes its arguments with an environment that no shell
// can make: the lines of environments below.
const execRaw = `
import ctypes, os, sys
def strings(words):
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
environment = eval(sys.argv[1])
argv = [os.fsencode(word) for word in sys.argv[2:]]
ctypes.CDLL(None).execve(argv[0], strings(argv), strings(environment))
sys.exit("cannot execute")`

// The command's environment is that of fini, byte for byte and in order.
func TestEnvironmentIsPassedAsItIs(t *testing.T) {
	t.Parallel()
	python, cat := need.Program(t, "python3"), need.Program(t, "cat")
	environments := map[string]string{
		"none":       `[]`,
		"order":      `[b"Z=1", b"A=2", b"GODEBUG=inittrace=1", b"M=3", b"GOMAXPROCS=7", b"B=4"]`,
		"doubles":    `[b"A=1", b"A=2", b"GOGC=1", b"GOGC=off", b"A=1", b"PATH=/none", b"PATH=/bin"]`,
		"odd":        `[b"", b"=", b"=x", b"novalue", b"A==", b"B=\xff\xfe", b"C=a\nb", b"", b"GODEBUG"]`,
		"of fini":    `[b"FINI_GRACE=1s", b"FINI_GRACE=2s", b"FINI_LINGER=", b"NO_COLOR=1", b"TERM=dumb", b"GITHUB_ACTIONS=true"]`,
		"many":       `[b"V%d=%d" % (n, n) for n in range(20000)]`,
		"a long one": `[b"LONG=" + b"x" * 100000]`,
	}
	raw := func(name string) []string { return []string{python, "-I", "-S", "-c", execRaw, environments[name]} }
	want := map[string]string{}
	for name := range environments {
		want[name] = rig.Succeed(t, rig.CommandOf(append(raw(name), cat, "/proc/self/environ")))
	}
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for name := range environments {
			got := rig.Succeed(t, p.Executed(raw(name), "--", cat, "/proc/self/environ"))
			if got != want[name] {
				t.Errorf("%s: %.1000q, without fini %.1000q", name, got, want[name])
			}
		}
	})
}

// As many arguments as the kernel takes reach the command.
func TestManyArguments(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, number := range []int{0, 100_000} {
			words := slices.Repeat([]string{"x"}, number)
			if out := rig.Succeed(t, p.Command(append([]string{"--", "/bin/sh", "-c", "echo $#", "sh"}, words...)...)); out != fmt.Sprintln(number) {
				t.Errorf("%d arguments: %q", number, out)
			}
		}
	})
}
