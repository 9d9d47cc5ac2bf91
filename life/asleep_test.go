package life

import (
	"slices"
	"syscall"
)

// The outer fini of a pair that entry has forked: it sleeps, as sleep in reaper/sleeper.go does, and the inner
// one has not started the command yet. The model of sleep is by hand: that one gathers what it goes by while it
// decides, so that little would be left for a function that both could share.

// A phase is how far a fini has come, of a pair that entry has forked.
type phase uint8

const (
	awake   phase = iota // and in its loop
	dozing               // the outer one, which takes SIGCHLD alone
	dormant              // the outer one, since the command was started
	forked               // the inner one, in the group of the outer one; all signals are blocked
	single               // in a group of its own; it outlives the outer one, and signals wait until they are caught
	begun                // it has started the command, and not said so
)

func (s phase) sleeps() bool { return s == dozing || s == dormant }
func (s phase) blocks() bool { return s == dozing || s == forked }

// wordBytes is how much of the inner one's word has come.
func (w *world) wordBytes() int {
	switch {
	case w.word.Done:
		return 8
	case w.word.Pid != 0 || w.standsDown:
		return 4
	}
	return 0
}

// fallAsleep makes the world of a pair one of moments before, with the outer one asleep. unstarted says that the
// command, which is the whole tree, was not started yet.
func (w *world) fallAsleep(unstarted bool) {
	outer := &w.finis[0]
	outer.Loop, outer.phase, outer.bound = Loop{}, dormant, slices.Clone(outer.whileStopped)
	if unstarted {
		inner := w.get(w.cast.inner)
		inner.group, inner.is, inner.deathsig = w.top().group, isFini, syscall.SIGKILL
		w.get(w.cast.main).state, w.word.Pid = 0, 0
		outer.phase, w.finis[1].phase = dozing, forked
	}
}

// startMain starts the command.
func (w *world) startMain(by *fini, deathsig syscall.Signal) {
	self := w.get(by.id)
	p := w.fork(self)
	p.id, p.pid, p.group, p.is, p.deathsig = w.cast.main, firstMain, firstMain, ofTree, deathsig
	if w.rules.Job != 0 {
		p.group = w.rules.Job
	}
}

// beginning is what an inner fini does before its loop.
func (w *world) beginning(f *fini) {
	self := w.get(f.id)
	switch f.phase {
	case forked:
		w.setpgid(self)
		f.caught = nil // the outer one has them, too
		self.is, self.deathsig = self.is|subreaper, 0
	case single:
		w.startMain(f, syscall.SIGTERM)
	case begun:
		w.word.Pid = firstMain
	}
	f.phase = (f.phase + 1) % (begun + 1)
	w.scene("inner begins")
}

// awaits reports whether there is something for one that sleeps.
func (w *world) awaits(f *fini) bool {
	return w.ended(f.mainID) || f.child || f.phase == dormant && len(f.caught) > 0 || w.bondEnded(f) ||
		f.phase == dozing && w.wordBytes() >= 4 && !w.standsDown
}

// asleep is one round of sleep.
func (w *world) asleep(f *fini) {
	self, inner, told := w.get(f.id), w.get(f.mainID), w.wordBytes()
	took := func(what, after string) {
		w.supply.rows.one("asleep", what, after)
		w.scene("outer, asleep: %s -> %s", what, after)
	}
	if f.phase == dozing && told >= 4 && !w.standsDown {
		f.phase = dormant
		for i := range f.caught {
			f.caught[i].kernel = false // the command may not have had it
		}
		if at := slices.IndexFunc(f.caught, func(c caught) bool { return c.sig == syscall.SIGTSTP }); at >= 0 && w.stopsByKey(self) {
			f.caught = slices.Delete(f.caught, at, at+1)
			w.catch(inner, syscall.SIGTSTP, 0, false, true)
			w.deliver(self, syscall.SIGTSTP, 0, true)
			return
		}
	}
	switch plain := inner.status.Exited() && !inner.has(traced); {
	case !w.ended(inner.id):
		w.takeSignal(f, inner, took)
	case told == 4 && w.standsDown:
		took("the inner one stands down", "running")
		inner.state, w.cast.inner = 0, 0
		w.startMain(f, syscall.SIGKILL)
		anew := w.finis[1]
		anew.id, anew.inner, anew.said, anew.caught, anew.rules.Self = f.id, false, false, f.caught, self.pid
		anew.bound = anew.bound[1:] // but for the outer one
		anew.Loop = *New(nil, Alone, anew.rules, firstMain, true)
		anew.timeout = w.supply.timeout
		w.finis = []fini{anew}
	case told < 4 && plain:
		took("it has started nothing", "over")
		w.leaves(f, inner, inner.status)
	case told == 8:
		took("the inner one has told its end", "over")
		w.leaves(f, inner, w.word.Status)
	default:
		took("it has ended without a word", "watching")
		w.wake(f)
	}
}

// takeSignal takes one: the kernel gives that of the lowest number first.
func (w *world) takeSignal(f *fini, inner *proc, took func(what, after string)) {
	if w.bondEnded(f) {
		f.bound, f.reason = nil, true
	}
	if len(f.caught) > 0 && f.phase == dormant && (!f.child || f.caught[0].sig < syscall.SIGCHLD) {
		took("a signal", "relayed")
		got := f.caught[0]
		f.caught = slices.Clone(f.caught[1:])
		f.reason = f.reason || w.rules.asksForEnd(got.sig)
		w.catch(inner, got.sig, got.sender, got.kernel, true)
	} else {
		f.child = false
	}
	if f.reason && inner.changed == stopped {
		took("the inner one is stopped, and has a reason to end", "continues it")
		_ = w.kill(w.get(f.id), inner, syscall.SIGCONT)
	}
}

// wake makes one that sleeps go on to its loop, with all signals that it has not taken.
func (w *world) wake(f *fini) {
	rules := w.rules
	rules.Self = w.get(f.id).pid
	if main := w.get(w.cast.main); main != nil && w.word.Pid == 0 {
		main.mark.byKernel = false // the inner one has not said whom it started, who has had it: a limit
		w.may(syscall.SIGTERM, false)
	}
	f.bound = nil
	f.phase, f.Loop = awake, *New(nil, Outer, rules, w.get(f.mainID).pid, true)
}

// leaves ends one that sleeps.
func (w *world) leaves(f *fini, inner *proc, status syscall.WaitStatus) {
	inner.state, f.said, f.result = 0, true, ResultOf(status)
	w.endOf(f)
}

// isBeginning and isInner are who the moves below are made by.
func isBeginning(w *world, p *proc) bool {
	f := w.fini(p.id)
	return f != nil && (f.phase == forked || f.phase == single) && p.state == 'S'
}

func isInner(w *world, p *proc) bool {
	return p.id == w.cast.inner && p.state == 'S' && w.word.Pid != 0 && !w.word.Done // before that, what it has started is left: a limit
}

// endEarly ends an inner fini of itself.
func (w *world) endEarly(p *proc, code int) {
	w.ghost.early = code
	f := w.fini(p.id)
	f.said, f.machine, f.phase = true, nil, awake
	f.queue, f.todo = nil, nil
	w.exit(p, exited(code))
}

var sleeperMoves = []move{
	{"stands down", 1, func(w *world, p *proc) bool { return isBeginning(w, p) && w.fini(p.id).phase == forked },
		func(w *world, p *proc) {
			w.standsDown = true
			w.endEarly(p, 0)
			w.ghost.early = 0
		}},
	{"can't start the command", 1, isBeginning, func(w *world, p *proc) {
		code := 125 // what it reads says so
		if w.fini(p.id).phase == single {
			code, w.word.Done, w.word.Status = 127, true, exited(127)
		}
		w.endEarly(p, code)
	}},
	{"gives up", 1, isInner, func(w *world, p *proc) { // its runtime does
		w.endEarly(p, 2)
		w.ghost.early = ExitFailed
		w.ghost.killed++
		w.oblige(w.ladder())
	}},
}

func init() { moves = append(moves, sleeperMoves...) }
