package life

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/signals"
)

// A pair in the model: the socket between the two processes, the steps of the inner fini before its loop, and the outer
// fini, which sleeps. What the outer fini looks for, and what it makes of that, is entry.Sleeper's, which is the very code. Only
// what the kernel shows to it, and does for it, is modelled here.

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
	deadline time.Duration // 0 if it has none
	asked    time.Duration // when it relayed the first SIGTERM
	staysUp  bool          // it was to end when it took a TSTP that waited for Started
}

const (
	parentSignal = syscall.Signal(entry.ParentSignal)
	room         = 2 // messages to the inner fini fill the socket
)

// takes reports whether a signal is caught, and neither waits nor is the kernel's.
func (s *sleeper) takes(sig syscall.Signal) bool { return s.Takes()>>(sig-1)&1 != 0 }

// say sends a message to a process of the pair.
func (w *world) say(to handle, m entry.Message) {
	f := w.fini(to)
	if p := w.get(to); f == nil || p == nil || !p.alive() {
		return
	}
	f.socket = append(slices.Clone(f.socket), m)
	w.scene("socket: %s is told %s", w.name(to), kindName(m))
}

func kindName(m entry.Message) string {
	name := [...]string{"nothing", "BeAlone", "Starting", "Started", "Done", "Signal", "ParentDied", "HungUp"}[m.Kind]
	return fmt.Sprintf("%s %d", name, m.Value)
}

// sayStarted is what the inner fini says once the command runs.
func (w *world) sayStarted() {
	m := entry.Message{Kind: entry.Started, Value: firstMain}
	if w.rules.Job != NoJob {
		m.InJob = true
	}
	w.say(w.cast.outer, m)
}

// fallAsleep makes the outer fini a sleeper. If the command was not started yet, there is no tree either.
func (w *world) fallAsleep(unstarted bool) {
	outer, inner := &w.finis[0], &w.finis[1]
	outer.Loop, outer.phase, outer.bound = Loop{records: &records{}}, dozing, nil
	s := &outer.sleeper
	s.Self, s.Parent.Pid, s.Parent.FD = w.get(outer.id).pid, w.get(w.cast.shell).pid, -boolToInt(w.noPidfds)
	if !unstarted {
		w.sayStarted()
		s.Step(&entry.Event{Event: entry.MessageRead, Message: outer.socket[0]})
		outer.socket, s.Last, s.Early = nil, entry.Nothing, false
		w.ghost.started = true
		return
	}
	w.pristine, w.mainIs = *inner, w.get(w.cast.main).is
	p := w.get(inner.id)
	p.group, p.session, p.is, p.deathsig = w.top().group, w.top().session, isFini, syscall.SIGKILL // it was forked just now
	inner.phase = forked
	for i := range w.all {
		if w.all[i].has(ofTree) {
			w.all[i].state = 0
		}
	}
}

// startMain starts the command.
func (w *world) startMain(by *fini, deathsig syscall.Signal) {
	if w.ghost.endBy != 0 {
		w.breach("bounded", "the command is started, and fini was asked to end by %d before", w.ghost.endBy)
	}
	p := w.fork(w.get(by.id))
	p.id, p.pid, p.group, p.is, p.deathsig = w.cast.main, firstMain, firstMain, w.mainIs, deathsig
	if w.rules.Job != NoJob {
		p.group = int(w.rules.Job)
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
		if !w.orphaned {
			w.setpgid(self)
		}
		f.phase = starting
	case starting:
		if w.startMain(f, syscall.SIGTERM); w.orphaned {
			w.setsid(self)
		}
		for i := range f.caught {
			f.caught[i].Early = true
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
func (w *world) pends(f *fini) (got Signal, ok bool) {
	if i := slices.IndexFunc(f.caught, func(c Signal) bool { return f.sleeper.takes(c.Signal) }); i >= 0 {
		got, ok = f.caught[i], true
	}
	if f.child && (!ok || got.Signal > syscall.SIGCHLD) {
		return byKernel(syscall.SIGCHLD), true
	}
	return got, ok
}

// waitable reports whether the inner fini can be reaped.
func (w *world) waitable() bool {
	p := w.get(w.cast.inner)
	return p.state == 'Z' && !p.has(traced)
}

// sees is what the kernel shows to a sleeper that looks for something.
func (w *world) sees(f *fini, what entry.EventKind) (e entry.Event) {
	found := true
	switch what {
	case entry.SignalRead:
		var got Signal
		got, found = w.pends(f)
		e.Value, e.Sender = uint32(got.Signal), int32(got.Sender)
		if got.FromKernel {
			e.Sender = entry.FromKernel
		}
	case entry.MessageRead:
		if e.Kind, found = entry.HungUp, w.ended(w.cast.inner); len(f.socket) > 0 {
			e.Message, found = f.socket[0], true
		}
	case entry.WaitOver:
		found = w.late(f)
	case entry.PidfdReadable:
		found = w.ended(w.cast.shell)
	case entry.Writable:
		found = len(w.fini(w.cast.inner).socket) < room || w.ended(w.cast.inner)
		e.ParentDied = w.ended(w.cast.shell)
	case entry.Ended:
		e.Value, found = uint32(syscall.SIGKILL), w.waitable() || w.late(f)
		if w.waitable() {
			e.Value = uint32(w.get(w.cast.inner).status)
		}
		e.Children = len(w.children(f.id)) > boolToInt(w.waitable())
	}
	if found {
		e.Event = what
	}
	return e
}

// polls reports whether a sleeper that waits is woken.
func (w *world) polls(f *fini) bool {
	for what := entry.SignalRead; what <= entry.Ended; what++ {
		if f.sleeper.Heeds(what) && w.sees(f, what).Event != entry.Nothing {
			return true
		}
	}
	return w.late(f)
}

// late reports whether the time has come when a fini wants to be woken.
func (w *world) late(f *fini) bool {
	at := f.next()
	return at != 0 && w.now >= at
}

// goesOn lets a sleeper look until it sees or does something, if it does not wait before.
func (w *world) goesOn(f *fini) (e entry.Event, act entry.Act) {
	for range 20 {
		what := f.sleeper.Next()
		if what == entry.Nothing && !w.polls(f) {
			return e, 0
		}
		e = w.sees(f, what)
		if act = f.sleeper.Step(&e); e.Event != entry.Nothing || act != 0 {
			return e, act
		}
	}
	panic("an outer fini goes round and round")
}

// awaits reports whether a sleeper goes on.
func (w *world) awaits(f *fini) bool {
	try := *f
	e, act := w.goesOn(&try)
	return e.Event != entry.Nothing || act != 0
}

// asleep lets a sleeper go on to behind the next thing that it sees or does.
func (w *world) asleep(f *fini) {
	s, self, inner, early := &f.sleeper, w.get(f.id), w.get(w.cast.inner), f.sleeper.Early
	e, act := w.goesOn(f)
	sig := syscall.Signal(s.Signal.Value)
	took := func(what, after string) { w.supply.rows.one("asleep", what, after) }
	what, end := [...]string{"no other signal, or no room", "reads signal ", "", "a second", "the parent's end", "signal ", "the end"}[e.Event], ""
	switch e.Event {
	case entry.SignalRead:
		what += fmt.Sprint(int(sig))
		f.child = f.child && sig != syscall.SIGCHLD
		f.forget(sig)
		for _, p := range w.procs() { // it reaps all others
			if p.parent == f.id && p.state == 'Z' && !p.has(traced) && p != inner && p.id != w.cast.main {
				p.state = 0
			}
		}
		if !s.Heeds(entry.Writable) {
			took("a signal, before Started", "waits")
		}
	case entry.MessageRead:
		if what = kindName(e.Message); e.Kind != entry.HungUp {
			f.socket = slices.Clone(f.socket[1:])
		}
	case entry.WaitOver:
		took("a second passes after Starting", "listens")
	case entry.Writable:
		what += fmt.Sprint(int(sig))
		s.staysUp = s.staysUp || early && sig == syscall.SIGTSTP && s.Ending
	case entry.Ended:
		if end = "the inner fini has ended"; !w.waitable() {
			end = "the inner fini has not ended in time"
		} else if inner.state = 0; s.Done {
			end += ", after Done"
		}
	}
	w.scene("outer, asleep: %s", strings.TrimSuffix(what+": "+actText(act), ": "))
	if lasts := e.Event == entry.WaitOver || e.Event == entry.PidfdReadable || e.Kind == entry.HungUp; lasts && s.Heeds(e.Event) {
		w.breach("bounded", "outer, asleep, sees %s again and again", what)
	}
	if act&entry.Bound != 0 {
		s.deadline = w.now + time.Second
	}
	if act&entry.Relay != 0 {
		took("a signal", "relayed")
		if s.asked == 0 && sig == syscall.SIGTERM {
			s.asked = w.now
		}
		w.say(inner.id, entry.Message{Kind: entry.Signal, Value: s.Signal.Value, Sender: s.Signal.Sender})
	}
	if act&entry.TellParentDied != 0 {
		took("the parent process has died, without pidfds", "tells the inner one")
		w.say(inner.id, entry.Message{Kind: entry.ParentDied})
	}
	if act&entry.Continue != 0 && inner.changed == stopped {
		why := "a signal to end"
		switch {
		case e.Event == entry.Nothing:
			why = "a signal, and the socket is full"
		case e.Event == entry.PidfdReadable || act&entry.TellParentDied != 0:
			why = "the parent process has died"
		case sig == syscall.SIGCHLD:
			why = "SIGCHLD"
		}
		took(why, "continues the inner one")
		_ = w.kill(self, inner, syscall.SIGCONT)
	}
	if act&entry.BeStoppable != 0 && !s.takes(syscall.SIGTSTP) && f.forget(syscall.SIGTSTP) {
		w.deliver(self, syscall.SIGTSTP, nil)
	}
	if act&entry.Suspend != 0 {
		took("SIGTSTP, SIGTTIN or SIGTTOU that was pending at Started, in a job", "suspends fini")
		w.ghost.suspended = true
		w.deliver(self, sig, self)
	}
	if act&entry.Kill != 0 {
		took("a signal, before Starting", "kills the inner one")
		if w.ghost.endBy == 0 {
			w.ghost.endBy = sig
			w.oblige(w.ladder())
		}
		_ = w.kill(self, inner, syscall.SIGKILL)
	}
	if !s.Held { // what means nothing any more makes no other state
		s.Signal = entry.Message{}
	}
	if !s.IsBounded() {
		s.deadline = 0
	}
	switch {
	case act&entry.Exit != 0:
		took(end, "over")
		f.said, f.result = true, ResultOf(syscall.WaitStatus(s.Status))
		w.endOf(f)
	case act&entry.StartRuntime != 0 && s.Role == entry.Heir:
		took(end, "is the heir")
		w.wake(f)
	case act&entry.StartRuntime != 0:
		took(end, "running")
		w.beAlone(f)
	}
}

// beAlone makes an outer fini the only one, which starts the command. Signals that it has not taken are kept.
func (w *world) beAlone(f *fini) {
	anew := w.pristine
	anew.copy()
	anew.id, anew.caught, anew.child, anew.rules.Outer = f.id, f.caught, f.child, 0
	anew.bound = anew.bound[1:] // but for the outer fini
	if w.rules.Job != NoJob && !w.orphaned {
		// SIGTSTP is the kernel's again, and suspends fini before the main child is there, until the shell continues both.
		anew.forget(syscall.SIGTSTP)
	}
	for i := range anew.caught {
		anew.caught[i].Early = true // the main child may not have been there
	}
	if w.noPidfds {
		anew.bound = append(anew.bound, bond{w.cast.shell, ParentDied})
		w.get(f.id).deathsig = 0
		anew.forget(parentSignal)
	}
	anew.phase = awake
	w.cast.inner = 0
	w.finis = []fini{anew}
	w.startMain(&w.finis[0], syscall.SIGKILL)
}

// wake makes a sleeper the heir, as inherit in main.go does.
func (w *world) wake(f *fini) {
	s := f.sleeper
	f.phase, f.heir, f.caught, f.socket = awake, true, nil, nil
	w.ghost.overruled, w.ghost.unwait = true, true
	// Everybody is asked once more, and once only, also a group that the inner fini had let clean up.
	w.ghost.lookedToAsk, w.ghost.begun, w.ghost.cleared = false, false, false
	w.may(syscall.SIGTERM, false)
	for _, p := range w.procs() {
		p.mark.asked, p.mark.hadTerm, p.mark.afterAsk = false, false, false
	}
	result := ResultOf(syscall.WaitStatus(s.Status))
	switch {
	case s.EndBy != 0:
		result = Result{Sig: syscall.Signal(s.EndBy)}
	case result.Sig == 0:
		result.Code = ExitFailed
	}
	rules := Rules{Policy: w.rules.Policy}
	if within := rules.StopWithin; within > 0 {
		w.ghost.stopBy = w.now + within
		if s.asked != 0 {
			w.ghost.stopBy = max(s.asked+within, w.now+within/10)
		}
		w.ghost.endsAt = w.ghost.stopBy
	}
	f.Loop = *NewHeir(&modelKernel{w: w, f: f}, rules, int(s.Main), result, s.asked)
}

// heard is what the outer fini has told an inner one, as in the loop of package main.
func (w *world) heard(f *fini, woken *Woken) {
	for _, m := range f.socket {
		switch m.Kind {
		case entry.Signal:
			got := signals.Received{Signal: syscall.Signal(m.Value), Sender: max(int(m.Sender), 0), FromKernel: m.Sender == entry.FromKernel}
			woken.Signals = append(woken.Signals, Signal{Received: got, OfTree: w.ofTree(f, got), Relayed: true})
		case entry.ParentDied:
			woken.Stop = append(woken.Stop, ParentDied)
		}
	}
	f.socket = nil
}

// next is when a fini wants to be woken.
func (f *fini) next() time.Duration {
	if f.phase == dozing {
		return f.sleeper.deadline
	}
	return f.Loop.next()
}

// isBeginning and isInner are who the moves below are made by.
func isBeginning(w *world, p *proc) bool {
	f := w.fini(p.id)
	return f != nil && (f.phase == forked || f.phase == settled || f.phase == starting) && p.state == 'S'
}

func isInner(w *world, p *proc) bool {
	return p.id == w.cast.inner && p.state == 'S' && w.ghost.started && !w.ghost.done // before that, what it has started is left: a limit
}

// endEarly ends an inner fini of itself.
func (w *world) endEarly(p *proc, code int) {
	f := w.fini(p.id)
	f.said, f.machine, f.phase = true, nil, awake
	f.queue, f.todo = nil, nil
	w.exit(p, exited(code))
}

// pairMoves are how an inner fini may end by itself.
var pairMoves = []move{
	{"asks for no pair", 1, func(w *world, p *proc) bool { return isBeginning(w, p) && w.fini(p.id).phase == forked }, func(w *world, p *proc) {
		w.say(w.cast.outer, entry.Message{Kind: entry.BeAlone})
		w.endEarly(p, 0)
	}},
	{"can't start the command", 1, isBeginning, func(w *world, p *proc) {
		w.ghost.early = 125 // what it reads says so
		if w.fini(p.id).phase == starting {
			w.ghost.early = 127
		}
		w.endEarly(p, w.ghost.early)
	}},
	{"gives up", 1, isInner, func(w *world, p *proc) { // its runtime does
		w.ghost.early = ExitFailed
		w.ghost.killed++
		w.endEarly(p, 2)
		w.ghost.mustEnd, w.ghost.stopBy = 0, 0
		w.oblige(w.ladder())
	}},
}
