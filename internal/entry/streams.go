package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// listed is what getdents64(2) has written, of which one thread is the reader.
var listed [1024]byte

// CloseInherited closes this process's copies of the descriptors that the command inherited. So a reader gets EOF, and
// a writer EPIPE, as soon as without fini. CloseInherited closes standard input (unless keepStdin), standard output,
// and each descriptor from 3 on that is not close-on-exec. Standard error stays.
//
// Descriptors 0 and 1 stay in place as O_PATH references, which are neither a
// reader nor a writer of a pipe: a process of the container that opens
// /proc/1/fd/1 still reaches the container's standard output. See open(2).
//
//go:nosplit
func CloseInherited(keepStdin bool) {
	if !keepStdin {
		release(0, "/proc/self/fd/0\x00")
	}
	release(1, "/proc/self/fd/1\x00")
	dir, buf := proc.Open("/proc/self/fd\x00", unix.O_DIRECTORY), uintptr(unsafe.Pointer(&listed))
	for n := 1; n > 0; {
		n = proc.Call(unix.SYS_GETDENTS64, uintptr(dir), buf, unsafe.Sizeof(listed), 0)
		for at := buf; n > 0 && at < buf+uintptr(n); {
			fd, _ := proc.Number(at + unsafe.Offsetof(unix.Dirent{}.Name)) // 0 for "." and ".."
			closeUnlessOwn(fd)
			at += uintptr(*(*uint16)(unsafe.Add(nil, at+unsafe.Offsetof(unix.Dirent{}.Reclen))))
		}
	}
	proc.Close(dir)
	// Without a list, any number may be in use: the Go runtime has raised the soft limit to the hard limit, which may be
	// a thousand million.
	for fd := 3; dir < 0 && fd < 1<<16; fd++ {
		closeUnlessOwn(fd)
	}
}

// closeUnlessOwn closes fd from 3 on, unless it is close-on-exec, as each descriptor is that fini has opened itself.
//
//go:nosplit
func closeUnlessOwn(fd int) {
	if fd >= 3 && proc.Call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0, 0) == 0 {
		proc.Close(fd)
	}
}

// release turns a standard stream into a reference that doesn't keep a pipe open. Without /proc, or without a free
// descriptor, it is a reference to the root directory, which gets the lowest free number.
//
//go:nosplit
func release(fd int, link string) {
	path := proc.Open(link, unix.O_PATH)
	if path < 0 {
		proc.Close(fd)
		proc.Open("/\x00", unix.O_PATH)
		return
	}
	proc.Call(unix.SYS_DUP3, uintptr(path), uintptr(fd), unix.O_CLOEXEC, 0)
	proc.Close(path)
}
