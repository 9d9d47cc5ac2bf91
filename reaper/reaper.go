// Package reaper starts the command of an init, and waits for every child of this process.
//
// # Beside what it can't be used
//
// Reap takes the exit of any child. So nothing else in the program may wait for a child: beside it exec.Cmd.Wait and
// os.Process.Wait fail with "no child processes". A program that uses os/exec can use package orphans instead.
//
// Call Spawn on the main thread (runtime.LockOSThread in an init function), if the command is to get a parent death signal.
//
// # Kernel facts that it relies on
//
//   - A child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) inherits every
//     orphan of its tree, through new sessions and double forks, as PID 1 does
//     in its namespace. wait4(-1) answering ECHILD therefore proves that no
//     descendant is alive. Without __WALL, wait4 leaves out children whose exit signal is not SIGCHLD.
//     See clone(2).
//   - A child that has exited stays a zombie until Reap collects it, so that its pid and its
//     process group id stay reserved: a program that reaps and signals in one place can't hit another process.
//   - PR_SET_PDEATHSIG fires when the thread that forked exits. In a Go program
//     the main thread never exits.
package reaper

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
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
// reports, before the child is reaped and the name is gone. An error is one of wait4(2), which a filter may refuse. Only ECHILD proves
// that no child is left. See wait(2).
func Reap(name func(pid int) string) (exits []Exit, none bool, err error) {
	for {
		known := Exit{Pid: anyChild}
		if name != nil {
			// A child that exits from here on is the next look's: it must not be reaped before its name is known.
			next, errno := calls.WaitID(unix.P_ALL, 0, changes|unix.WEXITED|unix.WNOWAIT)
			if errno == 0 && next == 0 {
				return exits, false, nil
			}
			if errno == 0 {
				known = Exit{Pid: next, Name: name(next)}
			}
		}
		pid, status, errno := calls.Wait(known.Pid, changes)
		switch {
		case errno == unix.ECHILD:
			return exits, known.Pid == anyChild, nil
		case errno != 0:
			return exits, false, fmt.Errorf("cannot wait for children: %w", errno)
		case pid == 0:
			return exits, false, nil
		}
		exits = append(exits, Exit{pid, status, known.Name})
	}
}

const anyChild = -1

// A child is also reported when a signal suspends or continues it.
const changes = unix.WUNTRACED | unix.WCONTINUED
