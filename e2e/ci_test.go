package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// fini in front of the commands of CI jobs, under what their runners do to a job. The
// runners are played by the test, in the order and by the signals of the real ones; what
// they run is real.

// A step is the process that a runner starts and waits for, in a cgroup with all below it.
type step struct {
	*life
	cgroup *cgroup
}

// startStep runs argv as a runner does: its streams are pipes.
func startStep(t *testing.T, attr *syscall.SysProcAttr, argv ...string) *step {
	t.Helper()
	h := newCgroup(t)
	argv = h.wrap(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = attr
	return &step{startCmd(t, cmd), h}
}

// outcome is watched from now on, and the step's own status is asserted.
func (s *step) outcome(status int) outcome {
	s.t.Helper()
	o := s.cgroup.outcomeOf(s.Out)
	s.mustHaveStatus(status)
	return o
}

func (s *step) mustHaveStatus(want int) {
	s.t.Helper()
	if got := s.status(); got != want {
		s.t.Errorf("status %d, want %d; stderr: %s", got, want, s.Err.text())
	}
}

// mustBeGone waits until nothing is alive of all that the step has started. Where the
// fini that its launcher knows was killed, nobody else waits for that.
func (s *step) mustBeGone() {
	s.t.Helper()
	until(s.t, "the step's cgroup is empty and its witness has hung up", func() bool {
		return len(s.cgroup.alive()) == 0 && hungUp(s.witness)
	})
}

// mustEndWithNothing asserts the status, and that nothing is alive from that moment on.
func (s *step) mustEndWithNothing(status int) {
	s.t.Helper()
	s.mustHaveStatus(status)
	if names := s.cgroup.names(); len(names) > 0 || heldOpen(s.witness) {
		s.t.Errorf("the step is over and alive are %q; stderr: %s", names, s.Err.text())
	}
}

// mustLeakWithoutFini asserts that a case without fini leaves something, for otherwise it shows
// nothing.
func mustLeakWithoutFini(t *testing.T, wrap []string, o outcome) {
	t.Helper()
	if wrap == nil && (o.survivors == 0 || !o.never) {
		t.Errorf("without fini: %s; so the case shows nothing", o)
	}
}

// joined is a command for a shell.
func joined(wrap []string, more ...string) string {
	return strings.Join(slices.Concat(wrap, more), " ")
}

func scriptFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "step.sh")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// A gate is a FIFO at which a script waits, where its stdin is the runner's affair.
type gate struct {
	name string
	file *os.File
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{name: filepath.Join(t.TempDir(), "gate")}
	err := unix.Mkfifo(g.name, 0o600)
	if err == nil {
		g.file, err = os.OpenFile(g.name, os.O_RDWR, 0) // which waits for no reader
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.file.Close() })
	return g
}

// open lets one reader pass: a line of one byte can't be shared by two.
func (g *gate) open(t *testing.T) {
	t.Helper()
	if _, err := g.file.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}

const ciTests = "testdata/ci-tests.sh"

// ready waits for the tests and both of their servers. A server writes its line and the
// line's end one after the other, so that what others say can come between.
func (s *step) ready() {
	s.t.Helper()
	said := []string{"tests ready", "Serving HTTP", "Serving HTTP"}
	var text string
	for range said {
		line, ok := s.Out.next()
		if !ok {
			s.t.Fatalf("EOF before all is ready; stdout: %s; stderr: %s", s.Out.text(), s.Err.text())
		}
		text += line
	}
	for _, word := range said {
		before, after, ok := strings.Cut(text, word)
		if !ok {
			s.t.Fatalf("no %q in the first %d lines of stdout: %s", word, len(said), s.Out.text())
		}
		text = before + after
	}
}

func needTests(t *testing.T) {
	t.Helper()
	need.Program(t, "bash")
	need.Program(t, "python3")
	need.Program(t, "setsid")
}

// githubCancel is what the GitHub runner does on a cancel: to the one process that it
// knows it sends SIGINT, after 7.5 s SIGTERM and after 2.5 s more SIGKILL. Only the order
// matters to what is tested here, so the times are a tenth of that.
func (s *step) githubCancel() {
	s.t.Helper()
	const scale = 10
	// A command may be ready before its shell waits for it, and then SIGINT ends the shell at once.
	until(s.t, "every shell of the step waits", func() bool {
		return !slices.ContainsFunc(s.cgroup.alive(), func(pid int) bool {
			return procStatus(pid, "Name") == "bash" && !strings.HasPrefix(procStatus(pid, "State"), "S")
		})
	})
	ended := make(chan struct{})
	go func() { s.wait(); close(ended) }()
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{
		{syscall.SIGINT, 7500 * time.Millisecond / scale},
		{syscall.SIGTERM, 2500 * time.Millisecond / scale},
		{syscall.SIGKILL, patience},
	} {
		// An error says that it has ended.
		_ = s.cmd.Process.Signal(step.sig)
		select {
		case <-ended:
			return
		case <-time.After(step.wait):
		}
	}
}

// The step's shell makes SIGINT wait for the tests and dies of SIGTERM, of which the tests
// hear nothing: but fini is bound to the shell that started it.
func TestGitHubCancel(t *testing.T) {
	needTests(t)
	t.Parallel()
	inColumns(t, "GitHub step cancelled", nil, func(t *testing.T, wrap []string) outcome {
		file := scriptFile(t, joined(wrap, "bash", ciTests)+"\necho the step goes on\n")
		s := startStep(t, nil, "bash", "-e", file)
		_ = s.Stdin.Close() // as the runner does
		s.ready()
		s.githubCancel()
		o := s.outcome(128 + int(syscall.SIGTERM))
		mustLeakWithoutFini(t, wrap, o)
		if slices.Contains(wrap, finiPath) {
			wantOnce(t, s.Out.text(), "tests got TERM")
		}
		if strings.Contains(s.Out.text(), "the step goes on") {
			t.Error("the shell went on with its next line")
		}
		return o
	})
}

// With `shell: fini -- bash -e {0}` the step's one known process is fini. Tests that
// ignore every request leave the runner SIGKILL, which is for fini.
func TestGitHubKillsFini(t *testing.T) {
	need.Program(t, "bash")
	t.Parallel()
	file := scriptFile(t, "setsid sleep 1000 &\nsleep 1000 &\nexec "+joined(mode("signals"))+"\n")
	s := startStep(t, nil, finiPath, "--grace=500ms", "--", "bash", "-e", file)
	_ = s.Stdin.Close()
	s.Out.want("ready")
	s.githubCancel()
	s.Out.rest() // to EOF
	s.mustHaveStatus(128 + int(syscall.SIGKILL))
	s.mustBeGone()
	wantOnce(t, s.Out.text(), "signal 2")
	wantOnce(t, s.Out.text(), "signal 15")
}

// When the step's process has ended, the runner waits 5 s for the end of its output.
func TestGitHubStepLeavesServer(t *testing.T) {
	needTests(t)
	t.Parallel()
	name := "GitHub step over, a server left in its background"
	inColumns(t, name, nil, func(t *testing.T, wrap []string) outcome {
		g := newGate(t)
		file := scriptFile(t, "python3 -u -m http.server --bind 127.0.0.1 0 &\nread go <"+g.name+"\necho tests passed\n")
		s := startStep(t, nil, slices.Concat(wrap, []string{"bash", "-e", file})...)
		_ = s.Stdin.Close()
		s.Out.want("Serving HTTP")
		g.open(t)
		s.Out.want("tests passed")
		o := s.outcome(0)
		mustLeakWithoutFini(t, wrap, o)
		if slices.Contains(wrap, finiPath) && o.eof > 5*time.Second {
			t.Errorf("EOF after %v, which the runner does not wait for", o.eof)
		}
		return o
	})
}

// gitlab is the script that the shell executor gives to bash: the job's own is the last
// part of a pipeline whose first is `:`, so that the far end of stdin is closed at once.
func gitlab(job string) []string { return gitlabBy(`eval "$1"`, job) }

func gitlabBy(eval, job string) []string {
	script := "trap exit 1 TERM; set -o pipefail; set -o errexit; : | " + eval + "; exit 0"
	return []string{"bash", "-c", script, "bash", job}
}

// GitLab's runner starts the script in a process group of its own, and sends SIGTERM to
// that group.
var ownGroup = &syscall.SysProcAttr{Setpgid: true}

func (s *step) signalGroup(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(-s.pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.t.Fatalf("cannot send %v to the group %d: %v", sig, s.pid(), err)
	}
}

func TestGitLabCancel(t *testing.T) {
	needTests(t)
	t.Parallel()
	inColumns(t, "GitLab job cancelled", nil, func(t *testing.T, wrap []string) outcome {
		s := startStep(t, ownGroup, gitlab(joined(wrap, "bash", ciTests))...)
		_ = s.Stdin.Close()
		s.ready()
		s.signalGroup(syscall.SIGTERM)
		o := s.outcome(128 + int(syscall.SIGTERM))
		mustLeakWithoutFini(t, wrap, o)
		if slices.Contains(wrap, finiPath) {
			wantOnce(t, s.Out.text(), "tests got TERM")
		}
		return o
	})
}

// A command that goes on after SIGTERM gets what it gets without fini: each signal once,
// and then SIGKILL; at a terminal, where it is in the group itself, SIGTERM once more by way of fini. The runner sends both to the whole group, and so ends the shells in it,
// of which one started fini, and the fini that it started, in any order.
func TestGroupSignalsArriveOnce(t *testing.T) {
	t.Parallel()
	need.Program(t, "bash")
	rounds := quickOrFull(2, 10)
	for _, runner := range []struct {
		name  string
		start func(t *testing.T, job string, record *os.File) *step
		want  []string
		inJob bool // the command is in the group itself
	}{
		{"GitLab", func(t *testing.T, job string, record *os.File) *step {
			s := startRecorded(t, record, gitlab(job), func(cmd *exec.Cmd) *life {
				cmd.SysProcAttr = ownGroup
				return startCmd(t, cmd)
			})
			_ = s.Stdin.Close()
			return s
		}, []string{"signal 15"}, false},
		// Buildkite's agent gives the job a session and a terminal. At the end of the session's
		// leader the kernel sends SIGHUP to the foreground.
		{"Buildkite", func(t *testing.T, job string, record *os.File) *step {
			return startRecorded(t, record, []string{"bash", "-e", "-c", job + "; :"}, func(cmd *exec.Cmd) *life {
				l, _, _ := onTerminal(t, cmd)
				return l
			})
		}, []string{"signal 1", "signal 15"}, true},
	} {
		start := func(t *testing.T, wrap ...string) (*step, *lines) {
			r, w := pipe(t)
			s := runner.start(t, joined(wrap, mode("signals")...)+" >&4", w)
			_ = w.Close()
			got := newLines(t, r)
			got.want("ready")
			return s, got
		}
		killAfterTerm := func(t *testing.T, wrap ...string) (status int) {
			s, record := start(t, wrap...)
			s.signalGroup(syscall.SIGTERM)
			var got []string
			for seen := map[string]bool{}; len(seen) < len(runner.want); {
				line, ok := record.next()
				if !ok {
					break
				}
				seen[line] = true
				got = append(got, line)
			}
			status = s.status() // of the shell, which the signal has ended
			s.signalGroup(syscall.SIGKILL)
			got = append(got, record.rest()...)
			s.mustBeGone()
			slices.Sort(got)
			if len(wrap) > 0 && runner.inJob { // the second one comes before SIGKILL, or not
				got = slices.Compact(got)
			}
			if !slices.Equal(got, runner.want) {
				t.Errorf("the command got %q, want %q", got, runner.want)
			}
			return status
		}
		fini := []string{finiPath, "--grace=500ms", "--"}
		t.Run(runner.name+"/SIGTERM, then SIGKILL", func(t *testing.T) {
			t.Parallel()
			want := killAfterTerm(t)
			for range rounds {
				if got := killAfterTerm(t, fini...); got != want {
					t.Errorf("status %d, want %d as without fini", got, want)
				}
			}
		})
		t.Run(runner.name+"/both at once", func(t *testing.T) {
			t.Parallel()
			for range rounds {
				s, record := start(t, fini...)
				s.signalGroup(syscall.SIGTERM)
				s.signalGroup(syscall.SIGKILL)
				got := record.rest()
				s.mustBeGone()
				// One that is in the group has no time to say what it got.
				if slices.Sort(got); !slices.Equal(got, runner.want) && !runner.inJob {
					t.Errorf("the command got %q, want %q", got, runner.want)
				}
			}
		})
	}
}

// startRecorded gives the step one more descriptor, 4.
func startRecorded(t *testing.T, record *os.File, argv []string, start func(*exec.Cmd) *life) *step {
	t.Helper()
	h := newCgroup(t)
	argv = h.wrap(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.ExtraFiles = []*os.File{record}
	return &step{start(cmd), h}
}

// Under GitLab the far end of stdin is closed before the command starts. Without -i that
// is nothing to fini; with it, it is a reason to stop.
func TestGitLabStdinIsOverAtTheStart(t *testing.T) {
	t.Parallel()
	need.Program(t, "bash")
	// It lasts many times the grace.
	job := scriptFile(t, `trap 'echo "tests got TERM"; exit 5' TERM
read line || echo no stdin; sleep 3 & wait; echo tests passed; exit 4`)
	for _, eval := range []string{`eval "$1"`, `(eval "$1")`} { // two ways, of which one can be chosen
		t.Run(eval, func(t *testing.T) {
			t.Parallel()
			run := func(last string, wrap ...string) (status int) {
				s := startStep(t, ownGroup, gitlabBy(eval, joined(wrap, "bash", job))...)
				_ = s.Stdin.Close()
				if got, want := s.Out.rest(), []string{"no stdin", last}; !slices.Equal(got, want) {
					t.Errorf("stdout %q, want %q", got, want)
				}
				status = s.status()
				s.mustBeGone()
				return status
			}
			want := run("tests passed")
			if want == 0 {
				t.Error("without fini the job succeeds, so its status shows nothing")
			}
			if got := run("tests passed", finiPath, "--grace=50ms", "--"); got != want {
				t.Errorf("status %d, want %d as without fini", got, want)
			}
			if got := run("tests got TERM", finiPath, "-i", "--grace=500ms", "--linger=0", "--"); got == 0 {
				t.Error("under -i the job succeeds")
			}
		})
	}
}

var appAddresses atomic.Int32

// A test suite that starts its server by `npm start &` and ends without a thought of it.
func TestNpmStart(t *testing.T) {
	need.Program(t, "node")
	npm := need.Program(t, "npm")
	t.Parallel()
	inColumns(t, "`npm start &` and tests, tests over", nil, func(t *testing.T, wrap []string) outcome {
		h, g := newCgroup(t), newGate(t)
		argv := h.wrap(slices.Concat(wrap, []string{"sh", "-c",
			"{ cd testdata/ci-app && exec " + npm + " start; } & read go <" + g.name + "; echo tests passed; exit 4"})...)
		cmd := exec.Command(argv[0], argv[1:]...)
		// All of 127/8 is this machine. On an address of its own nobody else takes the port.
		pid, n := os.Getpid(), appAddresses.Add(1)
		cmd.Env = append(os.Environ(), fmt.Sprintf("ADDRESS=127.%d.%d.%d", 1+n, pid>>8&0xff, 1+pid%254),
			"npm_config_offline=true", "npm_config_update_notifier=false", "npm_config_cache="+t.TempDir())
		s := &step{startCmd(t, cmd), h}
		address := s.Out.want("listening on ")
		response, err := http.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != "served\n" {
			t.Fatalf("the server answers %q, %v", text, err)
		}
		g.open(t)
		s.Out.want("tests passed")
		o := s.outcome(4)
		mustLeakWithoutFini(t, wrap, o)
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
		}
		switch {
		case slices.Contains(wrap, finiPath) && err != nil:
			t.Errorf("the port is not free: %v", err)
		case wrap == nil && err == nil:
			t.Error("without fini the port is free, so the case shows nothing")
		}
		return o
	})
}

// A make whose recipes run under fini, and a make under fini, have the jobs that -j says.
func TestMakeJobserver(t *testing.T) {
	t.Parallel()
	gmake := need.Program(t, "make")
	const jobs, targets = 4, 8
	fini := finiPath + " -q --linger=0 --"
	const leak = "setsid sleep 1000 &"
	for _, tt := range []struct {
		name           string
		wrap           []string
		sub, job, leak string
	}{
		{"without fini", nil, "", "", ""},
		{"fini make", strings.Fields(fini), "", "", leak},
		{"fini in front of the makes below", nil, fini, "", leak},
		{"fini in front of the jobs", nil, "", fini, leak},
		{"fini everywhere", strings.Fields(fini), fini, fini, leak},
	} {
		start := func(t *testing.T) (*step, *gate) {
			g := newGate(t)
			return startStep(t, ownGroup, slices.Concat(tt.wrap, []string{gmake, fmt.Sprint("-j", jobs), "-f", "testdata/ci-jobs.mk",
				"SUB=" + tt.sub, "JOB=" + tt.job, "LEAK=" + tt.leak, "GO=" + g.name})...), g
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, g := start(t)
			up, down := 0, 0
			for down < targets {
				line, ok := s.Out.next()
				if !ok {
					t.Fatalf("EOF after %d jobs; stderr: %s", down, s.Err.text())
				}
				switch line {
				case "up":
					up++
				case "down":
					down++
				default:
					t.Errorf("stdout: %q", line)
				}
				if up-down > jobs {
					t.Errorf("%d jobs at once, want %d", up-down, jobs)
				}
				// As many jobs as are allowed must run before the first of them may end.
				if line == "up" && up >= jobs {
					g.open(t)
				}
				if line == "up" && up == targets {
					for range jobs - 1 {
						g.open(t)
					}
				}
			}
			s.Out.rest()
			s.mustEndWithNothing(0)
			if said := s.Err.whole(); said != "" {
				t.Errorf("stderr: %q", said)
			}
		})
	}
}

// An interrupted make ends as it does without fini, and leaves nothing. Without fini too
// it is a race whether make hears first of its own signal, of which it dies, or of its
// jobs', and says 2.
func TestMakeInterrupted(t *testing.T) {
	gmake := need.Program(t, "make")
	t.Parallel()
	run := func(leak string, interrupt func(*step), wrap ...string) (status int) {
		g := newGate(t)
		s := startStep(t, ownGroup, slices.Concat(wrap, []string{gmake, "-j4", "-f", "testdata/ci-jobs.mk",
			"LEAK=" + leak, "GO=" + g.name})...)
		for range 4 {
			s.Out.want("up")
		}
		interrupt(s)
		s.Out.rest()
		status = s.status()
		s.mustEndWithNothing(status)
		return status
	}
	for name, status := range map[string]int{
		"without fini": run("", func(s *step) { s.signalGroup(syscall.SIGINT) }),
		"with fini":    run("setsid sleep 1000 &", func(s *step) { s.signal(syscall.SIGINT) }, finiPath, "--linger=0", "--"),
	} {
		if status != 2 && status != 128+int(syscall.SIGINT) {
			t.Errorf("%s: status %d, want 2 or 130", name, status)
		}
	}
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
				s := startStep(t, nil, bash, "-c", fmt.Sprintf("run() { %s sh -c \"%s $1\"; }\n%s", before, leak, script))
				out := s.Out.rest()
				status := s.status()
				s.mustBeGone() // and not at once: bash does not wait for a process substitution
				return status, out
			}
			wantStatus, want := run("", "")
			status, got := run(finiPath+" -q --linger=0 --", "setsid sleep 1000 &")
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
	fini := []string{finiPath, "--grace=500ms", "--"}
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
		{"timeout --foreground fini", slices.Concat([]string{timeout, "--foreground", "1000"}, fini), obedient, 124, true},
		{"fini timeout", slices.Concat(fini, []string{timeout, "1000"}), obedient, 124, true},
		{"fini timeout -k, killed", slices.Concat(fini, []string{timeout, "-k", "0.1", "1000"}), stubborn, 137, true},
		{"fini timeout fini", slices.Concat(fini, []string{timeout, "1000"}, fini), obedient, 124, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startStep(t, nil, append(tt.argv, "sh", "-c", tt.script)...)
			s.Out.want("ready")
			victim := s.pid()
			if tt.argv[0] == finiPath {
				victim = childrenOf(t, s.worker())[0]
			}
			// timeout(1) may still be on its way out of its fork.
			until(t, "timeout waits", func() bool { return strings.HasPrefix(procStatus(victim, "State"), "S") })
			if err := syscall.Kill(victim, syscall.SIGALRM); err != nil {
				t.Fatal(err)
			}
			s.Out.rest() // to EOF
			if tt.gone {
				s.mustEndWithNothing(tt.status)
			} else {
				s.mustHaveStatus(tt.status)
				s.mustBeGone()
			}
		})
	}
	t.Run("a second that is over", func(t *testing.T) {
		t.Parallel()
		s := startStep(t, nil, slices.Concat([]string{timeout, "1"}, fini, []string{"sh", "-c", obedient})...)
		s.Out.rest()
		s.mustEndWithNothing(124)
	})
}

// Eight at a time, of which each leaves something.
func TestXargs(t *testing.T) {
	t.Parallel()
	need.Program(t, "xargs")
	runs := quickOrFull(24, 48)
	// xargs makes 123 of any status from 1 to 125, so each says its own.
	s := startStep(t, nil, "sh", "-c", fmt.Sprintf(`seq %d | xargs -P8 -I{} sh -c '
		%s -q --linger=0 -- sh -c "setsid sleep 1000 & exit {}"; echo "{} gave $?"; exit 1'`, runs, finiPath))
	got := s.Out.rest()
	s.mustEndWithNothing(123)
	var want []string
	for i := range runs {
		want = append(want, fmt.Sprintf("%d gave %d", i+1, i+1))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// Side by side, each with an escapee, and all told in the same moment to end.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	runs := quickOrFull(80, 200)
	h := newCgroup(t)
	outR, outW := pipe(t)
	goR, goW := pipe(t)
	out := newLines(t, outR)
	var all []*exec.Cmd
	for i := range runs {
		argv := h.wrap(finiPath, "-q", "--linger=0", "--", "sh", "-c",
			fmt.Sprintf("setsid sh -c 'echo ready; exec sleep 1000' & read go; exit %d", i))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = goR, outW, outW
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		t.Cleanup(func() { _ = cmd.Process.Kill() })
	}
	_, _ = goR.Close(), outW.Close()
	for range runs {
		if line, _ := out.next(); line != "ready" {
			t.Errorf("got %q", line)
		}
	}
	_ = goW.Close()
	for i, cmd := range all {
		l := &life{t: t, cmd: cmd, Err: out}
		if got := l.status(); got != i {
			t.Errorf("status %d, want %d", got, i)
		}
	}
	if names := h.names(); len(names) > 0 {
		t.Errorf("all have ended, and alive are %q", names)
	}
	if more := out.rest(); len(more) > 0 {
		t.Errorf("got %q", more)
	}
}
