package rig

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// A bound life is one whose launcher is a process of its own, and can be killed.
type BoundLife struct {
	*Life
	Launcher int
	Outer    int // 0 until its line was read
}

// Launch starts a launcher in a session of its own, which starts fini. Were it in the session
// of the process that inherits fini, a launcher that was gone before fini's first instruction
// would go unnoticed, as the README says.
func Launch(t testing.TB, p Place, args ...string) *BoundLife {
	t.Helper()
	return LaunchBy(t, nil, p, args...)
}

// LaunchBy has words before those of fini, which execute it.
func LaunchBy(t testing.TB, before []string, p Place, args ...string) *BoundLife {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", slices.Concat([]string{"@launcher"}, before, p.Command(args...).Args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
	l := &BoundLife{Life: StartCmd(t, cmd)}
	l.Launcher = l.PID()
	l.Outer = l.Out.Launched()
	return l
}

// MustVanish asserts that everything ends.
func (l *BoundLife) MustVanish() {
	l.T.Helper()
	if !Await(Enough, func() bool { return HungUp(l.Witness) }) {
		l.T.Fatalf("the tree has not ended; stderr: %s", l.Err.Text())
	}
}

// Inner finds the inner fini, as soon as there is one.
func (l *BoundLife) Inner() int { return l.ChildOf(l.Outer) }

// Main finds the main child. The first child of the outer fini may leave all to another one.
func (l *BoundLife) Main() (pid int) {
	Until(l.T, "the main child", func() bool {
		for _, inner := range procfs.ChildrenOf(l.T, l.Outer) {
			for _, pid = range procfs.ChildrenOf(l.T, inner) {
				return true
			}
		}
		return HungUp(l.Witness)
	})
	return pid
}

// ChildOf is 0 where all is over before there is one.
func (l *BoundLife) ChildOf(pid int) int {
	var children []int
	Until(l.T, fmt.Sprintf("a child of %d", pid), func() bool {
		children = procfs.ChildrenOf(l.T, pid)
		return len(children) > 0 || HungUp(l.Witness)
	})
	if len(children) == 0 {
		return 0
	}
	return children[0]
}

// OutOfTime starts a life with a timeout that runs out after the life has said "ready": with a longer one
// if it did before that.
func OutOfTime(t testing.TB, start func(t testing.TB, timeout string) *Life) (l *Life) {
	t.Helper()
	for timeout := time.Second; timeout < EnoughNow(); timeout *= 4 {
		l = start(t, "--timeout="+timeout.String())
		if line, _ := l.Out.Next(); strings.HasPrefix(line, "ready") {
			return l
		}
		_ = l.Status()
	}
	t.Fatalf("no time is long enough; stderr: %s", l.Err.Text())
	return nil
}
