// Package reaper starts the command of an init, and reaps all children of this process.
//
// # What it can't be used with
//
// Because Reap reaps every child, no other code in the program may wait for one. exec.Cmd.Wait and os.Process.Wait
// would fail with "no child processes". A program that uses os/exec can use package orphans instead.
//
// If the command is to have a parent death signal, call Spawn on the main thread, with runtime.LockOSThread in init.
//
// # Kernel facts
//
//   - A child subreaper is the new parent of every orphan in its tree, whatever session the orphan is in, as PID 1 is
//     in its namespace. If wait4(-1) fails with ECHILD, there is therefore no living descendant. Without __WALL, wait4
//     ignores children whose exit signal is not SIGCHLD. See PR_SET_CHILD_SUBREAPER in prctl(2), and clone(2).
//   - A child that has exited remains a zombie until it is reaped, and its pid and process group ID are not reused. If
//     only one goroutine reaps and sends signals, no signal can hit another process.
//   - PR_SET_PDEATHSIG reports the exit of the thread that forked. In a Go program, the main thread never exits.
package reaper

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// Exit describes a child that was reaped, or that a signal has suspended or continued. See Status, and wait(2).
type Exit struct {
	Pid    int
	Status syscall.WaitStatus
	Name   string // set if Reap was called with a function for names
}

// Ended reports whether the child has exited. It returns false if the child was only suspended or continued.
func (x Exit) Ended() bool { return !x.Status.Stopped() && !x.Status.Continued() }

// Subreaper makes this process the new parent of orphans in its tree, which PID 1 is without it. See
// PR_SET_CHILD_SUBREAPER in prctl(2).
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	return nil
}

// Reap reaps all children that have exited, and also reports children that were stopped or continued. It does not
// block. none is true if there is no other child, which in a subreaper means no descendant. If name is not nil, Reap
// calls it for each child while the child still has a name. An error is from wait4(2), which a filter may refuse. See
// wait(2).
func Reap(name func(pid int) string) (exits []Exit, none bool, err error) {
	for {
		known := Exit{Pid: anyChild}
		if name != nil {
			// Don't reap a child that exits after this, because its name is not known. The next look will find it.
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

// changes makes waitid(2) also report children that a signal has suspended or continued.
const changes = unix.WUNTRACED | unix.WCONTINUED
