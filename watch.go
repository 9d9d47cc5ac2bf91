package main

import (
	"syscall"
	"time"
)

// watch is the machine of the outer fini of a pair: it passes signals on to the inner one, and
// does that one's work if it is killed.
//
//	what happens                               what follows
//	a signal                                   it is relayed
//	SIGTSTP in an orphaned job                 the job is continued
//	the inner one is stopped by a signal       the parent process is watched in its stead
//	a reason to stop, or a signal that asks    the inner one is continued, if it is stopped,
//	for an end                                 to act on it
//	the inner one has ended, and has told how  over: fini ends in the same way
//	it has ended without a word                it was killed, in the midst of its work: a sweep,
//	                                           asking
//	it is isolated, and has told something     see lastWatch
type watch struct {
	rules
	inner     int
	isStopped bool
	ending    bool // there was a reason to stop
}

func (w *watch) mayDelayReap() bool { return true }

func (w *watch) step(now time.Duration, e event) (do []action, next machine) {
	switch e := e.(type) {
	case received:
		if w.orphaned && e.sig == syscall.SIGTSTP {
			// The kernel stops nobody in an orphaned process group, since nobody would continue it. It has
			// stopped this one only because the inner fini, the command's parent, is in another one.
			return []action{resume{}}, w
		}
		do = []action{relay{e}}
		if w.asksForEnd(e.sig) {
			do = append(do, w.letGoOn()...)
		}
	case stop:
		w.ending = true
		do = w.letGoOn()
	case ended:
		return w.ended(now, e)
	case told:
		return w.lastWord(e.Told)
	}
	return do, w
}

func (w *watch) letGoOn() []action {
	if !w.isStopped {
		return nil
	}
	w.isStopped = false
	return []action{forward{syscall.SIGCONT}}
}

func (w *watch) ended(now time.Duration, e ended) (do []action, next machine) {
	over, status := e.hidden, syscall.WaitStatus(syscall.SIGKILL) // if a tracer keeps the true one
	for _, x := range e.exits {
		switch {
		case x.Pid != w.inner:
		case x.Status.Stopped():
			w.isStopped = true
			do = append(do, watchAll{})
			if w.ending {
				do = append(do, w.letGoOn()...)
			}
		case x.Status.Continued():
			w.isStopped = false
		default:
			over, status = true, x.Status
		}
	}
	switch {
	case !over:
		return do, w
	case e.told.Done:
		return append(do, exit{result: resultOf(e.told.Status)}), nil
	}
	return w.takeOver(now, status, e)
}

// takeOver stops what the inner one has left behind. The command was not at its end, so no
// policy leaves anything alone.
func (w *watch) takeOver(now time.Duration, status syscall.WaitStatus, e ended) ([]action, machine) {
	s := newSweep(w.rules)
	s.policy, s.main = stopAll, e.told.Pid
	if s.result = resultOf(status); s.result.sig == 0 {
		s.result.code = exitFailed // its runtime gave up
	}
	if e.asked {
		s.had.pid = e.told.Pid
	}
	if e.none {
		return s.finish()
	}
	do := []action{say{warning, "stopping the command: its fini was killed"}}
	rest, next := s.ask()
	return append(do, rest...), next
}
