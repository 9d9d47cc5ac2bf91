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
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// ErrGone says that a process had exited before fini could watch it.
var ErrGone = errors.New("it has ended already")

// A Launcher holds what this process knows about the process that started it.
type Launcher struct {
	Pid     int           // 0 if it is outside of the PID namespace
	Session int           // negative if unknown
	FD      int           // a pidfd, -1 if there is none
	Gone    bool          // it exited before fini could look
	Kept    int32         // the parent death signal that it has set, 0 for none: see TakeSlot
	Err     syscall.Errno // why TakeSlot failed
}

// Find records the facts about the parent process.
//
//go:nosplit
func (l *Launcher) Find() {
	l.Pid, l.FD = proc.Call(unix.SYS_GETPPID, 0, 0, 0, 0), -1
	if l.Pid != 0 {
		l.Session = proc.Call(unix.SYS_GETSID, uintptr(l.Pid), 0, 0, 0)
		l.FD = max(proc.Call(unix.SYS_PIDFD_OPEN, uintptr(l.Pid), 0, 0, 0), -1)
	}
	l.check()
}

// TakeSlot makes the kernel send sig to this process when its parent process, or only the parent's thread that forked,
// exits. It is for a kernel without pidfds, and for a parent process outside the PID namespace. Call Died when the
// signal comes. See PR_SET_PDEATHSIG in prctl(2).
//
// A process has one such signal, and the process that started this one may have set another. SIGKILL stays set, because the
// kernel does then what no fini can do for itself. sig comes instead of any other kept signal, and the caller must act on both.
//
//go:nosplit
func (l *Launcher) TakeSlot(sig uintptr) {
	proc.Call(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&l.Kept)), 0, 0)
	if l.Kept != int32(unix.SIGKILL) {
		l.Err = syscall.Errno(-proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, sig, 0, 0))
	}
	l.check()
}

// LeaveSlot undoes TakeSlot.
//
//go:nosplit
func (l *Launcher) LeaveSlot() {
	proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(l.Kept), 0, 0)
}

// check looks whether the parent process has exited meanwhile: then the pidfd may belong to another process.
//
//go:nosplit
func (l *Launcher) check() {
	if l.Pid != 0 && l.Died() {
		proc.Close(l.FD)
		l.FD, l.Gone = -1, true
	}
}

// Adopted reports whether the sessions prove that parent has inherited child from a process that has exited.
// A child is in the session of its parent, unless the child leads a session, or the parent has made a session since,
// which the parent leads. PID 1 has made its session before it starts a process. See credentials(7), setsid(2).
func Adopted(child, session, parent, parentSession int) bool {
	return session != child && session != parentSession && (parentSession != parent || parent == 1)
}

// Died reports whether the parent process, and not only a thread of it, has exited. fini can't ask for a parent process
// outside the PID namespace.
//
//go:nosplit
func (l *Launcher) Died() bool {
	return l.Pid == 0 || proc.Call(unix.SYS_GETPPID, 0, 0, 0, 0) != l.Pid
}

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
	kind, err := proc.Kind(0)
	if err != nil {
		return Unwatched, err
	}
	flags, _ := unix.FcntlInt(0, unix.F_GETFL, 0)
	switch {
	case flags&unix.O_PATH != 0:
	case kind == unix.S_IFIFO:
		return Open, nil
	case kind == unix.S_IFSOCK:
		if kind, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind == unix.SOCK_DGRAM {
			return Unwatched, errors.New("a datagram socket has no end")
		}
		return Open, nil
	case kind == unix.S_IFCHR, kind == proc.PtyMaster:
		var st unix.Stat_t
		if err := unix.Fstat(0, &st); err != nil {
			return Unwatched, err
		}
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

// What follows reads only status below /proc, for which a reader never waits. See proc_pid_status(5).

// Ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func Ignores(pid int, sig unix.Signal) bool {
	f := proc.In(unix.AT_FDCWD)
	status, _ := f.StatusIn("/proc/" + strconv.Itoa(pid))
	return status.Ignored&(1<<(sig-1)) != 0
}

// GroupIsOrphaned reports whether a process group of a session is orphaned: no member has a parent in another group of
// the session, such as a shell that could continue it. See setpgid(2). It returns false if this can't be read. It looks
// only at the ancestors of one member, because the other members of a job have the same parents.
func GroupIsOrphaned(group, session, member int) bool {
	if group == 0 {
		return false // the group is outside of the PID namespace, as are the parents of its members
	}
	f := proc.In(unix.AT_FDCWD)
	for at := member; ; {
		status, err := f.StatusIn("/proc/" + strconv.Itoa(at))
		if at = status.Parent; err != nil || at <= 0 {
			return err == nil
		}
		theirGroup, err := unix.Getpgid(at)
		theirSession, err2 := unix.Getsid(at)
		switch {
		case err != nil || err2 != nil:
			return false
		case theirSession != session:
			return true
		case theirGroup != group:
			return false
		}
	}
}

// Dying reports whether a process has begun to exit: it has let go of its descriptors, or is gone.
func Dying(pid int) bool {
	f := proc.In(unix.AT_FDCWD)
	status, err := f.StatusIn("/proc/" + strconv.Itoa(pid))
	return status.Descriptors == 0 || err == unix.ESRCH || err != nil && unix.Kill(pid, 0) == unix.ESRCH
}
