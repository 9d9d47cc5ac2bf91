package kill9

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func init() { injectExit = injectExitAMD64 }

// injectExitAMD64 stops a process in a system call and lets it make another one, exit_group.
func injectExitAMD64(pid, code int) error {
	runtime.LockOSThread() // it is a thread that traces
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		return err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return err
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	const length = 2 // of the instruction syscall, which is behind it
	regs.Rip -= length
	regs.Rax, regs.Rdi = unix.SYS_EXIT_GROUP, uint64(code)
	regs.Orig_rax = ^uint64(0) // no call is to be begun again
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return err
	}
	return unix.PtraceDetach(pid)
}
