package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// A Parent is what this process knows about the process that started it.
type Parent struct {
	Pid     int           // 0 if it is outside of the PID namespace
	Session int           // negative if unknown
	FD      int           // a pidfd, or -1 if there is none
	Gone    bool          // it had exited before fini could look
	Kept    int32         // the parent death signal that it has set, or 0: see TakeSlot
	Err     syscall.Errno // why TakeSlot failed
}

// Find looks up the parent process.
//
//go:nosplit
func (p *Parent) Find() {
	p.Pid, p.FD = calls.Call(unix.SYS_GETPPID, 0, 0, 0, 0), -1
	if p.Pid != 0 {
		p.Session = calls.Call(unix.SYS_GETSID, uintptr(p.Pid), 0, 0, 0)
		p.FD = max(calls.Call(unix.SYS_PIDFD_OPEN, uintptr(p.Pid), 0, 0, 0), -1)
	}
	p.check()
}

// TakeSlot makes the kernel send sig to this process when its parent exits. The kernel also sends it when only the
// thread that forked this process exits. Call Died when sig arrives. TakeSlot is for kernels without pidfds, and for a
// parent outside of the PID namespace. See PR_SET_PDEATHSIG in prctl(2).
//
// There is only one such signal, and the parent process may have set another. TakeSlot doesn't replace SIGKILL, because
// fini can't do what the kernel then does. If sig replaces any other signal, the caller must act on both.
//
//go:nosplit
func (p *Parent) TakeSlot(sig uintptr) {
	calls.Call(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&p.Kept)), 0, 0)
	if p.Kept != int32(unix.SIGKILL) {
		p.Err = syscall.Errno(-calls.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, sig, 0, 0))
	}
	p.check()
}

// LeaveSlot undoes TakeSlot.
//
//go:nosplit
func (p *Parent) LeaveSlot() {
	calls.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(p.Kept), 0, 0)
}

// check checks whether the parent process has exited in the meantime, because the pidfd may then refer to another
// process.
//
//go:nosplit
func (p *Parent) check() {
	if p.Pid != 0 && p.Died() {
		calls.Close(p.FD)
		p.FD, p.Gone = -1, true
	}
}

// MayTell reports whether a signal may be the one that TakeSlot asks for. fini can't look up a parent process outside
// of the PID namespace, but the pid of such a sender is 0 here.
//
//go:nosplit
func (p *Parent) MayTell(sig uint32, sender int) bool {
	return sig == ParentSignal && p.FD < 0 && (p.Pid != 0 || sender == 0)
}

// Died reports whether the parent process has exited, and not just one of its threads. If the parent is outside of the
// PID namespace, Died can't tell and returns true.
//
//go:nosplit
func (p *Parent) Died() bool {
	return p.Pid == 0 || calls.Call(unix.SYS_GETPPID, 0, 0, 0, 0) != p.Pid
}
