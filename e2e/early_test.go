package e2e

import (
	"os/exec"
	"syscall"
	"testing"
)

// The inner fini of a pair that is stopped before it catches signals does not outlive the outer one,
// which is killed: nobody would continue it. Its new parent is of its session, so that the kernel does not.
func TestInnerIsStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	for range 500 {
		argv := mode("adopter", finiPath, "-q", "--", "/bin/sh", "-c", "exit 6")
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		l := startCmd(t, cmd)
		child := func(of int) (pid int) {
			poll(patience, func() bool {
				if children := childrenOf(t, of); len(children) > 0 {
					pid = children[0]
				}
				return pid != 0 || statOf(of).gone()
			})
			return pid
		}
		outer, inner := child(l.pid()), 0
		if outer != 0 {
			inner = child(outer)
		}
		if inner == 0 {
			l.status()
			continue
		}
		_ = syscall.Kill(inner, syscall.SIGSTOP)
		until(t, "it is stopped, or gone", func() bool { return isStopped(inner) || statOf(inner).gone() })
		own := len(sockets(inner)) == 1 // before that it is a copy of the outer one
		early := isStopped(inner) && own && !maskHas(procStatus(inner, "SigCgt"), syscall.SIGUSR1)
		_ = syscall.Kill(outer, syscall.SIGKILL)
		if early {
			l.status() // which the adopter has when it has no child
			return
		}
		if isStopped(inner) {
			_ = syscall.Kill(inner, syscall.SIGCONT)
		}
		l.status()
	}
	t.Error("the inner fini was never stopped early enough")
}
