package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/reaper"
)

// guard is the machine of the outer fini of a pair: it passes signals on to the inner one, and
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
//	it is isolated, and has told something     see lastGuard
type guard struct {
	Rules
	inner     int
	isStopped bool
	ending    bool // there was a reason to stop, or a signal that asks for an end
}

func (g *guard) mayDelayReap() bool { return true }

func (g *guard) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case received:
		if g.Orphaned && e.sig == syscall.SIGTSTP {
			// The kernel stops nobody in an orphaned process group, since nobody would continue it. It has
			// stopped this one only because the inner fini, the command's parent, is in another one.
			return []action{resume{}}, g
		}
		do = []action{relay{e}}
		if g.asksForEnd(e.sig) {
			g.ending = true // a stop from before that may be told of only now
			do = append(do, g.letGoOn()...)
		}
	case stop:
		g.ending = true
		do = g.letGoOn()
	case ended:
		return g.ended(now, e)
	case told:
		return g.lastWord(e.Told)
	}
	return do, g
}

func (g *guard) letGoOn() []action {
	if !g.isStopped {
		return nil
	}
	g.isStopped = false
	return []action{forward{syscall.SIGCONT}}
}

func (g *guard) ended(now time.Duration, e ended) (do []action, next Machine) {
	over, status := e.hidden, syscall.WaitStatus(syscall.SIGKILL) // if a tracer keeps the true one
	for _, x := range e.exits {
		switch {
		case x.Pid != g.inner:
		case x.Status.Stopped():
			g.isStopped = true
			do = append(do, watchAll{})
			if g.ending {
				do = append(do, g.letGoOn()...)
			}
		case x.Status.Continued():
			g.isStopped = false
		default:
			over, status = true, x.Status
		}
	}
	switch {
	case !over:
		return do, g
	case e.told.Done:
		return append(do, exit{result: ResultOf(e.told.Status)}), nil
	}
	return g.takeOver(now, status, e)
}

// takeOver stops what the inner one has left behind. The command was not at its end, so no
// policy leaves anything alone.
func (g *guard) takeOver(now time.Duration, status syscall.WaitStatus, e ended) ([]action, Machine) {
	s := newSweep(g.Rules)
	s.Orphans, s.main = StopAll, e.told.Pid
	if s.result = ResultOf(status); s.result.Sig == 0 {
		s.result.Code = ExitFailed // its runtime gave up
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

// lastGuard waits, for a bounded time, until an isolated inner fini that has told its last has gone. That
// one goes only after all in its namespace has.
type lastGuard struct {
	*guard
	result Result
}

// lastWord takes in the last that an isolated inner fini has told, or that it ends without a word.
func (g *guard) lastWord(t reaper.Told) ([]action, Machine) {
	last := lastGuard{g, Result{Sig: syscall.SIGKILL}}
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

func (l lastGuard) step(now time.Duration, e event) (do []action, next Machine) {
	if _, ok := e.(elapsed); ok {
		return []action{
			say{Failure, "gave up on the PID namespace: a process in it does not end"},
			exit{result: l.result},
		}, nil
	}
	do, next = l.guard.step(now, e)
	if next == Machine(l.guard) {
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
