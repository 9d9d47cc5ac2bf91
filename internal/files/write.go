package files

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// SayLine writes a line to standard error and reports whether it was written. It never waits for a reader. If there is
// no room for the line, the line is lost.
func SayLine(line []byte) bool {
	return nil == Quietly(func() error {
		n, err := WriteNow(2, line)
		if err == nil && n < len(line) {
			err = unix.EAGAIN
		}
		return err
	})
}

// Quietly calls write on a thread that blocks the signals that writing can raise, because those signals are not meant
// for the command. If the reader is gone, it also discards the pending SIGPIPE. SIGXFSZ is raised by a file size limit.
// With `stty tostop`, a terminal sends SIGTTOU to suspend a background process that writes, but not if the signal is
// blocked. See pipe(7) and tty(4).
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
		// Ignoring a pending signal discards it. See sigaction(2).
		var now calls.SigAction
		calls.SetAction(unix.SIGPIPE, &calls.SigAction{calls.Ignore}, &now)
		calls.SetAction(unix.SIGPIPE, &now, nil)
	}
	return err
}

// atOnce is how many bytes a message socket, or a pipe that poll(2) reports as writable, takes in one write.
const atOnce = 4096

// WriteNow writes as much of text as fd accepts without blocking. It can't set O_NONBLOCK, because the command shares
// the file description. What it does instead depends on the kind of file:
//
//	kind of file                          how it is written
//	a regular file, or O_NONBLOCK is set  write(2)
//	a socket                              sendmsg(2) with MSG_DONTWAIT
//	a pipe                                pwritev2(2) with RWF_NOWAIT, or splice(2) before Linux 6.4
//	a terminal or another device          opened again with O_NONBLOCK
//	the master of a pseudoterminal        poll(2), then as much as fits into one of the kernel's buffers
//	anything else                         poll(2), although another process may fill the buffer before the write
//
// poll(2) is the last resort, because it reports a terminal as writable even if there is no room for a line. A pipe
// can't be written to while a reader holds its lock.
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

// Own opens the terminal or device of fd again with O_NONBLOCK, which gives this process its own file description. If
// the terminal belongs to another user and is the controlling terminal, Own opens /dev/tty instead.
func Own(fd int) (int, error) {
	const flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
	if err != nil {
		if _, other := unix.IoctlGetInt(fd, unix.TIOCGSID); other == nil { // fails with ENOTTY for another terminal
			if tty, other := unix.Open("/dev/tty", flags, 0); other == nil {
				return tty, nil
			}
		}
	}
	return own, err
}

// tried reports whether the kernel attempted the write, so that trying another system call would be pointless.
func tried(err error) bool { return err == nil || err == unix.EAGAIN || err == unix.EPIPE }

// moveAtOnce writes to a pipe through a second pipe, because every Linux can splice(2) from pipe to pipe without
// blocking. Data that doesn't fit is lost with the second pipe.
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
