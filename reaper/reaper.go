// Package reaper starts the command and collects every child that ends.
//
// Kernel facts it rests on:
//
//   - A child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) inherits every
//     orphan of its tree, through new sessions and double forks, as PID 1 does
//     in its namespace. wait4(-1) answering ECHILD therefore proves that no
//     descendant is alive. Without __WALL, wait4 leaves out children whose exit signal is not SIGCHLD:
//     this process may have had such children before it became fini. See clone(2).
//   - A child that has exited stays a zombie until Reap collects it, so that its pid and its
//     process group id stay reserved: a program that reaps and signals in one place can't hit another process.
//   - PR_SET_PDEATHSIG fires when the thread that forked exits. In a Go program
//     the main thread never exits, so Spawn is called on the main thread.
//
// The package reports what happened. It never decides, logs or exits.
package reaper

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit is one child that was reaped, or that a signal suspended or continued, as Status says. See wait(2).
type Exit struct {
	Pid    int
	Status syscall.WaitStatus
	Name   string // if Reap was given a function for names
}

// Ended reports whether the child has exited: it was not only suspended or continued.
func (x Exit) Ended() bool { return !x.Status.Stopped() && !x.Status.Continued() }

// Subreaper makes this process inherit the orphans of its tree. PID 1 inherits
// them already. See prctl(2), PR_SET_CHILD_SUBREAPER.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	return nil
}

// Reap collects every child that has exited, stopped or continued, and does not wait. none is true when no child is
// left: in a subreaper this means no descendant. If name is not nil, Reap asks it for the name of each child that it
// reports, before the child is reaped and the name is gone. A filter may refuse wait4(2): then waitid(2) serves, and an
// error says that it is refused too. Only ECHILD proves that no child is left. See wait(2), seccomp(2).
func Reap(name func(pid int) string) (exits []Exit, none bool, err error) {
	for {
		var x Exit
		if name != nil {
			// A child that exits from here on is the next look's: it must not be reaped before its name is known.
			next, errno := waitID(0, unix.WNOWAIT)
			if errno == 0 && next.Pid == 0 {
				return exits, false, nil
			}
			if x.Pid = next.Pid; x.Pid != 0 {
				x.Name = name(x.Pid)
			}
		}
		child, errno := wait(x.Pid)
		switch {
		case errno == unix.ECHILD:
			return exits, x.Pid == 0, nil
		case errno != 0:
			return exits, false, fmt.Errorf("cannot wait for children: %w", errno)
		case child.Pid == 0:
			return exits, false, nil
		}
		child.Name = x.Name
		exits = append(exits, child)
	}
}

// CanReap returns the error of a Reap that can never work.
func CanReap() error {
	if _, errno := wait(os.Getpid()); errno != unix.ECHILD {
		return fmt.Errorf("cannot wait for children: %w", errno)
	}
	return nil
}

// wait is wait4(2), which does not wait, for the child with this pid, or if it is 0, for any child. Without a child to
// report, the answer's pid is 0.
func wait(pid int) (x Exit, errno syscall.Errno) {
	// A raw call, because it never waits, and a report of each call to the scheduler costs more than the call.
	got, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, uintptr(cmp.Or(pid, -1)), uintptr(unsafe.Pointer(&x.Status)),
		syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED|syscall.WALL, 0, 0, 0)
	if errno != 0 && errno != unix.ECHILD {
		return waitID(pid, 0)
	}
	x.Pid = max(int(got), 0)
	return x, errno
}

// waitID does the same by waitid(2), with more flags.
func waitID(pid int, flags uintptr) (x Exit, errno syscall.Errno) {
	var info struct { // siginfo_t, as far as it is needed here
		_                 [2]int32
		code              int32
		_                 [0]uintptr // what follows is aligned like this
		pid, user, status int32
		_                 [112]byte
	}
	kind := unix.P_ALL
	if pid != 0 {
		kind = unix.P_PID
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_WAITID, uintptr(kind), uintptr(pid), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOHANG|unix.WALL|flags, 0, 0)
	status := syscall.WaitStatus(info.status)
	switch info.code {
	case 1: // CLD_EXITED
		status = status & 0xff << 8
	case 3: // CLD_DUMPED
		status |= 0x80
	case 4, 5: // CLD_TRAPPED, CLD_STOPPED
		status = status<<8 | 0x7f
	case 6: // CLD_CONTINUED
		status = 0xffff
	}
	return Exit{Pid: int(info.pid), Status: status}, errno
}
