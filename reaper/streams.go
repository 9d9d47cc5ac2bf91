package reaper

import (
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes this process's copies of what the command inherited, so that a
// reader gets EOF, and a writer EPIPE, when the command alone would have given
// it: standard input (unless keepStdin), standard output, and each descriptor
// from 3 on that is not close-on-exec. Standard error stays.
//
// Descriptors 0 and 1 stay in place as O_PATH references, which are neither a
// reader nor a writer of a pipe: a process of the container that opens
// /proc/1/fd/1 still reaches the container's standard output. See open(2).
func CloseInherited(keepStdin bool) {
	if !keepStdin {
		release(0)
	}
	release(1)
	fd := 3
	// This process's own descriptors were each the lowest free one when they were opened, so
	// there is none behind more free ones than it has ever closed.
	for free := 0; free < ownMost; fd++ {
		flags, _, errno := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0)
		switch {
		case errno != 0:
			free++
		case flags&unix.FD_CLOEXEC == 0:
			_ = unix.Close(fd)
		}
	}
	if unix.CloseRange(uint(fd), math.MaxUint32, 0) == nil {
		return
	}
	// Before Linux 5.9, or under a filter.
	for ; fd < 1<<16; fd++ {
		_ = unix.Close(fd)
	}
}

// CloseStderr does the same with standard error, and with standard input if that was kept: this
// process has nothing more to say.
func CloseStderr() {
	release(0)
	release(2)
}

// ownMost is more than the descriptors that a fini opens before it lets go.
const ownMost = 32

// release turns fd into a reference that keeps no pipe open.
func release(fd int) {
	path, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	_ = unix.Dup3(path, fd, unix.O_CLOEXEC)
	_ = unix.Close(path)
}

// CloseOnExec makes descriptors close-on-exec, so that the command does not inherit them.
func CloseOnExec(fds ...int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}
