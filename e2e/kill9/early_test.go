package kill9

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
)

// The inner fini of a pair that is stopped before it catches signals does not outlive the outer one,
// which is killed: nobody would continue it. Its new parent is of its session, so that the kernel does not.
func TestInnerIsStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	for range 500 {
		cmd := rig.CommandOf(rig.Mode("adopter", rig.Fini, "-q", "--", "/bin/sh", "-c", "exit 6"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		l := rig.StartCmd(t, cmd)
		// Both are 0 where all is over by then.
		b := &rig.BoundLife{Life: l}
		outer, inner := b.ChildOf(l.PID()), 0
		if outer != 0 {
			inner = b.ChildOf(outer)
		}
		if inner == 0 {
			l.Status()
			continue
		}
		_ = syscall.Kill(inner, syscall.SIGSTOP)
		rig.Until(t, "it is stopped, or gone", func() bool { return shells.IsStopped(inner) || rig.StatOf(inner).Gone() })
		own := len(sockets(inner)) == 1 // before that it is a copy of the outer one
		early := shells.IsStopped(inner) && own && !rig.MaskHas(rig.ProcStatus(inner, "SigCgt"), syscall.SIGUSR1)
		_ = syscall.Kill(outer, syscall.SIGKILL)
		if early {
			l.Status() // which the adopter has when it has no child
			return
		}
		if shells.IsStopped(inner) {
			_ = syscall.Kill(inner, syscall.SIGCONT)
		}
		l.Status()
	}
	t.Error("the inner fini was never stopped early enough")
}
