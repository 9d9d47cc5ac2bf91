// Package pdeath watches what this process is bound to: the process that started it,
// and the far end of its standard input.
//
// Kernel facts it rests on:
//
//   - A pidfd becomes readable when the whole process has ended. The end of the one
//     thread that forked, at which PR_SET_PDEATHSIG fires, does not count. See
//     pidfd_open(2), poll(2).
//   - poll(2) with no events asked for reports POLLHUP on a pipe's read end once the
//     last writer is gone, whether data is left to read or not, and takes no byte. A
//     socket whose peer did shutdown(SHUT_WR) shows POLLRDHUP alone. A terminal shows
//     POLLHUP when it is hung up. Files and devices never do.
//   - FIONREAD (TIOCINQ, ioctl_tty(2)) tells how much of a pipe or socket is still to be read.
//
// It says what happened, and kills nobody.
package pdeath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cause is what a watch has seen.
type Cause int

const (
	LauncherDied Cause = iota // one of the watched processes has ended
	StdinClosed               // the far end of standard input has closed
)

// ErrGone says that the launcher had ended before it could be watched.
var ErrGone = errors.New("the launcher has ended")

// ErrNone says that there is no launcher to watch: it is outside the PID namespace.
var ErrNone = errors.New("there is no launcher in this PID namespace")

// Launcher opens a pidfd of the process that started this one. Errors are ErrGone,
// ErrNone, or that of pidfd_open(2).
func Launcher() (int, error) {
	parent := os.Getppid()
	if parent == 0 {
		return -1, ErrNone
	}
	if adopted(parent) {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if now := os.Getppid(); now != parent {
		// It ended meanwhile; the pidfd may be of whoever got its pid.
		if err == nil {
			_ = unix.Close(fd)
		}
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("cannot watch the launcher %d: %w", parent, err)
	}
	return fd, nil
}

// adopted tells whether parent inherited this process from a launcher that has ended.
// A child is in the session of its parent unless it leads one of its own; in that last
// case nothing tells, and the parent is taken for the launcher. See credentials(7).
func adopted(parent int) bool {
	own, err := unix.Getsid(0)
	if err != nil || own == os.Getpid() {
		return false
	}
	theirs, err := unix.Getsid(parent)
	return err == nil && own != theirs
}

// Signal has the kernel send sig to this process when its launcher, or the one thread of
// it that forked, ends: for a kernel without pidfds, and for a launcher outside the PID
// namespace. Ask Died when the signal comes. See PR_SET_PDEATHSIG in prctl(2). Errors are
// ErrGone, or that of prctl.
func Signal(sig unix.Signal) (launcher int, err error) {
	launcher = os.Getppid()
	if launcher != 0 && adopted(launcher) {
		return launcher, ErrGone
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sig), 0, 0, 0); err != nil {
		return launcher, fmt.Errorf("cannot set a parent death signal: %w", err)
	}
	if os.Getppid() != launcher {
		return launcher, ErrGone
	}
	return launcher, nil
}

// Died tells whether the launcher, and not only a thread of it, has ended. One outside
// the PID namespace can't be asked for.
func Died(launcher int) bool { return launcher == 0 || os.Getppid() != launcher }

// Self opens a pidfd of this process, for a child to watch.
func Self() (int, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open a pidfd: %w", err)
	}
	return fd, nil
}

// Stdin is what can be told of standard input.
type Stdin int

const (
	Unwatched Stdin = iota
	Open            // its end will be seen
	Ended           // it has no far end: /dev/null
)

// LookAtStdin tells whether the end of standard input can be watched. An error says why
// not.
func LookAtStdin() (Stdin, error) {
	var st unix.Stat_t
	if err := unix.Fstat(0, &st); err != nil {
		return Unwatched, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return Open, nil
	case unix.S_IFSOCK:
		if kind, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind == unix.SOCK_DGRAM {
			return Unwatched, errors.New("a datagram socket has no end")
		}
		return Open, nil
	case unix.S_IFCHR:
		dev := uint64(st.Rdev) //nolint:unconvert // narrower on some architectures
		if unix.Major(dev) == 1 && unix.Minor(dev) == 3 {
			return Ended, nil
		}
		if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
			return Open, nil
		}
		return Unwatched, errors.New("a device has no end")
	}
	return Unwatched, errors.New("a file has no far end that closes")
}

// Unread is how many bytes of standard input are still to be read by the command.
func Unread() int {
	n, err := unix.IoctlGetInt(0, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// A Bond is what the end of the command hangs on.
type Bond struct {
	// Fds are to be polled, for as long as any is not negative.
	Fds    []unix.PollFd
	causes []Cause
}

// Watch makes the bond of processes, by their pidfds, and of standard input if that is Open.
func Watch(pidfds []int, stdin Stdin) *Bond {
	b := &Bond{}
	for _, fd := range pidfds {
		b.Fds = append(b.Fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		b.causes = append(b.causes, LauncherDied)
	}
	if stdin == Open {
		b.Fds = append(b.Fds, unix.PollFd{Fd: 0, Events: unix.POLLRDHUP})
		b.causes = append(b.causes, StdinClosed)
	}
	return b
}

// Seen returns what a poll of Fds has shown, each cause once, and has it not be polled again.
func (b *Bond) Seen(polled []unix.PollFd) (seen []Cause) {
	for i, fd := range polled {
		if fd.Revents != 0 {
			seen = append(seen, b.causes[i])
			b.Fds[i].Fd = -1 // poll passes over it from now on
		}
	}
	return seen
}
