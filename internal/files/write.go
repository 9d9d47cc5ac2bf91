package files

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// SayLine writes one line to standard error and never waits for a reader: a line that can't be written at once is lost.
// It reports whether the line was written.
func SayLine(line []byte) bool {
	return nil == Quietly(func() error {
		n, err := WriteNow(2, line)
		if err == nil && n < len(line) {
			err = unix.EAGAIN
		}
		return err
	})
}

// Quietly calls write on a thread that blocks the signals that a write raises, because no process sent them. SIGPIPE,
// if the reader is gone, is taken back, so that it does not reach the command. The others are SIGXFSZ, and SIGTTOU, by
// which a terminal under `stty tostop` suspends a writer in the background unless it blocks the signal. See pipe(7),
// tty(4).
func Quietly(write func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	block.Val[0] = 1<<(unix.SIGPIPE-1) | 1<<(unix.SIGTTOU-1) | 1<<(unix.SIGXFSZ-1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	err := write()
	if err == unix.EPIPE {
		// Ignoring a pending signal discards it: see sigaction(2).
		var now proc.SigAction
		proc.SetAction(unix.SIGPIPE, &proc.SigAction{proc.Ignore}, &now)
		proc.SetAction(unix.SIGPIPE, &now, nil)
	}
	return err
}

// A socket of messages takes this many bytes at once, and so does a pipe that poll(2) calls ready.
const atOnce = 4096

// WriteNow writes as much of text as fd takes without waiting. It does not set O_NONBLOCK on a file description that
// the command shares:
//
//	what it is                            how it is written
//	a regular file, or it has O_NONBLOCK  by write(2)
//	a socket                              by sendmsg(2) with MSG_DONTWAIT
//	a pipe                                by pwritev2(2) with RWF_NOWAIT, since Linux 6.4; else by splice(2)
//	a terminal or another device          by a file description of this process's own
//	a pseudoterminal's master             after poll(2), as much as one of the kernel's buffers holds
//	anything else                         after poll(2), though another writer may come between
//
// poll(2) comes last, because a terminal that has too little room for a line says that it has room. A process that
// reads a pipe holds the lock of the pipe meanwhile, and every writer waits for this lock.
func WriteNow(fd int, text []byte) (int, error) {
	kind, err := proc.Kind(fd)
	if err != nil {
		return 0, err
	}
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch {
	case kind == unix.S_IFREG, flags&unix.O_NONBLOCK != 0:
		return unix.Write(fd, text)
	case kind == unix.S_IFSOCK:
		return unix.SendmsgN(fd, text[:min(len(text), atOnce)], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	case kind == unix.S_IFIFO:
		n, err := unix.Pwritev2(fd, [][]byte{text}, -1, unix.RWF_NOWAIT)
		if !tried(err) {
			n, err = moveAtOnce(fd, text)
		}
		if tried(err) {
			return n, err
		}
	case kind == unix.S_IFCHR:
		if own, err := Own(fd); err == nil {
			defer func() { _ = unix.Close(own) }()
			return unix.Write(own, text)
		}
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 || fds[0].Revents&unix.POLLOUT == 0 {
		return 0, unix.EAGAIN
	}
	room := atOnce
	if kind == proc.PtyMaster {
		room = 1500
	}
	return unix.Write(fd, text[:min(len(text), room)])
}

// Own opens the terminal or device of fd once more, with O_NONBLOCK, so that the file description is this process's
// own. Another user's terminal can't be opened like that, but everybody may open /dev/tty, the controlling terminal.
func Own(fd int) (int, error) {
	const flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
	if err != nil {
		if _, other := unix.IoctlGetInt(fd, unix.TIOCGSID); other == nil { // of another terminal, ENOTTY
			if tty, other := unix.Open("/dev/tty", flags, 0); other == nil {
				return tty, nil
			}
		}
	}
	return own, err
}

// tried reports whether a write came so far that its result depends on the reader.
func tried(err error) bool { return err == nil || err == unix.EAGAIN || err == unix.EPIPE }

// moveAtOnce writes to a pipe by way of a second pipe: on every Linux, splice(2) moves data from pipe to pipe without
// waiting. Data that was not moved is lost with the second pipe.
func moveAtOnce(fd int, text []byte) (int, error) {
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
