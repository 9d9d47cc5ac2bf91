package programs

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runAutoreap forks a child that the kernel will reap itself, writes "forked", and exits. The child exits when its
// stdin ends.
func runAutoreap([]string) int {
	args := [8]uint64{0: 1 << 34} // struct clone_args; CLONE_AUTOREAP, see clone3(2)
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		fmt.Println("kernel:", errno)
		return 1
	}
	if pid == 0 {
		var b [1]byte
		for {
			n, _, errno := syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
			if errno == 0 && n == 0 {
				_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
	}
	fmt.Println("forked")
	return 5
}
