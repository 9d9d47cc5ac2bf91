package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/reaper"
)

// watch is the machine of the outer fini of a pair: it passes signals on to the inner one, and
// does that one's work if it is killed.
//
//	what happens                               what follows
//	a signal                                   it is relayed
//	SIGTSTP in an orphaned job                 the job is continued
//	the inner one is stopped by a signal       the parent process is watched in its stead
//	a reason to stop, or a signal that asks    the inner one is continued, if it is stopped, or is
//	for an end                                 from now on, to act on it
//	the inner one has ended, and has told how  over: fini ends in the same way
//	it has ended without a word                it was killed, in the midst of its work: a sweep,
//	                                           asking
//	it is isolated, and has told something     see lastWatch
type watch struct {
	Rules
	inner     int
	isStopped bool
	ending    bool // there was a reason to stop, or a signal that asks for an end
}

func (w *watch) mayDelayReap() bool { return true }

func (w *watch) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case received:
		if w.Orphaned && e.sig == syscall.SIGTSTP {
			// The kernel stops nobody in an orphaned process group, since nobody would continue it. It has
			// stopped this one only because the inner fini, the command's parent, is in another one.
			return []action{resume{}}, w
		}
		do = []action{relay{e}}
		if w.asksForEnd(e.sig) {
			w.ending = true // a stop from before that may be told of only now
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

func (w *watch) ended(now time.Duration, e ended) (do []action, next Machine) {
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
		return append(do, exit{result: ResultOf(e.told.Status)}), nil
	}
	return w.takeOver(now, status, e)
}

// takeOver stops what the inner one has left behind. The command was not at its end, so no
// policy leaves anything alone.
func (w *watch) takeOver(now time.Duration, status syscall.WaitStatus, e ended) ([]action, Machine) {
	s := newSweep(w.Rules)
	s.Orphans, s.main = StopAll, e.told.Pid
	if s.result = ResultOf(status); s.result.Sig == 0 {
		s.result.Code = exitFailed // its runtime gave up
	}
	if e.asked {
		s.had.pid = e.told.Pid
	}
	if e.none {
		return s.finish()
	}
	do := []action{say{Warning, "stopping the command: its fini was killed"}}
	rest, next := s.ask()
	return append(do, rest...), next
}

// lastWatch waits, for a bounded time, until an isolated inner fini that has told its last has gone. That
// one goes only after all in its namespace has.
type lastWatch struct {
	*watch
	result Result
}

// lastWord takes in the last that an isolated inner fini has told, or that it ends without a word.
func (w *watch) lastWord(t reaper.Told) ([]action, Machine) {
	last := lastWatch{w, Result{Sig: syscall.SIGKILL}}
	if t.Done {
		last.result = ResultOf(t.Status)
	}
	switch {
	case t.Stays:
		return []action{exit{result: last.result}}, nil
	case t.Done:
		return []action{wake{refusedBound}}, last
	}
	return []action{wake{killedBound}}, last
}

func (l lastWatch) step(now time.Duration, e event) (do []action, next Machine) {
	if _, ok := e.(elapsed); ok {
		return []action{
			say{Failure, "gave up on the PID namespace: a process in it does not end"},
			exit{result: l.result},
		}, nil
	}
	do, next = l.watch.step(now, e)
	if next == Machine(l.watch) {
		next = l
	}
	return do, next
}

// remaining is the machine of an isolated inner fini whose command and whose outer one are gone:
// it reaps until nobody is left, or somebody ends it.
type remaining struct{}

func (remaining) mayDelayReap() bool { return true }

func (r remaining) step(_ time.Duration, e event) ([]action, Machine) {
	switch e := e.(type) {
	case ended:
		if e.none {
			return nil, nil
		}
	case received:
		if e.sig == syscall.SIGTERM {
			return nil, nil
		}
	}
	return nil, r
}
