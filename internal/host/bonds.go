package host

// The bonds of the command: to the parent process, to --bind processes, and in an inner fini to the outer fini.

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/signals"
)

// A bond is a descriptor that shows a reason to stop the command: the exit of a process, or the end of standard input.
type bond struct {
	fd     int // of a process: its pidfd, or the line to the outer fini; -1 if a signal reports its exit
	events int16
	pid    int
	name   string // for the line that gives the reason
	why    life.Reason

	ended bool
}

// parentSignal reports that the parent process may have died, if fini couldn't open a pidfd of it.
const parentSignal = syscall.Signal(entry.ParentSignal)

// bind makes fini stop when the outer fini, a --bind process or the parent process exits. It leaves out the parent
// process if -p is none and, without -p, if fini itself is PID 1, if nohup(1) started fini, or if the parent process is
// outside of the PID namespace.
func (k *kernel) bind(processes []int, pdeathsig *syscall.Signal) error {
	launcher := k.launcher()
	watch := func(fd, pid int, why life.Reason) {
		k.bonds = append(k.bonds, bond{fd: fd, events: unix.POLLIN, pid: pid, name: proc.Name(pid), why: why})
	}
	if k.line.FD >= 0 {
		watch(k.line.FD, k.self.Pid, life.FiniDied)
	}
	for _, pid := range processes {
		fd, err := unix.PidfdOpen(pid, 0)
		if err = pdeath.CanWatch(fd, err); err != nil {
			return fmt.Errorf("cannot bind the command to process %d: %w", pid, err)
		}
		watch(fd, pid, life.BoundEnded)
	}
	asked := pdeathsig != nil
	switch {
	case asked && *pdeathsig == 0, !asked && k.rules.Initial:
		return nil
	case !asked && signals.Ignored(syscall.SIGHUP) && byNohup(launcher, k.self.Pid):
		k.Sayf(life.Detail, "the command is not bound to the parent process: nohup started fini; -p TERM binds the command")
		return nil
	case !asked && launcher.Pid == 0:
		k.Sayf(life.Detail, "the command is not bound to the parent process, which is outside of the PID namespace")
		return nil
	case launcher.Gone:
		return errors.New("the parent process exited before fini was ready, so fini does not start the command; -p none starts the command even so")
	}
	if launcher.FD < 0 && k.line.FD < 0 {
		// There are no pidfds, or the parent process is outside of the PID namespace.
		if launcher.TakeSlot(entry.ParentSignal); launcher.Gone {
			return fmt.Errorf("the parent process: %w", pdeath.ErrGone)
		}
		k.kept.Signal = syscall.Signal(launcher.Kept)
	}
	if launcher.Err != 0 {
		k.Sayf(life.Always, "cannot set a parent death signal: %v: going on without a bond to the parent process", launcher.Err)
		return nil
	}
	k.bySignal = launcher.FD < 0
	watch(launcher.FD, launcher.Pid, life.ParentDied)
	return nil
}

// launcher returns the process that started fini. In a pair the outer fini is its child.
func (k *kernel) launcher() pdeath.Launcher {
	l := k.self.Parent
	if l.Pid != 0 {
		adopted := l.Session >= 0 && pdeath.Adopted(k.self.Pid, k.self.Session, l.Pid, l.Session)
		l.Gone = l.Gone || adopted || k.line.FD < 0 && l.Died()
	}
	return l
}

// byNohup reports whether nohup(1) started fini: fini ignores SIGHUP, and its parent process does not ignore SIGHUP, or
// has exited already, like the shell of "nohup fini &".
func byNohup(launcher pdeath.Launcher, self int) bool {
	switch name := proc.Name(launcher.Pid); {
	case name == entry.InnerName, name != "" && name == proc.Name(self):
		return false // the parent process is another fini, which catches the signals that it ignored at first
	case launcher.Gone, launcher.Pid == 0:
		return true
	}
	return !pdeath.Ignores(launcher.Pid, syscall.SIGHUP)
}
