// Package runners starts and cancels a step of a job as the runners of GitHub and GitLab do.
package runners

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// A step is the process that a runner starts and waits for, in a cgroup with all below it.
type Step struct {
	*rig.Life
	Cgroup *rig.Cgroup
}

// StartStep runs argv as a runner does: its streams are pipes.
func StartStep(t *testing.T, attr *syscall.SysProcAttr, argv ...string) *Step {
	t.Helper()
	h := rig.NewCgroup(t)
	cmd := rig.CommandOf(h.Wrap(argv...))
	cmd.SysProcAttr = attr
	return &Step{rig.StartCmd(t, cmd), h}
}

// MustBeGone waits until nothing is alive of all that the step has started. Where the
// fini that its launcher knows was killed, nobody else waits for that.
func (s *Step) MustBeGone() {
	s.T.Helper()
	rig.Until(s.T, "the step's cgroup is empty and its witness has hung up", func() bool {
		return len(s.Cgroup.Alive()) == 0 && rig.HungUp(s.Witness)
	})
}

func ScriptFile(t *testing.T, text string) string {
	t.Helper()
	return rig.Put(t, filepath.Join(t.TempDir(), "step.sh"), text, 0o644)
}

// GithubCancel is what the GitHub runner does on a cancel: to the one process that it
// knows it sends SIGINT, after 7.5 s SIGTERM and after 2.5 s more SIGKILL. Only the order
// matters to what is tested here, so the times are a tenth of that.
func (s *Step) GithubCancel() {
	s.T.Helper()
	const scale = 10
	// A command may be ready before its shell waits for it, and then SIGINT ends the shell at once.
	rig.Until(s.T, "every shell of the step waits", func() bool {
		return !slices.ContainsFunc(s.Cgroup.Alive(), func(pid int) bool {
			return procfs.Status(pid, "Name") == "bash" && !strings.HasPrefix(procfs.Status(pid, "State"), "S")
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
		{syscall.SIGKILL, rig.Patience},
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

// GithubWaits is how long GitHub's runner waits for the end of a step's output once the step's process has exited. Then it goes
// on with the next step. After the last one it kills what carries its tracking variable (ProcessInvoker.cs in actions/runner).
const GithubWaits = 5 * time.Second

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

// A gate is a FIFO at which a script waits, where its stdin is the runner's affair.
type Gate struct {
	Name string
	file *os.File
}

func NewGate(t *testing.T) *Gate {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gate")
	rig.NoError(t, unix.Mkfifo(name, 0o600))
	file, err := os.OpenFile(name, os.O_RDWR, 0) // which waits for no reader
	rig.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return &Gate{name, file}
}

// Open lets one reader pass: a line of one byte can't be shared by two.
func (g *Gate) Open(t *testing.T) {
	t.Helper()
	_, err := g.file.WriteString("\n")
	rig.NoError(t, err)
}

// Cleaner is a process that cleans up when it gets SIGTERM, for longer than --linger, with a new process for each
// step; "$?" is 143 for a step that got SIGTERM itself. It is in the group of the shell that runs this text.
const Cleaner = `
	trap : INT
	trap 'for i in 1 2 3 4; do sleep 0.3 && echo "delete $i ok" || echo "delete $i FAILED $?"; done; exit' TERM
	echo ready; while :; do sleep 0.05 || :; done`

// MustDelete asserts that a cleaner was spared, and that beside it only this was said.
func MustDelete(l *rig.Life, beside ...string) {
	l.T.Helper()
	got := l.Out.Rest()
	slices.Sort(got)
	rig.MustRecord(l.T, "the cleaner says", got, append(beside, "delete 1 ok", "delete 2 ok", "delete 3 ok", "delete 4 ok")...)
}
