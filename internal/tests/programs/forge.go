package programs

import (
	"encoding/binary"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runForge sends a signal to PID 1 and pretends to be outside of its PID namespace. See rt_sigqueueinfo(2).
func runForge(args []string) int {
	sig, err := strconv.Atoi(args[0])
	must(err)
	var info [128]byte // siginfo: si_signo, si_errno, si_code, and si_pid, which is 0
	const siQueue = 0xffffffff
	binary.NativeEndian.PutUint32(info[0:], uint32(sig))
	binary.NativeEndian.PutUint32(info[8:], siQueue)
	if _, _, errno := syscall.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(sig), uintptr(unsafe.Pointer(&info))); errno != 0 {
		must(errno)
	}
	return 0
}
