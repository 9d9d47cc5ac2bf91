package signals

import (
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SayLine writes one line to standard error and never waits for a reader: a line that can't be
// written at once is lost. It reports whether it was written.
//
// A reader that is gone raises SIGPIPE in the writer. That one is taken back, for nobody
// sent it and it must not reach the command. A terminal under `stty tostop` would stop a
// writer in the background; it lets one through that blocks SIGTTOU. See pipe(7), tty(4).
func SayLine(line []byte) bool {
	return nil == Blocking(func() error {
		n, err := writeNow(2, line)
		if err == nil && n < len(line) {
			err = unix.EAGAIN
		}
		if err == unix.EPIPE {
			takeBack(unix.SIGPIPE)
		}
		return err
	}, unix.SIGTTOU, unix.SIGPIPE)
}

// Blocking calls do on a thread that blocks signals meanwhile, of the first 31.
func Blocking(do func() error, sigs ...unix.Signal) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	block, before := setOf(sigs...), unix.Sigset_t{}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return do()
}

// takeBack consumes a signal that is blocked and pending for this thread. See
// sigtimedwait(2).
func takeBack(sig unix.Signal) {
	set, zero := setOf(sig), [16]byte{} // a timeout of zero in either layout
	_, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)),
		0, uintptr(unsafe.Pointer(&zero[0])), 8, 0, 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		// A filter refuses that. Ignoring a pending signal discards it.
		var caught sigaction
		setAction(sig, &sigaction{sigIgn}, &caught)
		setAction(sig, &caught, nil)
	}
}

// setOf is a set of some of the first 31 signals.
func setOf(sigs ...unix.Signal) (set unix.Sigset_t) {
	for _, sig := range sigs {
		set.Val[0] |= 1 << (sig - 1)
	}
	return set
}

// writeNow writes without waiting, and without O_NONBLOCK on the file description, which
// the command shares.
func writeNow(fd int, line []byte) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return unix.Write(fd, line)
	case unix.S_IFIFO, unix.S_IFSOCK:
		if n, can, err := WriteAtOnce(fd, line); can {
			return n, err
		}
	default:
		// A terminal says that it has room when it has too little for a line. Opened
		// again it has a file description of its own.
		own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer func() { _ = unix.Close(own) }()
			return unix.Write(own, line)
		}
	}
	// What is left is to ask first. Another writer may come between.
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 || fds[0].Revents&unix.POLLOUT == 0 {
		return 0, unix.EAGAIN
	}
	return unix.Write(fd, line)
}

// WriteAtOnce writes to a pipe or a socket what that takes without waiting, also if the file
// description, which others share, is in blocking mode. can is false if there is no such write
// here: nothing was written then. See RWF_NOWAIT in pwritev2(2); pipes have it since Linux 6.4.
func WriteAtOnce(fd int, text []byte) (n int, can bool, err error) {
	n, err = unix.Pwritev2(fd, [][]byte{text}, -1, unix.RWF_NOWAIT)
	if !tried(err) {
		n, err = moveAtOnce(fd, text)
	}
	return n, tried(err), err
}

// tried reports whether a write has come so far that the reader decided what became of it.
func tried(err error) bool { return err == nil || err == unix.EAGAIN || err == unix.EPIPE }

// moveAtOnce writes to a pipe by way of another one: splice(2) moves from pipe to pipe without waiting on
// every Linux. What it does not move is lost with the other one.
func moveAtOnce(fd int, text []byte) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return 0, unix.EOPNOTSUPP
	}
	var way [2]int
	if err := unix.Pipe2(way[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, err
	}
	defer func() { _, _ = unix.Close(way[0]), unix.Close(way[1]) }()
	n, err := unix.Write(way[1], text)
	if err != nil {
		return 0, err
	}
	moved, err := unix.Splice(way[0], nil, fd, nil, n, unix.SPLICE_F_NONBLOCK)
	return int(moved), err
}
