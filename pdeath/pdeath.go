// Package pdeath tells a program when the process that started it has exited, when another process has, and when standard
// input has ended. The program can be any: the package handles no signal, reaps no child, reads no byte of standard input,
// and starts no goroutine.
//
// A Watch is a descriptor to poll. Watch.Wait polls that descriptor alone, and occupies a thread meanwhile:
//
//	go func() {
//		if parent.Wait() == nil {
//			cancel()
//		}
//	}()
//
// Kernel facts it rests on:
//
//   - A pidfd becomes readable when the whole process has exited. PR_SET_PDEATHSIG, which the package doesn't use, fires when
//     the thread exits that forked. See pidfd_open(2), prctl(2). A pidfd needs Linux 5.3.
//   - poll(2) reports POLLHUP for a pipe's read end once the last writer is gone, and POLLRDHUP for a socket whose peer
//     doesn't send any more, whether data is left to read or not. A terminal shows POLLHUP when it is hung up. Files and
//     devices never do.
//
// # Beside what it can't be used
//
// Don't put standard input into non-blocking mode, or hand it to epoll(7), only because of a Watch: other processes share
// that mode. A Watch needs neither.
package pdeath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// ErrGone says that what was to be watched has ended already.
var ErrGone = errors.New("it has ended already")

// A Watch is a descriptor that shows the end of a process or of standard input: poll(2) returns when the end has come, and
// Events are what to ask poll for.
type Watch struct {
	FD     int
	Events int16
}

// Wait returns nil when the end has come. An error means that poll(2) failed.
func (w Watch) Wait() error {
	fds := []unix.PollFd{{Fd: int32(w.FD), Events: w.Events}}
	for {
		switch _, err := unix.Poll(fds, -1); err {
		case unix.EINTR:
		case nil:
			if fds[0].Revents&unix.POLLNVAL != 0 {
				return fmt.Errorf("cannot poll: %w", unix.EBADF)
			}
			return nil
		default:
			return fmt.Errorf("cannot poll: %w", err)
		}
	}
}

// Close closes the descriptor, unless it is standard input. Don't call it before Wait has returned.
func (w Watch) Close() {
	if w.FD > 0 {
		_ = unix.Close(w.FD)
	}
}

// Parent watches the process that started this one. The error is ErrGone if that has exited, which Parent finds out in
// most cases: if another process has adopted this one before the call, and can't be told from its parent, Parent watches
// that one. So call it early in main. Another error means that the parent can't be watched: it is outside of this PID
// namespace, or there are no pidfds.
func Parent() (Watch, error) {
	pid := os.Getppid()
	if pid == 0 {
		return Watch{FD: -1}, errors.New("cannot watch the parent process: it is outside of this PID namespace")
	}
	session, err := unix.Getsid(0)
	theirs, err2 := unix.Getsid(pid)
	w, err3 := Process(pid)
	if err3 == nil && (os.Getppid() != pid || err == nil && err2 == nil && proc.Adopted(os.Getpid(), session, pid, theirs)) {
		w.Close()
		return Watch{FD: -1}, ErrGone
	}
	return w, err3
}

// Process watches the process with this pid, whosever child it is. The error is ErrGone if there is none, or it is a zombie.
func Process(pid int) (Watch, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 0); n == 0 {
			return Watch{fd, unix.POLLIN}, nil
		}
		_ = unix.Close(fd)
		err = ErrGone
	case unix.ESRCH:
		err = ErrGone
	case unix.ENOSYS:
		err = errors.New("this kernel or sandbox has no pidfd_open(2)")
	default:
		err = fmt.Errorf("cannot open a pidfd: %w", err)
	}
	return Watch{FD: -1}, err
}

// Stdin watches whoever writes to standard input: when all have closed it, or have exited, the end has come, even if
// there is data still to be read. The error is ErrGone if standard input is /dev/null. Another error says why it has no
// end: it is a file, a datagram socket or a device.
func Stdin() (Watch, error) {
	err := lookAtStdin()
	if err != nil {
		return Watch{FD: -1}, err
	}
	return Watch{0, unix.POLLRDHUP}, nil
}

func lookAtStdin() error {
	kind, err := proc.Kind(0)
	if err != nil {
		return err
	}
	flags, _ := unix.FcntlInt(0, unix.F_GETFL, 0)
	switch {
	case flags&unix.O_PATH != 0:
	case kind == unix.S_IFIFO:
		return nil
	case kind == unix.S_IFSOCK:
		if kind, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind == unix.SOCK_DGRAM {
			return errors.New("a datagram socket has no end")
		}
		return nil
	case kind == unix.S_IFCHR, kind == proc.PtyMaster:
		var st unix.Stat_t
		if err := unix.Fstat(0, &st); err != nil {
			return err
		}
		dev := uint64(st.Rdev) //nolint:unconvert // narrower on some architectures
		if unix.Major(dev) == 1 && unix.Minor(dev) == 3 {
			return ErrGone
		}
		if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
			return nil
		}
		return errors.New("a device has no end")
	}
	return errors.New("a file has no far end; want a pipe, a socket or a terminal")
}
