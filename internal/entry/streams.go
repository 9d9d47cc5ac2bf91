package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// listed is the buffer for getdents64(2), which only one thread uses.
var listed [1024]byte

// CloseInherited closes this process's copies of the descriptors that the command has inherited, so that readers see
// EOF and writers see EPIPE no later than without fini. It closes standard input (unless keepStdin), standard output,
// and all descriptors from 3 that are not close-on-exec. Standard error remains open.
//
// Descriptors 0 and 1 become O_PATH references, which don't count as a reader or writer of a pipe. A process in the
// container can still open /proc/1/fd/1 to write to the container's standard output. See open(2).
//
//go:nosplit
func CloseInherited(keepStdin bool) {
	if !keepStdin {
		release(0, "/proc/self/fd/0\x00")
	}
	release(1, "/proc/self/fd/1\x00")
	dir, buf := calls.Open("/proc/self/fd\x00", unix.O_DIRECTORY), uintptr(unsafe.Pointer(&listed))
	for n := 1; n > 0; {
		n = calls.Call(unix.SYS_GETDENTS64, uintptr(dir), buf, unsafe.Sizeof(listed), 0)
		for at := buf; n > 0 && at < buf+uintptr(n); {
			fd, _ := calls.Number(at + unsafe.Offsetof(unix.Dirent{}.Name)) // 0 for "." and ".."
			closeUnlessOwn(fd)
			at += uintptr(*(*uint16)(unsafe.Add(nil, at+unsafe.Offsetof(unix.Dirent{}.Reclen))))
		}
	}
	calls.Close(dir)
	// Without a list, try a limited number of descriptors, because the Go runtime has raised the soft limit to the hard
	// limit, which may be a billion.
	for fd := 3; dir < 0 && fd < 1<<16; fd++ {
		closeUnlessOwn(fd)
	}
}

// closeUnlessOwn closes a descriptor that the command inherits. It keeps 0 to 2, and fini's own, which are
// close-on-exec.
//
//go:nosplit
func closeUnlessOwn(fd int) {
	if fd >= 3 && calls.Call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0, 0) == 0 {
		calls.Close(fd)
	}
}

// release replaces a standard stream with a reference that doesn't keep a pipe open. If there is no /proc or no free
// descriptor, it opens the root directory instead, which receives the lowest free number.
//
//go:nosplit
func release(fd int, link string) {
	path := calls.Open(link, unix.O_PATH)
	if path < 0 {
		calls.Close(fd)
		calls.Open("/\x00", unix.O_PATH)
		return
	}
	calls.Call(unix.SYS_DUP3, uintptr(path), uintptr(fd), unix.O_CLOEXEC, 0)
	calls.Close(path)
}
