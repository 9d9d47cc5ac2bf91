package report

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// serves starts a server as a test does, says "ready" when it listens, and waits for it.
var serves = []string{"/bin/sh", "-c", `FINI_TEST=tests/x.py::y "$@" >said & until grep -q listener said; do sleep 0.01; done; echo ready; wait`, "sh"}

// words is what a report says of what was running, a process to each line; their state may be any.
func words(r reports.Report) string {
	var lines []string
	for _, p := range r.Running {
		line := regexp.MustCompile(`^\S*/`).ReplaceAllString(p.Command, "") // without its folder
		if len(p.Listens) > 0 {
			line += " listens on " + strings.Join(p.Listens, " ")
		}
		for _, v := range p.Context {
			line += " " + v.Variable + "=" + v.Value
		}
		if p.AgeSeconds == nil || p.CPUSeconds == nil || p.State == nil || p.Parent == 0 {
			line += " and lacks something"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// A command that runs out of time is told of with its test and its port: in the lines, in the report, and on GitHub. Those
// that a process waits for come last.
func TestRunningWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for name, flags := range map[string]string{"timeout": "", "quiet": "-q"} {
			rig.Case(t, name == "timeout", name, func(t *testing.T) {
				t.Parallel()
				var path, summary, dir string
				l := rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
					path, summary, dir = reports.Path(t), rig.Put(t, filepath.Join(t.TempDir(), "summary.md"), "", 0o600), t.TempDir()
					argv := slices.Concat(strings.Fields(timeout+" "+flags), []string{"--report=" + path, "--report=" + filepath.Join(dir, "hang.xml"), "--"}, serves, rig.Mode("listen", "tcp 127.0.0.1:0"))
					argv[slices.Index(argv, "-c")+1] = "cd " + dir + "; " + serves[2]
					cmd := p.Command(argv...)
					cmd.Env = append(os.Environ(), "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="+summary)
					return rig.StartCmd(t, cmd)
				})
				l.MustEnd(124)
				at := strings.Fields(rig.ReadFile(t, filepath.Join(dir, "said")))[1]
				r := reports.MustHave(t, path)
				got := strings.Split(words(r), "\n")
				if len(got) != 2 || !strings.HasSuffix(got[0], " listens on "+at+" FINI_TEST=tests/x.py::y") || !strings.HasPrefix(got[1], "sh -c ") || r.RunningOmitted != 0 {
					t.Errorf("reports %q", got)
				}
				if text := rig.ReadFile(t, filepath.Join(dir, "hang.xml")); !strings.Contains(text, `name="tests/x.py::y" file="tests/x.py"`) || !strings.Contains(text, "listens on tcp "+at+", started in") {
					t.Errorf("as JUnit it reports %s", text)
				}
				said := regexp.MustCompile(`, (running|sleeping|disk sleep)\b`).ReplaceAllString(l.Err.Whole(), "")
				lines := strings.SplitAfter(said, "\n")
				if name == "quiet" {
					rig.Equal(t, "what it says", said, "")
					rig.Equal(t, "the summary", rig.ReadFile(t, summary), "")
					return
				}
				tail := `\), for [0-9hms]+, listens on tcp ` + regexp.QuoteMeta(at) + `, started in test tests/x\.py::y`
				for i, want := range []string{
					`^fini: stopping the command: --timeout=.* has passed\n$`,
					`^fini: still running \d+ \(.*listen.*` + tail + `\n$`,
					`^fini: still running \d+ \(/bin/sh -c .*\), for [0-9hms]+\n$`,
				} {
					if i >= len(lines) || !regexp.MustCompile(want).MatchString(lines[i]) || len(lines[i]) > 161 {
						t.Fatalf("line %d: says %q, want %q", i, said, want)
					}
				}
				if !regexp.MustCompile(`::error title=fini,file=tests/x\.py::The command was stopped: --timeout=\S+ has passed\. Still running then\. See \S+%0A\d+ \(.*` + tail + `\n`).MatchString(said) {
					t.Errorf("on GitHub it says %q", said)
				}
				if strings.Contains(said, "teardown") || !strings.Contains(rig.ReadFile(t, summary), "| still running |") {
					t.Errorf("says %q; the summary: %s", said, rig.ReadFile(t, summary))
				}
			})
		}
	})
}

// For what others stop there are no lines, and only the report tells. A HUP is for a reload.
func TestRunningInTheReport(t *testing.T) {
	t.Parallel()
	const (
		// It survives SIGTERM with a child that it starts then.
		survives = `trap 'sleep 1000 & ` + rig.UntilSleeps + `; echo trapped' TERM; echo ready; while :; do sleep 0.02; done`
		sleeps   = "sleep 1000 & " + rig.UntilSleeps + "; echo ready; wait"
	)
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name, flags, script string
			drive               func(l *rig.Life)
			want                string // in lines, sorted
		}{
			{"stdin closes", "-i --grace=100ms", sleeps, func(l *rig.Life) { _ = l.Stdin.Close() }, "sh -c SCRIPT\nsleep 1000"},
			{"HUP", "", "trap 'echo trapped' HUP; trap 'exit 3' USR1; echo ready; while :; do sleep 0.02; done", func(l *rig.Life) {
				l.Signal(syscall.SIGHUP)
				l.Out.Want("trapped")
				l.Signal(syscall.SIGUSR1)
			}, ""},
			{"a stop after a signal that was survived", "-i --grace=100ms", survives, func(l *rig.Life) {
				l.Signal(syscall.SIGTERM)
				l.Out.Want("trapped")
				_ = l.Stdin.Close()
			}, "sh -c SCRIPT\nsleep 1000"},
			{"only the first signal", "", "trap '' TERM; trap 'exit 3' USR1; echo ready; while :; do sleep 0.02; done", func(l *rig.Life) {
				l.Signal(syscall.SIGTERM)
				rig.Until(l.T, "it has come", func() bool { return strings.Contains(l.Err.Text(), "sending SIGTERM") })
				l.Signal(syscall.SIGUSR1)
			}, "sh -c SCRIPT"},
		} {
			rig.Case(t, tt.name == "stdin closes", tt.name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				l := rig.StartCmd(t, p.Command(append(strings.Fields("-v "+tt.flags), "--report="+path, "--", "/bin/sh", "-c", tt.script)...))
				l.Out.Want("ready")
				l.Caught()
				tt.drive(l)
				l.MustEnd(l.Status())
				r := reports.MustHave(t, path)
				got := strings.Split(strings.ReplaceAll(words(r), tt.script, "SCRIPT"), "\n")
				got = slices.DeleteFunc(got, func(line string) bool { return slices.Contains([]string{"sleep 0.02", "sleep", "sh"}, line) }) // "sleep" exits just now
				slices.Sort(got)
				got = slices.Compact(got) // a child of the shell has the shell's words until it executes "sleep"
				rig.Equal(t, "what was running", strings.Join(got, "\n"), tt.want)
				if strings.Contains(l.Err.Whole(), "still running") {
					t.Errorf("says %q", l.Err.Text())
				}
			})
		}
	})
	t.Run("the parent dies", func(t *testing.T) {
		t.Parallel()
		path := reports.Path(t)
		l := rig.Launch(t, rig.Pair, append([]string{"--grace=100ms", "--report=" + path, "--"}, rig.Mode("signals")...)...)
		l.Out.Want("ready")
		main := l.Main()
		rig.Until(t, "it sleeps", func() bool { return procfs.Sleeps(main) })
		rig.MustKill(t, l.Launcher, syscall.SIGKILL)
		l.MustVanish()
		rig.Until(t, "the report", func() bool { return len(rig.ReadFile(t, path)) > 0 })
		r := reports.MustHave(t, path)
		if len(r.Running) != 1 || r.Running[0].Pid != main {
			t.Errorf("it reports %+v", r.Running)
		}
	})
}

// If --timeout runs out while the command is being stopped, fini only changes the exit status. As JUnit it has failed then too.
func TestTimeIsUpDuringAStop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.xml")
	l := rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
		return rig.Start(t, rig.Pair, timeout, "--kill-after=1h", "--grace=2h", "--report="+path, "--", "/bin/sh", "-c",
			`trap "" TERM; echo ready; read line; exit 7`)
	})
	l.Caught()
	l.Signal(syscall.SIGTERM) // on a busy machine it may come after the timeout
	rig.Until(t, "the time is up", func() bool { return strings.Contains(l.Err.Text(), "--timeout=") })
	rig.Write(t, l, "go\n")
	l.MustEnd(124)
	if text := rig.ReadFile(t, path); !strings.Contains(text, `<failure message="--timeout=`) {
		t.Errorf("as JUnit it reports %s", text)
	}
}
