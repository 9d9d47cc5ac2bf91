package report

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// scene writes files, of which those that begin with "#!" can be executed, and returns their directory.
func scene(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numbered repeats a text for the numbers from 0 to 99, which stand for its "%02d"; but that of 57 is another one.
func numbered(text, leak string) string {
	var all strings.Builder
	for i := range 100 {
		one := text
		if i == 57 {
			one = leak
		}
		all.WriteString(strings.ReplaceAll(one, "%02d", fmt.Sprintf("%02d", i)))
	}
	return all.String()
}

// A leak in one of a hundred tests is named with that test, whichever tool runs them.
func TestLeakIsNamedWithItsTest(t *testing.T) {
	t.Parallel()
	without := func(extra ...string) (env []string) {
		for _, variable := range os.Environ() {
			if !strings.HasPrefix(variable, "GITHUB_") && !strings.HasPrefix(variable, "npm_") {
				env = append(env, variable)
			}
		}
		return append(env, extra...)
	}
	for _, tt := range []struct {
		name    string
		needs   string
		files   map[string]string
		command []string
		says    string
		context string // a variable and its value, in the report
	}{
		{"pytest", "pytest", map[string]string{"test_many.py": "import subprocess\n" + numbered(
			"def test_%02d():\n    assert True\n",
			"def test_%02d():\n    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n")},
			[]string{"/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"},
			"in test test_many.py::test_57 (call)", "PYTEST_CURRENT_TEST=test_many.py::test_57 (call)"},
		{"bats", "bats", map[string]string{"many.bats": numbered(
			"@test \"number %02d\" { true; }\n",
			"@test \"number %02d\" { setsid sleep 1000 >/dev/null 2>&1 3>&- 4>&- & true; }\n")},
			[]string{"bats", "many.bats"},
			"in test test_number_57", "BATS_TEST_NAME=test_number_57"},
		{"go test", "go", map[string]string{"go.mod": "module many\n\ngo 1.21\n", "many_test.go": "package many\n\n" +
			"import (\n\t\"os/exec\"\n\t\"testing\"\n)\n\n" +
			"func begin(t *testing.T) { t.Setenv(\"FINI_TEST\", t.Name()) }\n\n" + numbered(
			"func TestNumber%02d(t *testing.T) { begin(t) }\n",
			"func TestNumber%02d(t *testing.T) { begin(t); exec.Command(\"sleep\", \"1000\").Start() }\n")},
			[]string{"go", "test", "-count=1", "./..."},
			"in test TestNumber57", "FINI_TEST=TestNumber57"},
		{"npm script", "npm", map[string]string{"package.json": `{"name": "shop", "scripts": {` +
			numbered(`"test:%02d": "true", `, `"test:%02d": "sh leak.sh", `) + `"test": "sh all.sh"}}`,
			"leak.sh": "setsid sleep 1000 >/dev/null 2>&1 &\n",
			"all.sh":  "for i in 56 57 58; do npm run --silent test:$i; done\n"},
			[]string{"npm", "run", "--silent", "test"},
			"in npm script test:57", "npm_lifecycle_event=test:57"},
		// cargo-nextest runs each test in a process of its own, and says which.
		{"nextest-shaped", "sh", map[string]string{
			"runner": "#!/bin/sh\nfor i in $(seq 0 99); do CARGO_PKG_NAME=shop NEXTEST_BINARY_ID=shop::api NEXTEST_TEST_NAME=api::number_$i ./api $i || exit; done\n",
			"api":    "#!/bin/sh\ntest $1 != 57 || setsid sleep 1000 >/dev/null 2>&1 &\nexit 0\n"},
			[]string{"./runner"},
			"in test api::number_57", "NEXTEST_BINARY_ID=shop::api"},
		// Playwright's workers know their number, and the test that it runs is for a fixture to say.
		{"Playwright-shaped", "node", map[string]string{
			"runner.js": "const { fork } = require('child_process');\n" +
				"for (let w = 0; w < 4; w++) fork('./worker.js', [], { env: { ...process.env, TEST_WORKER_INDEX: String(w) } });\n",
			"worker.js": "const { spawn } = require('child_process');\n" +
				"for (let i = +process.env.TEST_WORKER_INDEX; i < 100; i += 4) {\n" +
				"  if (i === 57) spawn('sleep', ['1000'], { detached: true, stdio: 'ignore', env: { ...process.env, FINI_TEST: `checkout > number ${i}` } }).unref();\n" +
				"}\n"},
			[]string{"node", "runner.js"},
			"in test checkout > number 57", "TEST_WORKER_INDEX=1"},
		{"a worker alone", "node", map[string]string{
			"worker.js": "require('child_process').spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' }).unref();\n"},
			[]string{"env", "JEST_WORKER_ID=3", "node", "worker.js"},
			"in Jest worker 3", "JEST_WORKER_ID=3"},
		{"a step", "sh", nil, []string{"env", "GITHUB_ACTION=__run_7", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"},
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
			report := rig.ReportPath(t)
			cmd := exec.Command(rig.Fini, append([]string{"--linger=50ms", "--orphans-exit=9", "--report=" + report, "--"}, tt.command...)...)
			cmd.Dir = scene(t, tt.files)
			cmd.Env = without("GOCACHE=" + rig.GoCache(t))
			l := rig.StartCmd(t, cmd)
			l.MustEnd(9)
			said := l.Err.Whole()
			if strings.Count(said, "stopping leftover") != 1 || !strings.Contains(said, tt.says) {
				t.Errorf("says %q, want %q; stdout: %s", said, tt.says, l.Out.Text())
			}
			r := rig.MustHaveReport(t, report)
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
	supervisor := strings.Join(rig.Mode("supervisor"), " ")
	for _, tt := range []struct {
		name   string
		flags  string
		script string
		status int
	}{
		{"it ends while leftovers linger", "--linger=10s", "exec 4<&0; " + supervisor + " <&4 & read go <$DIR/go; exit 5", 5},
	} {
		for _, p := range rig.Places {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				if p.PID1 {
					rig.NeedPidNamespace(t)
				}
				dir, report := t.TempDir(), rig.ReportPath(t)
				fifo := filepath.Join(dir, "go")
				if err := syscall.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := p.Command(append(strings.Fields(tt.flags), "-v", "--report="+report, "--", "/bin/sh", "-c", tt.script)...)
				cmd.Env = append(os.Environ(), "DIR="+dir)
				l := rig.StartCmd(t, cmd)
				pid := l.Out.WantPID("supervisor ")
				if strings.Contains(tt.script, "$DIR/go") {
					if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
						t.Fatal(err)
					}
					// The first thing that it waits for is the end of the lingering. It has looked by then.
					worker := l.Worker()
					rig.Until(t, "fini lingers", func() bool { return hasTimer(worker) })
					_ = l.Stdin.Close()
				}
				l.MustEnd(tt.status)
				const want = "(sleep 1000)"
				said := l.Err.Whole()
				r := rig.MustHaveReport(t, report)
				if len(r.Leftovers) == 0 {
					t.Fatalf("no leftover; stderr: %s", said)
				}
				left := r.Leftovers[len(r.Leftovers)-1]
				if left.Command != "sleep 1000" || left.Owner == nil || left.Owner.Pid != pid || !strings.Contains(left.Owner.Command, "@supervisor") {
					t.Errorf("%+v, owner %+v, want %d", left, left.Owner, pid)
				}
				if line := fmt.Sprintf("started by %d (", pid); !strings.Contains(said, want) || !strings.Contains(said, line) {
					t.Errorf("says %q, want %q", said, line)
				}
			})
		}
	}
}

// hasTimer reports whether a process has set an alarm: a timerfd_create(2) descriptor of the time since boot.
func hasTimer(pid int) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(links, func(link string) bool {
		to, _ := os.Readlink(link)
		info, _ := os.ReadFile(strings.Replace(link, "/fd/", "/fdinfo/", 1))
		// Another one, of another clock, is the watchdog's of who reads /proc. See CLOCK_BOOTTIME.
		return to == "anon_inode:[timerfd]" && strings.Contains(string(info), "clockid: 7\n")
	})
}

// What fini may not look at is null in the report, and what is not there is none.
func TestReportTellsUnknownFromNone(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.Program(t, "setpriv")
	report, closed := rig.ReportPath(t), rig.Linked(t, "closed")
	for dir, mode := range map[string]os.FileMode{filepath.Dir(report): 0o777, filepath.Dir(closed): 0o755, filepath.Dir(filepath.Dir(report)): 0o755} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", rig.Fini, "--linger=0", "--report="+report, "--",
		"/bin/sh", "-c", closed+` @closed & env -i sleep 1000 & `+rig.UntilSleeps+`; echo open; read go; exit 0`)
	l := rig.StartCmd(t, cmd)
	for range 2 {
		l.Out.Next()
	}
	rig.Write(t, l, "go\n")
	l.MustEnd(0)
	r := rig.MustHaveReport(t, report)
	if len(r.Leftovers) != 2 {
		t.Fatalf("%+v", r.Leftovers)
	}
	for _, left := range r.Leftovers {
		closed := strings.HasSuffix(left.Command, "@closed")
		if (left.Context == nil) != closed || (left.Holds == nil) != closed || left.AgeSeconds == nil || left.OutlivedSeconds == nil {
			t.Errorf("%+v", left)
		}
	}
	if s := r.Seconds; s.Command == nil || s.Leftovers == nil || s.Total < *s.Command || s.Total < *s.Leftovers {
		t.Errorf("%+v", s)
	}
}
