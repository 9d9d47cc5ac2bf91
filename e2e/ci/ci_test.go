package ci

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// fini in front of the commands of CI jobs, under what their runners do to a job. The
// runners are played by the test, in the order and by the signals of the real ones; what
// they run is real.

// joined is a command for a shell.
func joined(wrap []string, more ...string) string {
	return strings.Join(slices.Concat(wrap, more), " ")
}

// GitHub's runner signals the step's shell, which makes SIGINT wait for the tests and dies of SIGTERM, of which the tests
// hear nothing: but fini is bound to the shell that started it. GitLab's runner signals the group of the job's shells.
func TestCancel(t *testing.T) {
	need.Program(t, "bash")
	need.Program(t, "python3")
	t.Parallel()
	for _, tt := range []struct {
		name   string
		attr   *syscall.SysProcAttr
		script func(tests string) []string
		cancel func(s *runners.Step)
		waits  time.Duration // for the end of the output; 0 for ever
	}{
		{"GitHub step cancelled", nil, func(tests string) []string {
			return []string{"bash", "-e", runners.ScriptFile(t, tests+"\necho the step goes on\n")}
		}, (*runners.Step).GithubCancel, runners.GithubWaits},
		{"GitLab job cancelled", runners.OwnGroup, runners.Gitlab, func(s *runners.Step) { s.SignalGroup(syscall.SIGTERM) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			columns.Run(t, tt.name, nil, func(t *testing.T, wrap []string) columns.Outcome {
				s := runners.StartStep(t, tt.attr, tt.script(joined(wrap, "bash", "testdata/ci-tests.sh"))...)
				_ = s.Stdin.Close() // as the runner does
				rig.Until(t, "the tests and both of their servers are ready", func() bool {
					said := s.Out.Text()
					return strings.Contains(said, "tests ready") && strings.Count(said, "Serving HTTP") == 2
				})
				tt.cancel(s)
				o := outcome(s, wrap, 128+int(syscall.SIGTERM), tt.waits)
				if slices.Contains(wrap, rig.Fini) {
					rig.WantOnce(t, s.Out.Text(), "tests got TERM")
				}
				if strings.Contains(s.Out.Text(), "the step goes on") {
					t.Error("the shell went on with its next line")
				}
				return o
			})
		})
	}
}

// With `shell: fini -- bash -e {0}` the step's one known process is fini. Tests that
// ignore every request leave the runner SIGKILL, which is for fini.
func TestGitHubKillsFini(t *testing.T) {
	need.Program(t, "bash")
	t.Parallel()
	file := runners.ScriptFile(t, "setsid sleep 1000 &\nsleep 1000 &\nexec "+joined(rig.Mode("signals"))+"\n")
	s := runners.StartStep(t, nil, rig.Fini, "--grace=500ms", "--", "bash", "-e", file)
	_ = s.Stdin.Close()
	s.Out.Want("ready")
	s.GithubCancel()
	s.Out.Rest() // to EOF
	s.MustHaveStatus(128 + int(syscall.SIGKILL))
	s.MustBeGone()
	rig.WantOnce(t, s.Out.Text(), "signal 2")
	// fini sends it for its own end too, unless that comes within a second of the runner's.
	if n := strings.Count(s.Out.Text(), "signal 15\n"); n != 1 && n != 2 {
		t.Errorf("the command got SIGTERM %d times", n)
	}
}

// In front of GitHub's shell, fini is the only process that the runner signals. A process that is started after the
// runner's SIGTERM is left to clean up, even if SIGKILL for fini comes meanwhile.
func TestGitHubCleansUp(t *testing.T) {
	need.Program(t, "bash")
	t.Parallel()
	for name, after := range map[string]string{"in the foreground": "\n", "in the background": " &\nwait\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := runners.ScriptFile(t, "("+runners.Cleaner+")"+after+"echo the step goes on\n")
			s := runners.StartStep(t, nil, rig.Fini, "--grace=2m", "--", "bash", "--noprofile", "--norc", "-eo", "pipefail", file)
			_ = s.Stdin.Close()
			s.Out.Want("ready")
			rig.UntilOlder(t)
			s.GithubCancel()
			runners.MustDelete(s.Life)
			s.MustBeGone()
		})
	}
}

// When the step's process has ended, the runner waits 5 s for the end of its output, and goes on: see GithubWaits.
func TestGitHubStepLeavesServer(t *testing.T) {
	need.Program(t, "bash")
	need.Program(t, "python3")
	t.Parallel()
	name := "GitHub step over, a server left in its background"
	columns.Run(t, name, nil, func(t *testing.T, wrap []string) columns.Outcome {
		g := runners.NewGate(t)
		file := runners.ScriptFile(t, "python3 -u -m http.server --bind 127.0.0.1 0 &\nread go <"+g.Name+"\necho tests passed\n")
		s := runners.StartStep(t, nil, slices.Concat(wrap, []string{"bash", "-e", file})...)
		_ = s.Stdin.Close()
		s.Out.Want("Serving HTTP")
		g.Open(t)
		s.Out.Want("tests passed")
		o := outcome(s, wrap, 0, runners.GithubWaits)
		if slices.Contains(wrap, rig.Fini) && strings.Contains(s.Err.Whole(), "killing leftover") {
			t.Errorf("the server did not end when it was asked to: %q", s.Err.Text())
		}
		return o
	})
}

// A command that goes on after SIGTERM gets what it gets without fini: each signal once, and then SIGKILL; at a terminal,
// where it is in the group itself, SIGTERM once more by way of fini. The runner sends both to the whole group, and so ends
// the shells in it, of which one started fini, and the fini that it started, in any order.
func TestGroupSignalsArriveOnce(t *testing.T) {
	t.Parallel()
	need.Program(t, "bash")
	rounds := rig.QuickOrFull(2, 10)
	for _, runner := range []struct {
		name  string
		argv  func(job string) []string
		start func(t *testing.T, cmd *exec.Cmd) *rig.Life
		want  []string
		inJob bool // the command is in the group itself
	}{
		{"GitLab", runners.Gitlab, func(t *testing.T, cmd *exec.Cmd) *rig.Life {
			cmd.SysProcAttr = runners.OwnGroup
			l := rig.StartCmd(t, cmd)
			_ = l.Stdin.Close()
			return l
		}, []string{"signal 15"}, false},
		// Buildkite's agent gives the job a session and a terminal. At the end of the session's
		// leader the kernel sends SIGHUP to the foreground.
		{"Buildkite", func(job string) []string { return []string{"bash", "-e", "-c", job + "; :"} }, func(t *testing.T, cmd *exec.Cmd) *rig.Life {
			l, _, _ := pty.Start(t, cmd)
			return l
		}, []string{"signal 1", "signal 15"}, true},
	} {
		kill := func(t *testing.T, atOnce bool, wrap ...string) (status int) {
			r, w := rig.Pipe(t)
			h := rig.NewCgroup(t)
			cmd := rig.CommandOf(h.Wrap(runner.argv(joined(wrap, rig.Mode("signals")...) + " >&4")...))
			cmd.ExtraFiles = []*os.File{w}
			s := &runners.Step{Life: runner.start(t, cmd), Cgroup: h}
			_ = w.Close()
			record := rig.NewLines(t, r)
			record.Want("ready")
			s.SignalGroup(syscall.SIGTERM)
			var got []string
			for seen := map[string]bool{}; !atOnce && len(seen) < len(runner.want); {
				line, ok := record.Next()
				if !ok {
					break
				}
				seen[line] = true
				got = append(got, line)
			}
			if !atOnce {
				status = s.Status() // of the shell, which the signal has ended
			}
			s.SignalGroup(syscall.SIGKILL)
			got = append(got, record.Rest()...)
			s.MustBeGone()
			slices.Sort(got)
			if len(wrap) > 0 && runner.inJob { // the second one comes before SIGKILL, or not
				got = slices.Compact(got)
			}
			if !slices.Equal(got, runner.want) && !(atOnce && runner.inJob) { // which has no time to say what it got
				t.Errorf("the command got %q, want %q", got, runner.want)
			}
			return status
		}
		fini := []string{rig.Fini, "--grace=3s", "--"}
		t.Run(runner.name+"/SIGTERM, then SIGKILL", func(t *testing.T) {
			t.Parallel()
			want := kill(t, false)
			for range rounds {
				if got := kill(t, false, fini...); got != want {
					t.Errorf("status %d, want %d as without fini", got, want)
				}
			}
		})
		t.Run(runner.name+"/both at once", func(t *testing.T) {
			t.Parallel()
			for range rounds {
				kill(t, true, fini...)
			}
		})
	}
}

// Under GitLab the far end of stdin is closed before the command starts. Without -i that
// is nothing to fini; with it, it is a reason to stop.
func TestGitLabStdinIsOverAtTheStart(t *testing.T) {
	t.Parallel()
	need.Program(t, "bash")
	job := runners.ScriptFile(t, `trap 'echo "tests got TERM"; exit 5' TERM
read line || echo no stdin; sleep $1 & wait; echo tests passed; exit 4`)
	run := func(seconds, last string, wrap ...string) (status int) {
		s := runners.StartStep(t, runners.OwnGroup, runners.Gitlab(joined(wrap, "bash", job, seconds))...)
		_ = s.Stdin.Close()
		rig.MustRecord(t, "the job says", s.Out.Rest(), "no stdin", last)
		status = s.Status()
		s.MustBeGone()
		return status
	}
	want := run("0", "tests passed")
	if want == 0 {
		t.Error("without fini the job succeeds, so its status shows nothing")
	}
	if got := run("1", "tests passed", rig.Fini, "--grace=50ms", "--"); got != want { // many times the grace
		t.Errorf("status %d, want %d as without fini", got, want)
	}
	if got := run("1000", "tests got TERM", rig.Fini, "-i", "--grace=10s", "--linger=0", "--"); got == 0 {
		t.Error("under -i the job succeeds")
	}
}

var appAddresses atomic.Int32

// A test suite that starts its server by `npm start &` and ends without a thought of it.
func TestNpmStart(t *testing.T) {
	need.Program(t, "node")
	npm := need.Program(t, "npm")
	t.Parallel()
	columns.Run(t, "`npm start &` and tests, tests over", nil, func(t *testing.T, wrap []string) columns.Outcome {
		g := runners.NewGate(t)
		// All of 127/8 is this machine. On an address of its own nobody else takes the port.
		pid, n := os.Getpid(), appAddresses.Add(1)
		s := runners.StartStep(t, nil, slices.Concat([]string{"env", fmt.Sprintf("ADDRESS=127.%d.%d.%d", 1+n, pid>>8&0xff, 1+pid%254),
			"npm_config_offline=true", "npm_config_update_notifier=false", "npm_config_cache=" + t.TempDir()}, wrap, []string{"sh", "-c",
			"{ cd testdata/ci-app && exec " + npm + " start; } & read go <" + g.Name + "; echo tests passed; exit 4"})...)
		address := s.Out.Want("listening on ")
		g.Open(t)
		s.Out.Want("tests passed")
		o := outcome(s, wrap, 4, 0)
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
		}
		if fini := slices.Contains(wrap, rig.Fini); (fini || wrap == nil) && (err == nil) != fini {
			t.Errorf("fini is there: %t; listening at the server's port: %v", fini, err)
		}
		return o
	})
}

// What a script makes of a status is the same with fini, where each command leaves an
// escapee besides.
func TestInBashScripts(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for _, script := range []string{
		`set -e; run 'exit 3'; echo not reached`,
		`set -e; run 'exit 0'; echo reached`,
		`set -e; ! run 'exit 3'; echo reached`,
		`set -e; x=$(run 'echo out; exit 5') || echo "$x $?"; x=$(run 'exit 6'); echo not reached`,
		`set -eo pipefail; run 'echo out; exit 7' | cat; echo not reached`,
		`set -o pipefail; run 'echo out; exit 7' | cat | run 'cat; exit 0'; echo "$? ${PIPESTATUS[*]}"`,
		`set -o pipefail; run 'exec yes' | head -n 1; echo "$? ${PIPESTATUS[*]}"`,
		`trap 'echo "error $?"' ERR; run 'exit 8'; run 'exit 9' || echo "or $?"; if run 'exit 1'; then echo yes; else echo no; fi`,
		`run 'exit 10' & run 'exit 11' & wait -n -p first $!; echo "$?"; wait %1; echo "$?"`,
		`run 'kill -TERM $$'; echo "$?"; run 'no-such-command'; echo "$?"`,
		`exec 2>&1; run 'echo one; echo two >&2; exit 12'`,
		`run 'cat; exit 13' <<<"here is a line"; echo "$?"; run 'cat' < <(run 'echo from a substitution')`,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			run := func(before, leak string) (int, []string) {
				s := runners.StartStep(t, nil, bash, "-c", fmt.Sprintf("run() { %s sh -c \"%s $1\"; }\n%s", before, leak, script))
				out := s.Out.Rest()
				status := s.Status()
				s.MustBeGone() // and not at once: bash does not wait for a process substitution
				return status, out
			}
			wantStatus, want := run("", "")
			status, got := run(rig.Fini+" -q --linger=0 --", "setsid sleep 1000 &")
			if status != wantStatus || !slices.Equal(got, want) {
				t.Errorf("status %d and %q, want %d and %q as without fini", status, got, wantStatus, want)
			}
		})
	}
}

// timeout(1) inside and outside of fini. It takes a SIGALRM for that of its own timer, so
// that its time is over in the moment in which everything is ready.
func TestWithTimeout(t *testing.T) {
	t.Parallel()
	timeout := need.Program(t, "timeout")
	const (
		obedient = "setsid sleep 1000 & sleep 1000 & echo ready; wait"
		stubborn = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo ready; while :; do wait; done"
	)
	fini := []string{rig.Fini, "--grace=500ms", "--"}
	for _, tt := range []struct {
		name   string
		argv   []string
		script string
		status int
		gone   bool // fini is, when what the runner knows has ended
	}{
		{"timeout fini", slices.Concat([]string{timeout, "1000"}, fini), obedient, 124, true},
		{"timeout -k fini, killed", slices.Concat([]string{timeout, "-k", "0.1", "1000"}, fini), stubborn, 137, false},
		{"timeout -s KILL fini", slices.Concat([]string{timeout, "-s", "KILL", "1000"}, fini), obedient, 137, false},
		{"fini timeout", slices.Concat(fini, []string{timeout, "1000"}), obedient, 124, true},
		{"fini timeout -k, killed", slices.Concat(fini, []string{timeout, "-k", "0.1", "1000"}), stubborn, 137, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := runners.StartStep(t, nil, append(tt.argv, "sh", "-c", tt.script)...)
			s.Out.Want("ready")
			victim := s.PID()
			if tt.argv[0] == rig.Fini {
				victim = procfs.ChildrenOf(t, s.Worker())[0]
			}
			// timeout(1) may still be on its way out of its fork.
			rig.Until(t, "timeout waits", func() bool { return strings.HasPrefix(procfs.Status(victim, "State"), "S") })
			rig.MustKill(t, victim, syscall.SIGALRM)
			s.Out.Rest() // to EOF
			if tt.gone {
				mustEndWithNothing(s, tt.status)
			} else {
				s.MustHaveStatus(tt.status)
				s.MustBeGone()
			}
		})
	}
}

// outcome is watched from now on, and the step's own status is asserted, and that without fini the step leaves something,
// for otherwise it shows nothing.
func outcome(s *runners.Step, wrap []string, status int, waits time.Duration) columns.Outcome {
	s.T.Helper()
	o := columns.WatchFor(waits, wrap, s.Out, s.Cgroup.Count)
	s.MustHaveStatus(status)
	if wrap == nil && (o.Survivors == 0 || !o.Never) {
		s.T.Errorf("without fini: %s; so the case shows nothing", o)
	}
	return o
}

// mustEndWithNothing asserts the status, and that nothing is alive from that moment on.
func mustEndWithNothing(s *runners.Step, status int) {
	s.T.Helper()
	s.MustHaveStatus(status)
	if names := s.Cgroup.Names(); len(names) > 0 || rig.HeldOpen(s.Witness) {
		s.T.Errorf("the step is over and alive are %q; stderr: %s", names, s.Err.Text())
	}
}
