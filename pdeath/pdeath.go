// Package pdeath watches what this process is bound to: the process that started it,
// and the far end of its standard input.
//
// Kernel facts it rests on:
//
//   - A pidfd becomes readable when the whole process has exited. The exit of the one
//     thread that forked, which makes PR_SET_PDEATHSIG fire, does not count. See
//     pidfd_open(2), poll(2).
//   - poll(2) with no events asked for reports POLLHUP on a pipe's read end once the
//     last writer is gone, whether data is left to read or not, without reading a byte. A
//     socket whose peer did shutdown(SHUT_WR) shows POLLRDHUP alone. A terminal shows
//     POLLHUP when it is hung up. Files and devices never do.
//   - FIONREAD (TIOCINQ, ioctl_tty(2)) tells how much of a pipe or socket is still to be read.
//
// The package reports what happened, and never signals a process.
package pdeath

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrGone says that a process had exited before fini could watch it.
var ErrGone = errors.New("it has ended already")

// Parent opens a pidfd of the process that started this process. fd is -1 without a pidfd. pid is 0 if the parent
// process is outside of the PID namespace. gone is true if the parent process has exited.
func Parent() (fd, pid int, gone bool) {
	pid = os.Getppid()
	if pid == 0 {
		return -1, pid, false
	}
	own, _ := unix.Getsid(0)
	theirs, err := unix.Getsid(pid)
	fd, _ = unix.PidfdOpen(pid, 0)
	if err == nil && Adopted(os.Getpid(), own, pid, theirs) || os.Getppid() != pid {
		_ = unix.Close(fd) // it may be of another process that got the pid
		return -1, pid, true
	}
	return fd, pid, false
}

// Adopted reports whether the sessions prove that parent has inherited child from a process that has exited.
// A child is in the session of its parent, unless the child leads a session, or the parent has made a session since,
// which the parent leads. PID 1 has made its session before it starts a process. See credentials(7), setsid(2).
func Adopted(child, session, parent, parentSession int) bool {
	return session != child && session != parentSession && (parentSession != parent || parent == 1)
}

// Signal makes the kernel send sig to this process when its parent process, or only the parent's thread that forked,
// exits. It is for a kernel without pidfds, and for a parent process outside the PID namespace. Call Died when the
// signal comes. See PR_SET_PDEATHSIG in prctl(2). Errors are ErrGone, or an error of prctl(2).
//
// A process has one such signal, and the process that started this one may have set another: kept, 0 for none. SIGKILL
// stays set, and sig does not come. sig comes instead of any other kept signal, and the caller must act on both.
func Signal(sig unix.Signal) (kept unix.Signal, err error) {
	parent, set := os.Getppid(), int32(0)
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&set)), 0)
	if kept = unix.Signal(set); kept != unix.SIGKILL {
		err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sig), 0, 0, 0)
	}
	if err == nil && os.Getppid() != parent {
		err = ErrGone
	}
	return kept, err
}

// Died reports whether the parent process, and not only a thread of it, has exited. fini can't ask for a parent process
// outside the PID namespace.
func Died(parent int) bool { return parent == 0 || os.Getppid() != parent }

// CanWatch returns why fini can't watch a process, of which pidfd_open(2) has returned a pidfd or an error: ErrGone, or
// that error in words. It closes the pidfd of a process that has exited, because pidfd_open(2) opens a zombie too.
func CanWatch(pidfd int, err error) error {
	switch err {
	case nil:
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 0); n > 0 {
			_ = unix.Close(pidfd)
			return ErrGone
		}
		return nil
	case unix.ESRCH:
		return ErrGone
	case unix.ENOSYS:
		return errors.New("this kernel or sandbox has no pidfd_open(2)")
	}
	return fmt.Errorf("cannot open a pidfd: %w", err)
}

// Stdin says whether fini can watch standard input.
type Stdin int

const (
	Unwatched Stdin = iota
	Open            // fini will see its end
	Ended           // it has no far end: /dev/null
)

// LookAtStdin reports whether the end of standard input can be watched. An error explains why not.
func LookAtStdin() (Stdin, error) {
	if _, err := unix.FcntlInt(0, unix.F_GETPIPE_SZ, 0); err == nil { // fstat(2) may wait for a FIFO's file system
		return Open, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(0, &st); err != nil {
		return Unwatched, err
	}
	switch st.Mode & unix.S_IFMT {
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
	return Unwatched, errors.New("a file has no far end; want a pipe, a socket or a terminal")
}

// Unread returns how many bytes of standard input the command has still to read, 0 if that is not known.
func Unread() int {
	n, _ := unix.IoctlGetInt(0, unix.TIOCINQ)
	return n
}
