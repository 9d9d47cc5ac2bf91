package kill9

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

func init() { injectExit = injectExitAMD64 }

// injectExitAMD64 stops a process in a system call and lets it make another one, exit_group.
func injectExitAMD64(pid, code int) error {
	runtime.LockOSThread() // it is a thread that traces
	defer runtime.UnlockOSThread()
	seized, interrupted := unix.PtraceSeize(pid), unix.PtraceInterrupt(pid)
	_, stopped := unix.Wait4(pid, nil, unix.WALL, nil)
	var regs unix.PtraceRegs
	got := unix.PtraceGetRegs(pid, &regs)
	const length = 2 // of the instruction syscall, which is behind it
	regs.Rip -= length
	regs.Rax, regs.Rdi = unix.SYS_EXIT_GROUP, uint64(code)
	regs.Orig_rax = ^uint64(0) // no call is to be begun again
	return errors.Join(seized, interrupted, stopped, got, unix.PtraceSetRegs(pid, &regs), unix.PtraceDetach(pid))
}
