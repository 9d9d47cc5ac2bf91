package host

// This file binds the command to the parent process, to --bind processes, and to the outer fini of a pair.

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

// A bond is something whose end is a reason to stop the command, such as a process or standard input.
type bond struct {
	fd     int // a pidfd, the socket to the outer fini, or standard input; -1 if a signal is used instead, or it has ended
	events int16
	pid    int
	name   string // name of the process, for messages
	why    life.Reason
}

// bind makes fini stop the command when the outer fini, a --bind process or the parent process exits. It doesn't watch
// the parent process with -p none. Without -p, it doesn't if fini is PID 1, if nohup(1) started fini, or if the parent
// process is outside of the PID namespace.
func (k *system) bind(processes []int, pdeathsig *syscall.Signal) error {
	parent := k.parent()
	watch := func(fd, pid int, why life.Reason) {
		k.bonds = append(k.bonds, bond{fd: fd, events: unix.POLLIN, pid: pid, name: proc.Name(pid), why: why})
	}
	if k.socket.FD >= 0 {
		watch(k.socket.FD, k.self.Pid, life.FiniDied)
	}
	for _, pid := range processes {
		bound, err := pdeath.Process(pid)
		if err != nil {
			return fmt.Errorf("cannot bind the command to process %d: %w", pid, err)
		}
		watch(bound.FD, pid, life.BoundEnded)
	}
	asked := pdeathsig != nil
	switch {
	case asked && *pdeathsig == 0, !asked && k.rules.Initial:
		return nil
	case !asked && signals.Ignored(syscall.SIGHUP) && byNohup(parent, k.self.Pid):
		k.Sayf(life.Detail, "the command will keep running if fini's parent dies, because nohup started fini; -p TERM "+
			"prevents this")
		return nil
	case !asked && parent.Pid == 0:
		k.Sayf(life.Detail, "the command will keep running if fini's parent dies, because that is outside of the PID "+
			"namespace")
		return nil
	case parent.Gone:
		return errors.New("the parent process exited before fini was ready, so the command was not started; -p none starts " +
			"it anyway")
	}
	if parent.FD < 0 && k.socket.FD < 0 {
		// Either there are no pidfds, or the parent process is outside of the PID namespace.
		if parent.TakeSlot(entry.ParentSignal); parent.Gone {
			return fmt.Errorf("the parent process: %w", pdeath.ErrGone)
		}
		k.self.Parent.Kept = parent.Kept
	}
	if parent.Err != 0 {
		k.Sayf(life.Always, "cannot set a parent death signal: %v: the command will keep running if fini's parent dies",
			parent.Err)
		return nil
	}
	k.bySignal = parent.FD < 0
	watch(parent.FD, parent.Pid, life.ParentDied)
	return nil
}

// byNohup reports whether nohup(1) started fini, with SIGHUP ignored. The parent process does not ignore SIGHUP itself
// or, like the shell of "nohup fini &", has exited already.
func byNohup(parent entry.Parent, self int) bool {
	switch name := proc.Name(parent.Pid); {
	case name == entry.InnerName, name != "" && name == proc.Name(self):
		return false // the parent process is another fini, which catches the signals that it inherited as ignored
	case parent.Gone, parent.Pid == 0:
		return true
	}
	return !ignores(parent.Pid, syscall.SIGHUP)
}
