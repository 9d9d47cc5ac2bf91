package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
)

// A pair in the model: the line between the two processes, the steps of the inner fini before its loop, and the outer
// fini, which sleeps. The outer fini decides by entry.Sleeper, which is the very code. Only the loop around that is
// modelled here: sleep in entry/sleep.go. Something else can happen before each of its system calls.

// A phase is how far a fini has come.
type phase uint8

const (
	awake  phase = iota // in its loop
	dozing              // the outer one, before it has a runtime

	// The inner one, before its loop.
	forked   // in the group of the outer one, and killed with that
	settled  // it outlives the outer one
	starting // it has said so
	spawned  // it has started the command
	reported // and said so
)

// A sleeper is an outer fini that sleeps.
type sleeper struct {
	entry.Sleeper
	at        place
	takes     takes
	signal    caught // that was read; none if its sig is 0
	letsGo    bool   // Started was received in this round
	drains    bool   // what came before Started is taken now, and no signal is known to be a key
	stoppable bool   // TSTP stops it
	staysUp   bool   // it was to end when it took a TSTP that waited for Started
	hungUp    bool
	saidSo    bool // and Step knows
	parent    bool // its end was seen
	deadline  time.Duration
}

// A place is where a sleeper stands in a round of its loop.
type place uint8

const (
	polls place = iota
	receives
	lets
	hangsUp
	tires
	looksUp
	takesSignal
	looksDown
)

// takes are the signals that a sleeper receives.
type takes uint8

const (
	onlyEnding takes = iota // terminating ones, see process.wanted
	held                    // none of these either
	everything              // all
)

func (t takes) has(sig syscall.Signal) bool {
	return t == everything || sig == syscall.SIGCHLD || sig == parentSignal || t == onlyEnding && asksForEnd(sig)
}

const parentSignal = syscall.Signal(entry.ParentSignal)

// say sends a message to a process of the pair.
func (w *world) say(to handle, m entry.Message) {
	f := w.fini(to)
	if p := w.get(to); f == nil || p == nil || !p.alive() {
		return
	}
	f.line = append(slices.Clone(f.line), m)
	w.scene("line: %s is told %s", w.name(to), kindName(m))
}

func kindName(m entry.Message) string {
	name := [...]string{"nothing", "BeAlone", "Starting", "Started", "Done", "Signal", "ParentDied"}[m.Kind]
	return fmt.Sprintf("%s %d", name, m.Value)
}

// sayStarted is what the inner fini says once the command runs.
func (w *world) sayStarted() {
	m := entry.Message{Kind: entry.Started, Value: firstMain}
	if w.rules.Job != 0 {
		m.Job = entry.InJob
	}
	if w.orphaned {
		m.Job |= entry.Orphaned
	}
	w.say(w.cast.outer, m)
}

// fallAsleep makes the outer fini a sleeper. If the command was not started yet, there is no tree either.
func (w *world) fallAsleep(unstarted bool) {
	outer, inner := &w.finis[0], &w.finis[1]
	outer.Loop, outer.phase, outer.bound = Loop{records: &records{}}, dozing, nil
	outer.sleeper.Self = w.get(outer.id).pid
	if !unstarted {
		w.sayStarted()
		outer.sleeper.Step(entry.Seen{What: entry.Said, Message: outer.line[0]})
		outer.line, outer.sleeper.takes, outer.sleeper.stoppable = nil, everything, w.rules.Job != 0 && !w.orphaned
		w.ghost.started = true
		return
	}
	w.pristine, w.mainIs = *inner, w.get(w.cast.main).is
	p := w.get(inner.id)
	w.beForked(p)
	inner.phase = forked
	for i := range w.all {
		if w.all[i].has(ofTree) {
			w.all[i].state = 0
		}
	}
}

// beForked makes a process an inner fini that was forked just now.
func (w *world) beForked(p *proc) {
	p.group, p.is, p.deathsig = w.top().group, isFini, syscall.SIGKILL
}

// startMain starts the command.
func (w *world) startMain(by *fini, deathsig syscall.Signal) {
	if w.ghost.endBy != 0 {
		w.breach("bounded", "the command is started, and fini was asked to end by %d before", w.ghost.endBy)
	}
	p := w.fork(w.get(by.id))
	p.id, p.pid, p.group, p.is, p.deathsig = w.cast.main, firstMain, firstMain, w.mainIs, deathsig
	if w.rules.Job != 0 {
		p.group = w.rules.Job
	}
}

// beginning is what an inner fini does before its loop.
func (w *world) beginning(f *fini) {
	w.scene("inner begins")
	self := w.get(f.id)
	switch f.phase {
	case forked:
		self.is, self.deathsig, f.phase = self.is|subreaper, 0, settled
	case settled:
		w.say(w.cast.outer, entry.Message{Kind: entry.Starting})
		w.setpgid(self)
		f.phase = starting
	case starting:
		w.startMain(f, syscall.SIGTERM)
		for i := range f.caught {
			f.caught[i].early = true
		}
		f.phase = spawned
	case spawned:
		w.sayStarted()
		w.ghost.started = true
		f.phase = reported
	case reported:
		f.phase = awake
	}
}

// pends is the signal that a sleeper reads next. Low numbers come first: see signal(7).
func (w *world) pends(f *fini) (got caught, ok bool) {
	i := slices.IndexFunc(f.caught, func(c caught) bool { return f.sleeper.takes.has(c.sig) })
	if f.child && (i < 0 || f.caught[i].sig > syscall.SIGCHLD) {
		return caught{sig: syscall.SIGCHLD, kernel: true}, true
	}
	if i < 0 {
		return got, false
	}
	return f.caught[i], true
}

// read takes that signal.
func (w *world) read(f *fini) bool {
	got, ok := w.pends(f)
	if !ok {
		return false
	}
	f.sleeper.signal = got
	if got.sig == syscall.SIGCHLD {
		f.child = false
	} else {
		f.caught = slices.DeleteFunc(slices.Clone(f.caught), func(c caught) bool { return c.sig == got.sig })
	}
	return true
}

// mayTake reports whether a sleeper acts on the signal that it has read.
func (s *sleeper) mayTake() bool { return s.signal.sig != 0 && (s.Main != 0 || !s.Starting) }

// isTired reports whether a second has passed since Starting.
func (s *sleeper) isTired(now time.Duration) bool {
	return s.Starting && !s.hungUp && s.deadline != 0 && now >= s.deadline
}

// parentGone reports whether a sleeper has yet to see the end of the parent process.
func (w *world) parentGone(s *sleeper) bool {
	return !w.noPidfds && !s.parent && w.ended(w.cast.shell)
}

// waitable reports whether the inner fini can be reaped.
func (w *world) waitable() bool {
	p := w.get(w.cast.inner)
	return p.state == 'Z' && !p.has(traced)
}

// awaits reports whether there is something for a sleeper.
func (w *world) awaits(f *fini) bool {
	s := &f.sleeper
	_, pending := w.pends(f)
	return pending && s.signal.sig == 0 || len(f.line) > 0 || s.letsGo || s.at == lets ||
		w.ended(w.cast.inner) && !s.saidSo || s.isTired(w.now) || w.parentGone(s) || s.mayTake() ||
		s.hungUp && (w.waitable() || w.now >= s.deadline)
}

// asleep lets a sleeper go on to behind its next system call that others can see.
func (w *world) asleep(f *fini) {
	s := &f.sleeper
	for range 20 {
		at := s.at
		s.at = (s.at + 1) % (looksDown + 1)
		switch at {
		case polls:
			if s.signal.sig == 0 && w.read(f) {
				w.scene("outer, asleep: reads signal %d", s.signal.sig)
				return
			}
		case receives:
			w.reapEarlier(f.id)
			if len(f.line) > 0 {
				m := f.line[0]
				f.line, s.at = slices.Clone(f.line[1:]), at
				act := w.decide(f, entry.Seen{What: entry.Said, Message: m}, kindName(m))
				s.letsGo = s.letsGo || act&entry.LetGo != 0
				return
			}
			s.hungUp = s.hungUp || w.ended(w.cast.inner)
		case lets:
			if s.letsGo {
				s.letsGo, s.drains, s.takes, s.deadline = false, true, everything, 0
			}
			if !s.drains {
				break
			}
			if s.signal.sig != 0 || w.read(f) {
				s.at = at
				w.takeSignal(f, false)
				return
			}
			s.drains = false
			w.beStoppable(f)
			return
		case hangsUp:
			if s.hungUp && !s.saidSo {
				s.saidSo = true
				w.decide(f, entry.Seen{What: entry.HungUp}, "hang-up")
				return
			}
		case tires:
			if s.isTired(w.now) {
				w.supply.rows.one("asleep", "a second since Starting", "listens")
				w.decide(f, entry.Seen{What: entry.Waited}, "a second")
				return
			}
		case looksUp:
			if w.parentGone(s) {
				s.parent = true
				w.decide(f, entry.Seen{What: entry.ParentEnded}, "the parent's end")
				return
			}
		case takesSignal:
			if s.mayTake() {
				w.takeSignal(f, true)
				return
			} else if s.signal.sig != 0 {
				w.supply.rows.one("asleep", "a signal, before Started", "waits")
			}
		case looksDown:
			if s.hungUp && (w.waitable() || w.now >= s.deadline) {
				w.ending(f)
				return
			}
		}
	}
	panic("an outer fini goes round and round")
}

// reapEarlier reaps what is neither the inner fini nor the main child.
func (w *world) reapEarlier(parent handle) {
	for _, p := range w.procs() {
		if p.parent == parent && p.state == 'Z' && !p.has(traced) && p.id != w.cast.inner && p.id != w.cast.main {
			p.state = 0
		}
	}
}

// beStoppable leaves to the kernel the keys that suspend a job.
func (w *world) beStoppable(f *fini) {
	s := &f.sleeper
	s.stoppable = s.Job&entry.InJob != 0 && s.Job&entry.Orphaned == 0
	at := slices.IndexFunc(f.caught, func(c caught) bool { return c.sig == syscall.SIGTSTP })
	if s.stoppable && at >= 0 {
		f.caught = slices.Delete(slices.Clone(f.caught), at, at+1)
		w.deliver(w.get(f.id), syscall.SIGTSTP, 0, true)
	}
}

// takeSignal acts on the signal that was read. asKernel is false if the command may not have had it.
func (w *world) takeSignal(f *fini, asKernel bool) {
	s := &f.sleeper
	got := &s.signal
	seen := entry.Seen{What: entry.Signalled, Signal: uint32(got.sig), Sender: got.sender}
	if got.sig == parentSignal {
		seen = entry.Seen{What: entry.ParentEnded}
	}
	got.kernel = got.kernel && asKernel
	act := w.decide(f, seen, fmt.Sprintf("signal %d", got.sig))
	s.staysUp = s.staysUp || !asKernel && got.sig == syscall.SIGTSTP && s.Ending
	if act&entry.Kill != 0 && w.ghost.endBy == 0 {
		w.ghost.endBy = got.sig
		w.oblige(w.ladder())
	}
	*got = caught{}
}

// decide asks the very code, and carries out what does not end the sleep.
func (w *world) decide(f *fini, seen entry.Seen, what string) entry.Act {
	s := &f.sleeper
	act := s.Step(seen)
	w.scene("outer, asleep: %s: %s", what, actText(act))
	self, inner := w.get(f.id), w.get(w.cast.inner)
	rows := w.supply.rows
	if act&entry.Hold != 0 {
		s.takes, s.deadline = held, w.now+time.Second
	}
	if act&entry.Listen != 0 {
		s.takes, s.deadline = onlyEnding, 0
	}
	if act&entry.Relay != 0 {
		rows.one("asleep", "a signal", "relayed")
		m := entry.Message{Kind: entry.Signal, Value: uint32(s.signal.sig), Sender: int32(s.signal.sender)}
		if s.signal.kernel {
			m.Sender = entry.Kernel
		}
		w.say(inner.id, m)
	}
	if act&entry.TellParent != 0 && w.noPidfds {
		rows.one("asleep", "the parent process has died, without pidfds", "tells the inner one")
		w.say(inner.id, entry.Message{Kind: entry.ParentDied})
	}
	if act&entry.Continue != 0 && inner.changed == stopped {
		why := map[bool]string{true: "SIGCHLD", false: "a signal to end"}[s.signal.sig == syscall.SIGCHLD]
		if seen.What == entry.ParentEnded {
			why = "the parent process has died"
		}
		rows.one("asleep", why, "continues the inner one")
		_ = w.kill(self, inner, syscall.SIGCONT)
	}
	if act&entry.ContinueJob != 0 {
		rows.one("asleep", "SIGTSTP in a job that would be orphaned without the inner fini", "continues the job")
		_ = w.killGroup(self, self.group, syscall.SIGCONT)
	}
	if act&entry.Suspend != 0 {
		rows.one("asleep", "SIGTSTP, SIGTTIN or SIGTTOU that waited for Started, in a job", "suspends fini")
		w.ghost.suspended = true
		w.beStoppable(f)
		w.deliver(self, s.signal.sig, self.pid, false)
	}
	if act&entry.Kill != 0 {
		rows.one("asleep", "a signal, before Starting", "kills the inner one")
		_ = w.kill(self, inner, syscall.SIGKILL)
	}
	if act&entry.AwaitEnd != 0 {
		s.deadline = w.now + time.Second
	}
	return act
}

// ending is the end of the sleep.
func (w *world) ending(f *fini) {
	s, inner := &f.sleeper, w.get(w.cast.inner)
	seen := entry.Seen{What: entry.Ended, Status: uint32(inner.status)}
	how := "the inner fini has ended, after Done"
	switch waitable := w.waitable(); {
	case waitable:
		inner.state = 0
		if !s.Done {
			how = "the inner fini has ended"
		}
	default:
		seen.What, seen.Status = entry.TimeUp, uint32(syscall.SIGKILL)
		how = "the inner fini has not ended within the bound"
	}
	seen.Children = len(w.childrenOf(f.id)) > 0
	act := w.decide(f, seen, how)
	took := func(after string) { w.supply.rows.one("asleep", how, after) }
	switch {
	case act&entry.Exit != 0:
		took("over")
		f.said, f.result = true, ResultOf(syscall.WaitStatus(s.Status))
		w.endOf(f)
	case s.BeAlone:
		took("running")
		w.beAlone(f)
	case act&entry.StartRuntime != 0:
		took("is the heir")
		w.wake(f)
	default:
		w.breach("the pair", "outer does nothing about the end of inner")
	}
}

// beAlone makes an outer fini the only one, which starts the command. Signals that it has not taken are kept.
func (w *world) beAlone(f *fini) {
	anew := w.pristine
	anew.copy()
	anew.id, anew.inner, anew.caught, anew.child, anew.rules.Outer = f.id, false, f.caught, f.child, 0
	anew.bound = anew.bound[1:] // but for the outer fini
	if w.rules.Job != 0 && !w.orphaned {
		// SIGTSTP is the kernel's again, and suspends fini before the main child is there, until the shell continues both.
		anew.caught = slices.DeleteFunc(slices.Clone(anew.caught), func(c caught) bool { return c.sig == syscall.SIGTSTP })
	}
	for i := range anew.caught {
		anew.caught[i].early = true // the main child may not have been there
	}
	if w.noPidfds {
		anew.bound = append(anew.bound, bond{w.cast.shell, ParentDied})
		w.get(f.id).deathsig = 0
		anew.caught = slices.DeleteFunc(slices.Clone(anew.caught), func(c caught) bool { return c.sig == parentSignal })
	}
	anew.phase = awake
	w.cast.inner = 0
	w.finis = []fini{anew}
	w.startMain(&w.finis[0], syscall.SIGKILL)
}

// wake makes a sleeper the heir, as inherit in main.go does.
func (w *world) wake(f *fini) {
	s := &f.sleeper
	f.phase, f.heir, f.caught, f.line = awake, true, nil, nil
	f.mainID = w.cast.main
	w.ghost.overruled, w.ghost.unwait = true, true
	// Everybody is asked once more, and once only.
	w.ghost.lookedToAsk, w.ghost.begun = false, false
	w.may(syscall.SIGTERM, false)
	for _, p := range w.procs() {
		p.mark.asks, p.mark.hadTerm, p.mark.afterAsk = 0, false, false
	}
	result := ResultOf(syscall.WaitStatus(s.Status))
	switch {
	case s.EndBy != 0:
		result = Result{Sig: syscall.Signal(s.EndBy)}
	case result.Sig == 0:
		result.Code = ExitFailed
	}
	rules := Rules{Policy: w.rules.Policy}
	f.Loop = *NewHeir(&kernel{w: w, f: f}, rules, int(s.Main), result)
}

// heard is what the outer fini has told an inner one, as in the loop of package main.
func (w *world) heard(f *fini, woken *Woken) {
	for _, m := range f.line {
		switch m.Kind {
		case entry.Signal:
			got := w.signal(f, caught{sig: syscall.Signal(m.Value), sender: max(int(m.Sender), 0), kernel: m.Sender == entry.Kernel})
			got.Relayed = true
			woken.Signals = append(woken.Signals, got)
		case entry.ParentDied:
			woken.Stop = append(woken.Stop, ParentDied)
		}
	}
	f.line = nil
}

// used reports whether a move was made.
func (w *world) used(name string) bool {
	return w.supply.used[moveOf(name)] > 0
}

// next is when a fini wants to be woken.
func (f *fini) next() time.Duration {
	if f.phase == dozing {
		return f.sleeper.deadline
	}
	return f.Loop.next()
}

// isBeginning, mayAsk and isInner are who the moves below are made by.
func isBeginning(w *world, p *proc) bool {
	f := w.fini(p.id)
	return f != nil && (f.phase == forked || f.phase == settled || f.phase == starting) && p.state == 'S'
}

func mayAsk(w *world, p *proc) bool { return isBeginning(w, p) && w.fini(p.id).phase == forked }

func isInner(w *world, p *proc) bool {
	return p.id == w.cast.inner && p.state == 'S' && w.ghost.started && !w.ghost.done // before that, what it has started is left: a limit
}

// endEarly ends an inner fini of itself.
func (w *world) endEarly(p *proc, code int) {
	w.ghost.early = code
	f := w.fini(p.id)
	f.said, f.machine, f.phase = true, nil, awake
	f.queue, f.todo = nil, nil
	w.exit(p, exited(code))
}

// asks makes an inner fini ask for another life, and exit.
func asks(kind entry.Kind) func(*world, *proc) {
	return func(w *world, p *proc) {
		w.say(w.cast.outer, entry.Message{Kind: kind})
		w.endEarly(p, 0)
		w.ghost.early = 0
	}
}

var pairMoves = []move{
	{"asks for no pair", 1, mayAsk, asks(entry.BeAlone)},
	{"can't start the command", 1, isBeginning, func(w *world, p *proc) {
		code := 125 // what it reads says so
		if w.fini(p.id).phase == starting {
			code = 127
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
