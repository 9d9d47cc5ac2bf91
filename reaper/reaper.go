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
//     process group id stay reserved: a program that reaps and signals in one place hits no other process.
//   - PR_SET_PDEATHSIG fires when the thread that forked exits. In a Go program
//     the main thread never exits, so Spawn is called on the main thread.
//
// The package says what happened. It never decides, logs or exits.
package reaper

import (
	"fmt"
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
// reports, before the child is reaped and the name is gone. See wait(2).
func Reap(name func(pid int) string) (exits []Exit, none bool) {
	for {
		which, called := -1, ""
		if name != nil {
			// A child that exits from here on is the next look's: it must not be reaped before its name is known.
			child, err := changed()
			switch {
			case err == nil && child == 0:
				return exits, false
			case err == nil:
				which, called = child, name(child)
			}
		}
		// A raw call, because it never waits, and a report of each call to the scheduler costs more than the call.
		var status syscall.WaitStatus
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, uintptr(which), uintptr(unsafe.Pointer(&status)),
			syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED|syscall.WALL, 0, 0, 0)
		switch {
		case errno != 0:
			return exits, true
		case pid == 0:
			return exits, false
		}
		exits = append(exits, Exit{int(pid), status, called})
	}
}

// changed returns a child with an exit, a stop or a continuation that Reap has not reported yet, 0 for none. See
// waitid(2).
func changed() (pid int, err error) {
	var info struct { // siginfo_t, as far as it is needed here
		_   [3]int32
		_   [0]uintptr // what follows is aligned like this
		pid int32
		_   [112]byte
	}
	how := unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED | unix.WNOHANG | unix.WNOWAIT
	err = unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), how|unix.WALL, nil)
	if err == unix.EINVAL { // before Linux 4.7
		err = unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), how, nil)
	}
	return int(info.pid), err
}
