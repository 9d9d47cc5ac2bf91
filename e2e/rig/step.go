package rig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A step is the process that a runner starts and waits for, in a cgroup with all below it.
type Step struct {
	*Life
	Cgroup *Cgroup
}

// StartStep runs argv as a runner does: its streams are pipes.
func StartStep(t *testing.T, attr *syscall.SysProcAttr, argv ...string) *Step {
	t.Helper()
	h := NewCgroup(t)
	cmd := CommandOf(h.Wrap(argv...))
	cmd.SysProcAttr = attr
	return &Step{StartCmd(t, cmd), h}
}

// Outcome is watched from now on, and the step's own status is asserted, and that without fini the step leaves something,
// for otherwise it shows nothing. Only what has no fini is given up after the window.
func (s *Step) Outcome(wrap []string, status int) Outcome {
	s.T.Helper()
	limit := Window
	if slices.Contains(wrap, Fini) {
		limit = Patience
	}
	o := s.Cgroup.OutcomeWithin(limit, s.Out)
	s.MustHaveStatus(status)
	if wrap == nil && (o.Survivors == 0 || !o.Never) {
		s.T.Errorf("without fini: %s; so the case shows nothing", o)
	}
	return o
}

// MustBeGone waits until nothing is alive of all that the step has started. Where the
// fini that its launcher knows was killed, nobody else waits for that.
func (s *Step) MustBeGone() {
	s.T.Helper()
	Until(s.T, "the step's cgroup is empty and its witness has hung up", func() bool {
		return len(s.Cgroup.Alive()) == 0 && HungUp(s.Witness)
	})
}

// MustEndWithNothing asserts the status, and that nothing is alive from that moment on.
func (s *Step) MustEndWithNothing(status int) {
	s.T.Helper()
	s.MustHaveStatus(status)
	if names := s.Cgroup.Names(); len(names) > 0 || HeldOpen(s.Witness) {
		s.T.Errorf("the step is over and alive are %q; stderr: %s", names, s.Err.Text())
	}
}

func ScriptFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "step.sh")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// A gate is a FIFO at which a script waits, where its stdin is the runner's affair.
type Gate struct {
	Name string
	file *os.File
}

func NewGate(t *testing.T) *Gate {
	t.Helper()
	g := &Gate{Name: filepath.Join(t.TempDir(), "gate")}
	err := unix.Mkfifo(g.Name, 0o600)
	if err == nil {
		g.file, err = os.OpenFile(g.Name, os.O_RDWR, 0) // which waits for no reader
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.file.Close() })
	return g
}

// Open lets one reader pass: a line of one byte can't be shared by two.
func (g *Gate) Open(t *testing.T) {
	t.Helper()
	if _, err := g.file.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}

// Ready waits for the tests and both of their servers. A server writes its line and the
// line's end one after the other, so that what others say can come between.
func (s *Step) Ready() {
	s.T.Helper()
	said := []string{"tests ready", "Serving HTTP", "Serving HTTP"}
	var text string
	for range said {
		line, ok := s.Out.Next()
		if !ok {
			s.T.Fatalf("EOF before all is ready; stdout: %s; stderr: %s", s.Out.Text(), s.Err.Text())
		}
		text += line
	}
	for _, word := range said {
		before, after, ok := strings.Cut(text, word)
		if !ok {
			s.T.Fatalf("no %q in the first %d lines of stdout: %s", word, len(said), s.Out.Text())
		}
		text = before + after
	}
}

// GithubCancel is what the GitHub runner does on a cancel: to the one process that it
// knows it sends SIGINT, after 7.5 s SIGTERM and after 2.5 s more SIGKILL. Only the order
// matters to what is tested here, so the times are a tenth of that.
func (s *Step) GithubCancel() {
	s.T.Helper()
	const scale = 10
	// A command may be ready before its shell waits for it, and then SIGINT ends the shell at once.
	Until(s.T, "every shell of the step waits", func() bool {
		return !slices.ContainsFunc(s.Cgroup.Alive(), func(pid int) bool {
			return ProcStatus(pid, "Name") == "bash" && !strings.HasPrefix(ProcStatus(pid, "State"), "S")
		})
	})
	ended := make(chan struct{})
	go func() { s.Wait(); close(ended) }()
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{
		{syscall.SIGINT, 7500 * time.Millisecond / scale},
		{syscall.SIGTERM, 2500 * time.Millisecond / scale},
		{syscall.SIGKILL, Patience},
	} {
		// An error says that it has ended.
		_ = s.Cmd.Process.Signal(step.sig)
		select {
		case <-ended:
			return
		case <-time.After(step.wait):
		}
	}
}

// Gitlab is the script that the shell executor gives to bash: the job's own is the last
// part of a pipeline whose first is `:`, so that the far end of stdin is closed at once.
func Gitlab(job string) []string {
	return []string{"bash", "-c", `trap exit 1 TERM; set -o pipefail; set -o errexit; : | eval "$1"; exit 0`, "bash", job}
}

// GitLab's runner starts the script in a process group of its own, and sends SIGTERM to
// that group.
var OwnGroup = &syscall.SysProcAttr{Setpgid: true}

func (s *Step) SignalGroup(sig syscall.Signal) {
	s.T.Helper()
	if err := syscall.Kill(-s.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.T.Fatalf("cannot send %v to the group %d: %v", sig, s.PID(), err)
	}
}
