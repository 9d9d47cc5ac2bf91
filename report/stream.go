package report

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/signals"
)

// A stream is a descriptor that this process has inherited: of a regular file, a pipe, a socket, or a
// character device such as a terminal. The file description is shared with the command, so it stays in
// blocking mode, and a write to it could wait for a reader that never comes, also when poll(2) says that
// there is room: for less than the write takes, or taken by another writer since. So no write waits for
// room:
//
//	what it is         how it is written
//	a regular file     by a duplicate
//	a socket           by a duplicate, with MSG_DONTWAIT
//	a pipe, a FIFO     by a description of this process's own, with O_NONBLOCK; if it can't be opened
//	                   again, as another user's can't, by a duplicate; see WriteAtOnce of package signals
//	a terminal         by a description of this process's own; if it can't be opened again, as another
//	                   user's can't, by /dev/tty if that is the same terminal
//	another device     by a description of this process's own
//
// What is left, a terminal of somebody else's, is refused. A stream stays
// open until the report is written: a reader gets its EOF then, and not with the end of the command.
// Whoever reads a pipe holds its lock meanwhile, though, and every writer waits for that.
type stream struct {
	fd      int
	writeTo func(fd int, text []byte) (int, error)
}

// descriptor reports whether a path names a descriptor, and which. Some shells name their process
// substitutions by /proc.
func descriptor(path string) (number string, ok bool) {
	switch path {
	case "-", "/dev/stdout":
		return "1", true
	case "/dev/stderr":
		return "2", true
	}
	if number, ok = strings.CutPrefix(path, "/dev/fd/"); ok {
		return number, true
	}
	return strings.CutPrefix(path, "/proc/self/fd/")
}

// openStream opens a descriptor that the command inherits too. CloseInherited of package reaper closes
// that one, and not this.
func openStream(number string) (*stream, error) {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return nil, unix.ENOENT
	}
	// What this process has opened itself is closed on exec, and not meant.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	mode, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 || mode&unix.O_PATH != 0 || mode&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, unix.EBADF
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	s := &stream{}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.writeTo = unix.Write
		s.fd, err = duplicate(fd)
	case unix.S_IFSOCK:
		s.writeTo = writeToSocket
		s.fd, err = duplicate(fd)
	case unix.S_IFIFO:
		s.writeTo = unix.Write
		if s.fd, err = reopen(fd); err != nil {
			s.writeTo = writeAtOnce
			s.fd, err = duplicate(fd)
		}
	case unix.S_IFCHR:
		if st.Rdev == unix.Mkdev(5, 2) {
			return nil, errors.New("it is the master of a terminal") // opened again, it would be another's
		}
		s.writeTo = unix.Write
		if s.fd, err = reopen(fd); err != nil {
			s.fd, err = controllingTerminal(fd, err)
		}
	default:
		return nil, wrongKind(st.Mode)
	}
	return s, err
}

func writeToSocket(fd int, text []byte) (int, error) {
	text = text[:min(len(text), 4096)] // which a socket of messages takes too
	return unix.SendmsgN(fd, text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

// own is how a stream is opened whose file description is to be this process's own.
const own = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// reopen opens what a descriptor has open once more.
func reopen(fd int) (int, error) { return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), own, 0) }

// controllingTerminal opens the controlling terminal, which needs no permission, if that is what the
// descriptor has open; refused is why this can't be opened again by itself.
func controllingTerminal(fd int, refused error) (int, error) {
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGSID); err == nil { // of another terminal, ENOTTY
		if tty, err := unix.Open("/dev/tty", own, 0); err == nil {
			return tty, nil
		}
	}
	return -1, cannotWait(refused)
}

// cannotWait is that a stream can only be written in a way that may wait for its reader without end.
func cannotWait(refused error) error {
	return fmt.Errorf("it can't be opened again, to be written without waiting: %w", refused)
}

// writeAtOnce writes to a pipe whose description others share.
func writeAtOnce(fd int, text []byte) (int, error) {
	n, can, err := signals.WriteAtOnce(fd, text)
	if !can {
		err = cannotWait(err)
	}
	return n, err
}

// A reader of a stream is waited for no longer than this, in all.
const patience = 5 * time.Second

// write writes text as the stream takes it, and closes that.
func (s *stream) write(text []byte) error {
	defer func() { _ = unix.Close(s.fd) }()
	for end := time.Now().Add(patience); ; {
		n, err := s.writeTo(s.fd, text)
		text = text[max(n, 0):]
		left := int(time.Until(end) / time.Millisecond)
		switch {
		case err != nil && err != unix.EINTR && err != unix.EAGAIN:
			return err
		case len(text) == 0:
			return nil
		case left <= 0:
			return fmt.Errorf("it was not taken within %v", patience)
		case err != unix.EAGAIN:
			continue
		}
		// A stream may have room, and too little for what is written: then this is no busy loop.
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(fds, left); n > 0 {
			_, _ = unix.Poll(nil, 10)
		}
	}
}
