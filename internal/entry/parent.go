package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// A Parent holds what this process knows about the process that started it.
type Parent struct {
	Pid     int           // 0 if it is outside of the PID namespace
	Session int           // negative if unknown
	FD      int           // a pidfd, -1 if there is none
	Gone    bool          // it exited before fini could look
	Kept    int32         // the parent death signal that it has set, 0 for none: see TakeSlot
	Err     syscall.Errno // why TakeSlot failed
}

// Find records the facts about the parent process.
//
//go:nosplit
func (p *Parent) Find() {
	p.Pid, p.FD = proc.Call(unix.SYS_GETPPID, 0, 0, 0, 0), -1
	if p.Pid != 0 {
		p.Session = proc.Call(unix.SYS_GETSID, uintptr(p.Pid), 0, 0, 0)
		p.FD = max(proc.Call(unix.SYS_PIDFD_OPEN, uintptr(p.Pid), 0, 0, 0), -1)
	}
	p.check()
}

// TakeSlot makes the kernel send sig to this process when its parent process, or only the parent's thread that forked,
// exits. It is for a kernel without pidfds, and for a parent process outside the PID namespace. Call Died when the
// signal comes. See PR_SET_PDEATHSIG in prctl(2).
//
// A process has one such signal, and the process that started this one may have set another. SIGKILL stays set, because the
// kernel does then what no fini can do for itself. sig comes instead of any other kept signal, and the caller must act on both.
//
//go:nosplit
func (p *Parent) TakeSlot(sig uintptr) {
	proc.Call(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&p.Kept)), 0, 0)
	if p.Kept != int32(unix.SIGKILL) {
		p.Err = syscall.Errno(-proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, sig, 0, 0))
	}
	p.check()
}

// LeaveSlot undoes TakeSlot.
//
//go:nosplit
func (p *Parent) LeaveSlot() {
	proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(p.Kept), 0, 0)
}

// check looks whether the parent process has exited meanwhile: then the pidfd may belong to another process.
//
//go:nosplit
func (p *Parent) check() {
	if p.Pid != 0 && p.Died() {
		proc.Close(p.FD)
		p.FD, p.Gone = -1, true
	}
}

// Died reports whether the parent process, and not only a thread of it, has exited. fini can't ask for a parent process
// outside the PID namespace.
//
//go:nosplit
func (p *Parent) Died() bool {
	return p.Pid == 0 || proc.Call(unix.SYS_GETPPID, 0, 0, 0, 0) != p.Pid
}
