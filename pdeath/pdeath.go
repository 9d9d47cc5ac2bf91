// Package pdeath reports the exit of the process that started this one, the exit of any other process, and the end of
// standard input. Any program can use it, because it handles no signals, reaps no children, reads nothing from standard
// input, and starts no goroutines.
//
// A Watch contains a descriptor to poll. Watch.Wait polls only that descriptor, and occupies a thread until it returns:
//
//	go func() {
//		if parent.Wait() == nil {
//			cancel()
//		}
//	}()
//
// It relies on these properties of the kernel:
//
//   - A pidfd becomes readable when all threads of a process have exited. PR_SET_PDEATHSIG, which the package doesn't
//     use, reports the exit of the thread that forked. See pidfd_open(2), which needs Linux 5.3, and prctl(2).
//   - poll(2) reports POLLHUP for a pipe that has no writers any more, and POLLRDHUP for a socket whose peer has
//     stopped sending, even if there is data to be read. It reports POLLHUP for a terminal that has hung up. For files
//     and devices it never does.
//
// # What it can't be used with
//
// A Watch doesn't need standard input to be non-blocking or in an epoll(7) set. Don't change that for a Watch, because
// other processes share the mode.
package pdeath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// ErrGone says that the process or stream to be watched has ended already.
var ErrGone = errors.New("it has ended already")

// A Watch is a descriptor that shows the end of a process or of standard input. After that, poll(2) with Events returns
// immediately.
type Watch struct {
	FD     int
	Events int16
}

// Wait blocks until the end, and then returns nil. An error means that poll(2) failed.
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

// Parent watches the process that started this one. It returns ErrGone if that process is known to have exited. Call it
// early in main. If the parent has exited before, Parent may watch the process that has adopted this one instead. It
// returns another error if the parent is outside of this PID namespace or if there are no pidfds.
func Parent() (Watch, error) {
	pid := os.Getppid()
	if pid == 0 {
		return Watch{FD: -1}, errors.New("cannot watch the parent process: it is outside of this PID namespace")
	}
	session, err := unix.Getsid(0)
	theirs, err2 := unix.Getsid(pid)
	w, err3 := Process(pid)
	if err3 == nil && (os.Getppid() != pid || err == nil && err2 == nil &&
		proc.Adopted(os.Getpid(), session, pid, theirs)) {
		w.Close()
		return Watch{FD: -1}, ErrGone
	}
	return w, err3
}

// Process watches the process with this pid, which need not be a child. It returns ErrGone if there is none or it has
// exited.
func Process(pid int) (Watch, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, interrupted := unix.Poll(fds, 0)
		for interrupted == unix.EINTR { // poll(2) looks for signals first, even if it does not wait
			n, interrupted = unix.Poll(fds, 0)
		}
		if n == 0 {
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

// Stdin watches the processes that write to standard input. The end comes when all of them have exited or closed it,
// even if there is still data to be read. Stdin returns ErrGone for /dev/null. It returns another error for a file, a
// datagram socket or a device, because they have no writers to wait for.
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
