package report

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
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
)

// numbered repeats a text for the numbers from 0 to 9, which stand for its "%d"; but that of 7 is another one.
func numbered(text, leak string) string {
	var all strings.Builder
	for i := range 10 {
		one := text
		if i == 7 {
			one = leak
		}
		all.WriteString(strings.ReplaceAll(one, "%d", fmt.Sprint(i)))
	}
	return all.String()
}

// A leak in one of ten tests is named with that test, whichever tool runs them.
func TestLeakIsNamedWithItsTest(t *testing.T) {
	t.Parallel()
	others := regexp.MustCompile(`^(GITHUB|npm)_`).MatchString
	for _, tt := range []struct {
		name    string
		needs   string
		files   map[string]string
		command []string
		says    string
		context string // a variable and its value, in the report
	}{
		{"pytest", "pytest", map[string]string{"test_many.py": "import subprocess\n" + numbered(
			"def test_%d():\n    assert True\n",
			"def test_%d():\n    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n")},
			[]string{"/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"},
			"in test test_many.py::test_7 (call)", "PYTEST_CURRENT_TEST=test_many.py::test_7 (call)"},
		{"bats", "bats", map[string]string{"many.bats": numbered(
			"@test \"number %d\" { true; }\n",
			"@test \"number %d\" { setsid sleep 1000 >/dev/null 2>&1 3>&- 4>&- & true; }\n")},
			[]string{"bats", "many.bats"},
			"in test test_number_7", "BATS_TEST_NAME=test_number_7"},
		{"go test", "go", map[string]string{"go.mod": "module many\n\ngo 1.21\n", "many_test.go": "package many\n\n" +
			"import (\n\t\"os/exec\"\n\t\"testing\"\n)\n\n" +
			"func begin(t *testing.T) { t.Setenv(\"FINI_TEST\", t.Name()) }\n\n" + numbered(
			"func TestNumber%d(t *testing.T) { begin(t) }\n",
			"func TestNumber%d(t *testing.T) { begin(t); exec.Command(\"sleep\", \"1000\").Start() }\n")},
			[]string{"go", "test", "-count=1", "./..."},
			"in test TestNumber7", "FINI_TEST=TestNumber7"},
		{"npm script", "npm", map[string]string{"package.json": `{"name": "shop", "scripts": {` +
			numbered(`"test:%d": "true", `, `"test:%d": "sh leak.sh", `) + `"test": "sh all.sh"}}`,
			"leak.sh": "setsid sleep 1000 >/dev/null 2>&1 &\n" + rig.UntilSleeps,
			"all.sh":  "for i in 6 7 8; do npm run --silent test:$i; done\n"},
			[]string{"npm", "run", "--silent", "test"},
			"in npm script test:7", "npm_lifecycle_event=test:7"},
		// cargo-nextest runs each test in a process of its own, and says which.
		{"nextest-shaped", "sh", map[string]string{
			"runner": "#!/bin/sh\nfor i in $(seq 0 9); do CARGO_PKG_NAME=shop NEXTEST_BINARY_ID=shop::api NEXTEST_TEST_NAME=api::number_$i ./api $i || exit; done\n",
			"api":    "#!/bin/sh\ntest $1 = 7 || exit 0\nsetsid sleep 1000 >/dev/null 2>&1 &\n" + rig.UntilSleeps},
			[]string{"./runner"},
			"in test api::number_7", "NEXTEST_BINARY_ID=shop::api"},
		{"a step", "sh", nil, []string{"env", "GITHUB_ACTION=__run_7", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & " + rig.UntilSleeps},
			"in step __run_7", "GITHUB_ACTION=__run_7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.needs == "pytest" {
				err := exec.Command("/usr/bin/python3", "-m", "pytest", "--version").Run()
				need.That(t, err == nil, "pytest (python3-pytest)")
			} else {
				need.Program(t, tt.needs)
			}
			report := reports.Path(t)
			cmd := exec.Command(rig.Fini, append([]string{"--linger=1s", "--orphans-exit=9", "--report=" + report, "--"}, tt.command...)...)
			cmd.Dir = t.TempDir()
			for name, text := range tt.files {
				rig.Put(t, filepath.Join(cmd.Dir, name), text, 0o755)
			}
			cmd.Env = append(slices.DeleteFunc(os.Environ(), others), "GOCACHE="+recipes.GoCache(t))
			l := rig.StartCmd(t, cmd)
			l.MustEnd(9)
			said := l.Err.Whole()
			if strings.Count(said, "stopping leftover") != 1 || !strings.Contains(said, tt.says) {
				t.Errorf("says %q, want %q; stdout: %s", said, tt.says, l.Out.Text())
			}
			r := reports.MustHave(t, report)
			var context []string
			for _, left := range r.Leftovers {
				for _, found := range left.Context {
					context = append(context, found.Variable+"="+found.Value)
				}
			}
			if len(r.Leftovers) != 1 || !strings.Contains(strings.Join(context, "\n")+"\n", tt.context+"\n") {
				t.Errorf("%d leftovers, %q, want %q", len(r.Leftovers), context, tt.context)
			}
		})
	}
}

// Who started a leftover is named also if it has ended by the time fini tells of that, unless the stop signal, before
// which there is no look, has ended it.
func TestOwnerIsRemembered(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		report, g := reports.Path(t), runners.NewGate(t)
		l := rig.Start(t, p, "--linger=1h", "-w", "--report="+report, "--", "/bin/sh", "-c",
			"exec 4<&0; "+strings.Join(rig.Mode("supervisor"), " ")+` <&4 & read go <"$0"; exit 5`, g.Name)
		pid := l.Out.WantPID("supervisor ")
		worker := l.Worker()
		g.Open(t)
		// The first thing that it waits for is the end of the lingering. It has looked by then.
		rig.Until(t, "fini lingers", func() bool { return hasTimer(worker) })
		_ = l.Stdin.Close()
		l.Err.Want(fmt.Sprintf("fini: reaped zombie %d", pid))
		l.Signal(syscall.SIGTERM)
		l.MustEnd(5)
		left := reports.MustHave(t, report).Leftovers
		if len(left) == 0 {
			t.Fatalf("no leftover; stderr: %s", l.Err.Whole())
		}
		last := left[len(left)-1]
		if last.Command != "sleep 1000" || last.Owner == nil || last.Owner.Pid != pid || !strings.Contains(last.Owner.Command, "@supervisor") {
			t.Errorf("%+v, owner %+v, want %d", last, last.Owner, pid)
		}
		said := l.Err.Whole()
		if line := fmt.Sprintf("started by %d (", pid); !strings.Contains(said, "(sleep 1000)") || !strings.Contains(said, line) {
			t.Errorf("says %q, want %q", said, line)
		}
	})
}

// hasTimer reports whether a process has set an alarm: a timerfd_create(2) descriptor of the time since boot.
func hasTimer(pid int) bool {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	return slices.ContainsFunc(infos, func(info string) bool {
		text, _ := os.ReadFile(info)
		// Another one, of another clock, is the watchdog's of who reads /proc. See CLOCK_BOOTTIME.
		return strings.Contains(string(text), "clockid: 7\n")
	})
}
