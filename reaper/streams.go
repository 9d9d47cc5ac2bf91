package reaper

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// CloseInherited closes this process's copies of the descriptors that the command inherited. So a reader gets EOF, and
// a writer EPIPE, as soon as without fini. CloseInherited closes standard input (unless keepStdin), standard output,
// and each descriptor from 3 on that is not close-on-exec. Standard error stays.
//
// Descriptors 0 and 1 stay in place as O_PATH references, which are neither a
// reader nor a writer of a pipe: a process of the container that opens
// /proc/1/fd/1 still reaches the container's standard output. See open(2).
func CloseInherited(keepStdin bool) {
	if !keepStdin {
		release(0)
	}
	release(1)
	f := proc.In(unix.AT_FDCWD)
	if f.List("/proc/self/fd", func(fd int) (more bool) { closeUnlessOwn(fd); return true }) == nil {
		return
	}
	// Without a list, any number may be in use: the Go runtime has raised the soft limit to the hard limit, which may be
	// a thousand million.
	for fd := 3; fd < 1<<16; fd++ {
		closeUnlessOwn(fd)
	}
}

// closeUnlessOwn closes fd from 3 on, unless it is close-on-exec, as each descriptor is that fini has opened itself.
func closeUnlessOwn(fd int) {
	if fd < 3 {
		return
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
		_ = unix.Close(fd)
	}
}

// release turns fd into a reference that doesn't keep a pipe open. Without /proc, release closes fd.
func release(fd int) {
	path, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	_ = unix.Dup3(path, fd, unix.O_CLOEXEC)
	_ = unix.Close(path)
}
