package kill9

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// The inner fini of a pair that is stopped before it catches signals does not outlive the outer one,
// which is killed: nobody would continue it. Its new parent is of its session, so that the kernel does not.
func TestInnerIsStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	early := false
	for range rig.Rounds(t, 1, "the inner fini was stopped before it caught signals", func() bool { return early }) {
		cmd := rig.CommandOf(rig.Mode("adopter", rig.Fini, "-q", "--", "/bin/sh", "-c", "exit 6"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		l := rig.StartCmd(t, cmd)
		// Both are 0 where all is over by then.
		b := &rig.BoundLife{Life: l}
		outer, inner := b.ChildOf(l.PID()), 0
		if outer != 0 {
			inner = b.ChildOf(outer)
		}
		if inner == 0 { // another one is drawn
			if said := l.Out.Want("launcher "); !strings.HasSuffix(said, " 6") {
				t.Errorf("of fini's end the adopter says %q, want status 6", said)
			}
			l.MustEnd(0)
			continue
		}
		_ = syscall.Kill(inner, syscall.SIGSTOP)
		rig.Until(t, "it is stopped, or gone", func() bool { return procfs.IsStopped(inner) || procfs.StatOf(inner).Gone() })
		own := len(sockets(inner)) == 1 // before that it is a copy of the outer one
		early = procfs.IsStopped(inner) && own && !procfs.MaskHas(procfs.Status(inner, "SigCgt"), syscall.SIGUSR1)
		_ = syscall.Kill(outer, syscall.SIGKILL)
		if !early {
			_ = syscall.Kill(inner, syscall.SIGCONT)
		}
		said := l.Out.Rest() // to the end of all
		killed, over := fmt.Sprintf("launcher %d 137", outer), fmt.Sprintf("launcher %d 6", outer)
		switch {
		case early:
			rig.MustRecord(t, "the adopter says", said, killed, fmt.Sprintf("adopted %d 137", inner))
		case !slices.Contains(said, killed) && !slices.Contains(said, over):
			t.Errorf("of fini's end the adopter says %q, want %q or %q", said, killed, over)
		}
		l.MustEnd(0)
	}
}

// An inner fini that is suspended while the command runs is continued when the outer one is killed, also where the kernel
// does not do that for an orphaned process group: its new parent is of its session. And it says nothing of the signal.
func TestSuspendedInnerOutlivesTheOuter(t *testing.T) {
	t.Parallel()
	cmd := rig.CommandOf(rig.Mode("adopter", rig.Fini, "--no-foreground", "--linger=0", "--", "/bin/sh", "-c", "echo ready $$; exec sleep 1000"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l := rig.StartCmd(t, cmd)
	l.Out.WantPID("ready ")
	b := &rig.BoundLife{Life: l}
	outer := b.ChildOf(l.PID())
	inner := b.ChildOf(outer)
	_ = syscall.Kill(inner, syscall.SIGSTOP)
	rig.Until(t, "the inner fini is suspended", func() bool { return procfs.IsStopped(inner) })
	_ = syscall.Kill(outer, syscall.SIGKILL)
	l.MustEnd(0) // with its last child
	for _, said := range l.Err.Rest() {
		if strings.Contains(said, "dropped") {
			t.Error(said)
		}
	}
}
