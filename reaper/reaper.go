// Package reaper starts the command and collects every child that ends.
//
// Kernel facts it rests on:
//
//   - A child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) inherits every
//     orphan of its tree, through new sessions and double forks, as PID 1 does
//     in its namespace. wait4(-1) answering ECHILD therefore proves that no
//     descendant is alive.
//   - A child that has ended stays a zombie until Reap collects it, so that its pid and its
//     process group id stay reserved: who reaps and signals in one place hits nobody else.
//   - PR_SET_PDEATHSIG fires when the thread that forked ends. In a Go program
//     the main thread never ends, so Spawn is called on it.
//
// The package says what happened. It never decides, logs or exits.
package reaper

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit is one child that was reaped, or that was stopped by a signal: Status.Stopped tells
// the two apart. See wait(2).
type Exit struct {
	Pid    int
	Status syscall.WaitStatus
}

// Subreaper makes this process inherit the orphans of its tree. PID 1 inherits
// them already. See prctl(2), PR_SET_CHILD_SUBREAPER.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	return nil
}

// Reap collects every child that has ended or stopped and does not wait. none is true when
// no child is left: with a subreaper that means no descendant. See wait(2).
func Reap() (exits []Exit, none bool) {
	for {
		// A raw call: it never waits, and telling the scheduler of each one costs more
		// than the call.
		var status syscall.WaitStatus
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&status)),
			syscall.WNOHANG|syscall.WUNTRACED, 0, 0, 0)
		switch {
		case errno != 0:
			return exits, true
		case pid == 0:
			return exits, false
		}
		exits = append(exits, Exit{Pid: int(pid), Status: status})
	}
}
