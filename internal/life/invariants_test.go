package life

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// A happening is a kind of fact. As bits, it is several.
type happening uint32

const (
	sends    happening = 1 << iota // a fini is about to send a signal, to whomever
	hits                           // the same, to one who is alive and feels it
	gets                           // a signal reaches a process
	measures                       // a fini is about to see whether the command stands still
	surveys                        // a fini is about to read what the tree is doing
	turns                          // a machine has made something of an event
	reports                        // a fini says why it has stopped anything
	ends                           // a fini ends by itself
	rests                          // nobody has anything to do
	waits                          // the same, and no fini is stopped
)

// A fact is something that happens in a world. What does not belong to its kind is empty.
type fact struct {
	what   happening
	by     *fini
	to     *proc          // nil for a main child that was reaped
	sig    syscall.Signal // that is sent
	way    way            // how fini sends it
	before string         // where the machine stood
	event  event
	why    Reason
}

// A way to send a signal.
type way uint8

const (
	toCommand  way = iota // to the command
	toLeftover            // to a leftover
	byKill                // to all of the tree
)

// happens asks the invariants about a fact, and tells it to the ghost, which remembers what they need.
func (w *world) happens(x fact) {
	for i := range invariants {
		if is := &invariants[i]; is.at&x.what != 0 && w.broken == "" && !is.holds(w, x) {
			w.breach(is.name, "%s, but %s", is.promise, w.inWords(x))
		}
	}
	w.remember(x)
}

// breach notes the first invariant that does not hold. Some breaches of "bounded" are seen where they happen.
func (w *world) breach(invariant, format string, args ...any) {
	if w.broken == "" {
		w.broken = invariant + ": " + fmt.Sprintf(format, args...)
	}
}

// inWords is a fact as a breach names it. A time before 0 is never.
func (w *world) inWords(x fact) string {
	switch x.what {
	case sends, hits:
		to := "nobody"
		if x.to != nil {
			to = w.name(x.to.id)
		}
		return fmt.Sprintf("%s sends %d to %s", w.name(x.by.id), x.sig, to)
	case gets:
		return fmt.Sprintf("%s gets signal %d", w.name(x.to.id), x.sig)
	case rests, waits: // in ms, as the rows of a history
		return fmt.Sprintf("nobody goes on before %d, and all have to end by %d", (w.next()-epoch)/ms, (w.ghost.mustEnd-epoch)/ms)
	case surveys:
		return fmt.Sprintf("%s reads the tree", w.name(x.by.id))
	case ends:
		return fmt.Sprintf("%s ends with %+v", w.name(x.by.id), x.by.result)
	}
	return fmt.Sprintf("%s does %q", w.name(x.by.id), text(x.by.todo))
}

// wantedEnds are the results that a fini may have which ends as its command did.
func (w *world) wantedEnds() (wanted []Result) {
	g := &w.ghost
	byTime := Result{Code: exitTimedOut}
	ends := []Result{ResultOf(g.mainStatus)}
	if g.mainEnded == 0 || g.unended || w.cast.tracer != 0 {
		ends = append(ends, Result{Sig: syscall.SIGKILL}) // it could not be ended, or its end not be seen
	}
	switch {
	case g.idled, g.timeout == 2: // whatever else has asked it to end
		ends = []Result{byTime}
	case g.timeout > 0, g.mainEnded == 0 && w.rules.Timeout != 0:
		ends = append(ends, byTime)
	}
	audited := w.policy() == LeaveAll && g.seen
	for _, end := range ends {
		if slices.Contains(w.rules.Remap, end.Status()) {
			end = Result{}
		}
		if !g.sent && !audited {
			wanted = append(wanted, end)
		}
		if end.Status() == 0 && w.rules.OrphansExit >= 0 {
			end.Code = w.rules.OrphansExit
		}
		if g.seen {
			wanted = append(wanted, end)
		}
	}
	return wanted
}

// What docs/behavior.md promises, as predicates on what happens in a world. Each is asked only about the happenings that stand
// with it.
var invariants = []struct {
	name, promise string
	at            happening
	holds         func(w *world, x fact) bool
}{
	{"nobody else", "fini never signals a process outside of the tree", sends, func(w *world, x fact) bool {
		return x.to != nil && (x.to.has(ofTree) || x.by.id == w.cast.outer && x.to.id == w.cast.inner)
	}},
	{"policy", "fini does not stop a process that --orphans or --allow-orphan spares", sends, func(w *world, x fact) bool {
		p, g := x.to, &w.ghost
		if p == nil || !p.alive() || p.has(privileged) || x.way == toCommand {
			return true
		}
		isStop := x.sig == syscall.SIGTERM || x.sig == syscall.SIGKILL
		clears := x.sig == syscall.SIGKILL && (w.isCleared(p) || p.mark.cleared)
		switch policy := w.policy(); {
		case w.isSpared(p):
			return false
		case !isStop, clears:
			return true
		case x.during():
			return policy != StopPipes || p.has(holding)
		case policy == WaitAll:
			return g.unwait
		case g.mainEnded == 0: // then it is a command that does not end of SIGKILL
			return true
		default:
			return policy == StopAll || policy == StopPipes && p.has(holding)
		}
	}},
	{"TERM once", "no process receives the same stop signal twice for one cause", hits | gets, func(w *world, x fact) bool {
		p, i := x.to, slices.Index(counted, x.sig)
		if x.what == gets {
			return i < 0 || p.id != w.cast.main || w.ghost.got[i] < w.ghost.due[i]
		}
		return !x.asks() || !p.mark.asked && !(p.mark.hadTerm && w.inGroup(p))
	}},
	{"TERM before KILL", "SIGKILL comes after a stop signal, except for a process that was created after the stop signals", hits, func(w *world, x fact) bool {
		m := x.to.mark
		there := m.adopted || !m.afterStop && (!w.ghost.begun || x.to.lived(w.ghost.askedAt))
		there = there && !(x.during() && m.belowAsked)                          // killed with one that was
		there = there && (x.to.parent == 0 || !x.to.has(entered))               // it was left to one that came in from outside, perhaps to the end
		hurried := w.rules.OrphansGrace <= shortPause || w.ghost.interrupts > 1 // no second look before that: a limit
		return !x.kills(w) || m.termed || !there || m.missed && hurried
	}},
	{"grace", "between stop signal and SIGKILL, every process has --grace, --kill-after or --orphans-grace", hits, func(w *world, x fact) bool {
		g, until := &w.ghost, w.ghost.askedAt+w.orphansGrace()
		switch {
		case x.during() && x.way != toCommand:
			until = x.to.mark.askedAt + w.orphansGrace() // what has not been asked descends from one that was
			if x.to.mark.askedAt == 0 && x.to.mark.hadTerm && w.inGroup(x.to) {
				until = g.termAt + w.rules.Grace
			}
		case x.way == toCommand:
			until = g.stopAt + w.grace()
			if g.startedK != 0 {
				until = min(until, max(g.startedK+w.rules.KillAfter, g.stopAt))
			}
		case x.to.mark.hadTerm && w.inGroup(x.to) && !w.blind && g.mainEnded != 0:
			until = max(until, g.termAt+w.rules.Grace)
		}
		part := 2 + 4*time.Duration(boolToInt(x.way == toCommand))
		return !x.kills(w) || g.interrupts > 1 || w.now >= until || w.reserveLeft(part)
	}},
	{"cleaners", "when the command is killed, the rest of its group has --linger before SIGKILL, and no longer", hits | ends, func(w *world, x fact) bool {
		switch {
		case x.what == ends:
			return !slices.ContainsFunc(w.survivors(), w.isCleared)
		case x.kills(w):
			return x.way != toCommand || x.to.id == w.cast.main
		}
		return x.sig != syscall.SIGKILL || w.ghost.hurried || w.now >= w.ghost.mainEnded+w.rules.Linger || w.reserveLeft(4)
	}},
	{"asked to", "a signal stops the command only if it asks the command to exit", turns, func(w *world, x fact) bool {
		got, is := x.event.(Signal)
		return !is || x.before == "stopping" || where(x.by.machine) != "stopping" || w.wantsEnd(got)
	}},
	{"its own signal", "when fini stops the command for its own reason, it sends its own stop signal, whatever came before", turns, func(_ *world, x fact) bool {
		begins := func(a action) bool {
			s, is := a.(say)
			return is && s.text == "stopping the command" && !s.why.overrules()
		}
		sends := func(a action) bool { _, is := a.(signalCommand); return is }
		return !slices.ContainsFunc(x.by.todo, begins) || slices.ContainsFunc(x.by.todo, sends)
	}},
	{"INT, then TERM", "a leftover that received SIGINT with the command receives SIGTERM after half of --grace, and before SIGKILL", hits, func(w *world, x fact) bool {
		g, m := &w.ghost, x.to.mark
		switch {
		case x.by.heir || !m.hadInt || m.hadTerm || !w.inGroup(x.to):
			return true
		case x.asks():
			return g.urgent || w.now >= g.intAt+w.rules.Grace/2 || g.stopBy != 0 && x.by.cut
		}
		return !x.kills(w) || x.way == toCommand || m.asked || m.afterStop || g.interrupts > 1 || m.missed && w.rules.Grace <= shortPause
	}},
	{"not while it ends", "a leftover that was asked to exit with the command has --linger before fini says that it is left running", ends, func(w *world, x fact) bool {
		early := w.now < w.ghost.mainEnded+w.rules.Linger && !w.ghost.hurried && !w.reserveLeft(4)
		return x.by.heir || w.rules.OrphansExit >= 0 || w.policy() != LeaveAll || !early || !slices.ContainsFunc(x.by.told, func(pid int) bool {
			p := w.byPid(pid)
			return p != nil && p.alive() && w.inGroup(p) && (p.mark.hadTerm || p.mark.hadInt) && !w.isCleared(p)
		})
	}},
	{"the end of stdin", "after the end of stdin, the command has --grace before the stop signal", turns, func(w *world, x fact) bool {
		climbs := slices.ContainsFunc(x.by.todo, func(a action) bool { s, is := a.(say); return is && s.why == StdinClosed && s.level == Normal })
		s, is := x.by.machine.(*ladder)
		return !climbs || !is || s.rung != stopping || w.now >= w.stdin.closedAt+w.rules.Grace
	}},
	{"refused", "fini tries only once to kill a process that it may not signal, and doesn't wait long for a group of them", sends | turns, func(w *world, x fact) bool {
		if x.what == sends {
			return x.to == nil || x.way != toLeftover || x.sig != syscall.SIGKILL || !x.to.mark.refused || x.by.heir
		}
		_, byLook := x.event.(looked)
		clears := byLook && x.before == "clearing" && where(x.by.machine) == "clearing"
		may := func(p *proc) bool { return p.alive() && w.isCleared(p) && !p.mark.refused }
		return !clears || w.now <= w.ghost.clearsAt+refusedLimit+slack || w.first(may) != nil
	}},
	{"from outside", "no process in the PID namespace of a pause can end the pause, or shorten its end", turns, func(w *world, x fact) bool {
		got, is := x.event.(Signal)
		acts := func(a action) bool { _, says := a.(ignore); return !says }
		return !is || !w.pauses() || got.Outside || x.before == where(x.by.machine) && !slices.ContainsFunc(x.by.todo, acts)
	}},
	{"entrants end their own", "a process that came in from outside, as with docker exec, stops its own children while it lives", hits, func(w *world, x fact) bool {
		return !x.asks() || !w.entrantAbove(x.to)
	}},
	{"its own to finish", "a process that a leftover starts after its stop signal is spared while that leftover lives", hits, func(w *world, x fact) bool {
		return !x.asks() || !w.isItsOwn(x.to) && (x.by.heir || !w.isCleanUp(x.to))
	}},
	{"orphans", "while the command runs fini stops only who has been an orphan for --orphan-timeout, and what descends from such", sends, func(w *world, x fact) bool {
		p := x.to
		switch {
		case !x.during() || x.way == toCommand || p == nil || !p.alive():
			return true
		case w.rules.OrphanTimeout == 0, p.id == w.cast.main, !p.mark.due:
			return false
		}
		return x.sig != syscall.SIGKILL || p.mark.asked || p.mark.belowAsked || p.mark.named || p.has(privileged)
	}},
	{"no orphans", "an orphan is asked after one and a half --orphan-timeout at the latest, and killed --orphans-grace later", waits, func(w *world, _ fact) bool {
		r := w.rules
		if r.OrphanTimeout == 0 || w.blind || w.obeyed() == nil && !w.pausing() || w.supply.used[moveOf("is stopped")] > 0 || w.ghost.suspended {
			return true
		}
		if next := w.next(); next == 0 || next > w.now+r.lookForOrphans() {
			return false
		}
		return w.first(func(p *proc) bool {
			switch m := p.mark; {
			case !p.alive() || p.parent != w.worker().id || p.id == w.cast.main || p.has(inherited|privileged|asleep) || w.isSpared(p),
				w.policy() == StopPipes && !p.has(holding):
				return false
			case m.askedAt != 0:
				return w.now > m.askedAt+r.OrphansGrace+r.OrphanTimeout/2+lateness
			case m.hadTerm || m.hadInt:
				return false
			default:
				return m.orphanedAt != 0 && w.now > m.orphanedAt+r.OrphanTimeout*3/2+lateness
			}
		}) == nil
	}},
	{"nothing left", "when fini ends, no process of the tree is alive unless --orphans spares it", ends, func(w *world, x fact) bool {
		policy := w.policy()
		return policy == StopPipes || policy == LeaveAll && w.ghost.mainEnded != 0 || len(w.survivors()) == 0
	}},
	{"EOF", "when fini ends, no process holds its streams open, even with --orphans=pipes", ends, func(w *world, x fact) bool {
		holds := func(p *proc) bool { return p.has(holding) }
		return w.rules.Orphans != StopPipes || !slices.ContainsFunc(w.survivors(), holds)
	}},
	{"listed", "fini writes about every process that it leaves running", ends, func(w *world, x fact) bool {
		return !slices.ContainsFunc(x.by.stay, func(id handle) bool {
			p := w.get(id)
			return p != nil && p.alive() && !slices.Contains(x.by.told, p.pid)
		})
	}},
	{"status", "the parent process gets the command's status, or what the flags make of it", ends, func(w *world, x fact) bool {
		g, got := &w.ghost, x.by.result
		switch {
		case x.by.rules.Outer != 0:
			return true
		case g.endBy != 0 && !g.done: // fini was asked to end before the command was started
			return got == Result{Sig: g.endBy}
		case g.early != 0: // the inner one has ended by itself
			return got.Status() == g.early || w.cast.tracer != 0 && got.Sig == syscall.SIGKILL
		case g.wordless: // the inner one was killed
			return got.Status() == 128+9
		}
		return x.by.rules.Initial || slices.Contains(w.wantedEnds(), got) // PID 1 ends by status alone; see endOf
	}},
	{"the reason", "the death of the parent process is a reason only if it has died", reports, func(w *world, x fact) bool {
		return x.why != ParentDied || w.ghost.parentDiedAt != 0 || w.noPidfds || x.by.heir
	}},
	{"idle", "--idle stops a command that has stood still for that time, and no other", measures | turns | waits, func(w *world, x fact) bool {
		g, r, main := &w.ghost, w.rules, w.get(w.cast.main)
		suspended := main != nil && main.state == 'T' && main.changed == 0
		still := g.quietLooks > 9 && !g.talked && w.stdin.unread == 0 && !w.blind && main != nil && main.state == 'S'
		l := w.obeyed()
		switch {
		case x.what == measures:
			return g.measuredAt == 0 || w.now-g.measuredAt >= r.Idle/8
		case x.what == turns && x.goesIdle():
			return g.stood >= r.Idle && g.quietLooks >= 8 && !w.blind && w.stdin.unread == 0 && !suspended
		case x.what == turns, r.Idle == 0, l == nil || l.rung != running:
			return true
		}
		next := w.next()
		return next != 0 && next <= w.now+r.lookIdle() && !still
	}},
	{"what was running", "what is running is read once, and only if wanted: before a stop of fini's own, and after any other", turns | surveys, func(w *world, x fact) bool {
		g, r := &w.ghost, w.rules
		if x.what == surveys { // a stop of fini's own replaces what a signal has left
			return !g.surveyed || x.stopsItself() && !g.surveyedOwn
		}
		at, named, signals, stops := -1, false, []int{}, NoReason
		for i, a := range x.by.todo {
			switch a := a.(type) {
			case survey:
				at, named = i, a.named
			case signalCommand:
				signals = append(signals, i)
			case say:
				if a.text == "stopping the command" {
					stops = a.why
				}
			}
		}
		got, isSignal := x.event.(Signal)
		cancels := isSignal && len(signals) > 0 && got.Signal != syscall.SIGHUP && r.requestOf(got)&startsKillAfter != 0
		switch {
		case stops.fromWithin():
			wanted := stops != StdinClosed || r.Reports
			return named == (stops != StdinClosed) && wanted == (at >= 0) && (at < 0 || len(signals) == 0 || at < signals[0])
		case stops != NoReason, cancels:
			wanted := r.Reports && !g.surveyed
			return !named && wanted == (at >= 0) && (at < 0 || len(signals) == 0 || at > signals[0])
		}
		return at < 0
	}},
	{"one end", "exit is always the last action, and nothing else ends a life", turns, func(_ *world, x fact) bool {
		todo := x.by.todo
		at := slices.IndexFunc(todo, func(a action) bool { _, ok := a.(exit); return ok })
		return at < 0 && x.by.machine != nil || at >= 0 && at == len(todo)-1 && x.by.machine == nil
	}},
	{"the pair", "the outer fini ends last", ends, func(w *world, x fact) bool {
		inner := w.get(w.cast.inner)
		return x.by.id != w.cast.outer || inner == nil || !inner.alive()
	}},
	{"the terminal", "a key that suspends the command suspends fini too, for the shell to see; in an orphaned job it suspends nobody", rests, func(w *world, _ fact) bool {
		if w.orphaned {
			return w.first(func(p *proc) bool { return p.byKey && p.group == int(w.rules.Job) }) == nil
		}
		top, inner, main := w.top(), w.get(w.cast.inner), w.get(w.cast.main)
		up := top != nil && top.state == 'S' && (inner == nil || inner.state == 'S') && w.ghost.killed == 0
		// The relayed key may come after fg, and one that waited for Started may come as fini ends: limits.
		late := w.ghost.suspended && w.supply.used[moveOf("gets fg")] > 0 || w.finis[0].sleeper.staysUp
		return w.rules.Job == NoJob || !up || late || main == nil || !main.byKey || main.has(privileged|asleep|traced)
	}},
	{"forwarded", "a signal from a process reaches the command", waits, func(w *world, _ fact) bool {
		for i := range counted {
			if w.ghost.sentForMain[i] && w.ghost.got[i] == 0 && w.obeyed() != nil {
				return false
			}
		}
		return true
	}},
	{"in time", "a stop never takes longer than --stop-within, whatever the tree does", waits, func(w *world, _ fact) bool {
		next := w.next()
		return w.ghost.stopBy == 0 || w.extra() > slack || !w.treeAlive() || next != 0 && next <= w.ghost.stopBy
	}},
	{"bounded", "every stop ends within the time that its flags allow, and leaves nobody suspended until then", rests | waits, func(w *world, x fact) bool {
		top, inner, main := w.top(), w.get(w.cast.inner), w.get(w.cast.main)
		up := top != nil && top.state == 'S'
		if x.what == rests {
			outer := &w.finis[0]
			sleeps := up && outer.phase == dozing && outer.sleeper.deadline == 0 && (w.ghost.toEnd || w.ended(w.cast.shell))
			return !sleeps || inner == nil || inner.state != 'T'
		}
		must, next, l := w.ghost.mustEnd, w.next(), w.obeyed()
		if l != nil && main.state == 'T' && l.rung == stopping && l.isSuspended {
			return false
		}
		return must == 0 || next != 0 && next <= must
	}},
}

// What follows are words of the promises above.

// counted are the signals to the main child that are counted.
var counted = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1}

// during reports whether a fini does something while the command runs, as far as it knows.
func (x fact) during() bool {
	_, sweeps := x.by.machine.(*sweep)
	return !sweeps && x.by.machine != nil
}

// pausing reports whether fini pauses.
func (w *world) pausing() bool {
	_, is := w.worker().machine.(paused)
	return is
}

// lateness is by how much --orphan-timeout may be late on a machine that is busy: two moves of 20 ms, and 20 ms.
const lateness = 60 * ms

// policy is what counts of --orphans.
func (w *world) policy() string {
	if w.ghost.overruled {
		return StopAll
	}
	return w.rules.Orphans
}

// obeyed returns the ladder of a command that can act on what it is told; nil if there is none.
func (w *world) obeyed() *ladder {
	l, ok := w.worker().machine.(*ladder)
	main := w.get(w.cast.main)
	acts := main != nil && main.alive() && !main.has(privileged) && !main.pending.has(syscall.SIGKILL)
	if !ok || w.ghost.killed > 0 || l.rung == killed || !acts {
		return nil
	}
	return l
}

// survivors are those of the tree whom fini leaves alive, and could have ended. One that was hidden may come to light behind the
// last round of SIGKILL, when fini gives up: just as if that had come to pass right behind its end.
func (w *world) survivors() []*proc {
	return w.those(func(p *proc) bool {
		return p.alive() && p.has(ofTree) && !p.has(privileged|asleep) && !w.isSpared(p) && !p.mark.hidden
	})
}

// fromWithin reports whether a reason is fini's own: no process waits for the signal.
func (r Reason) fromWithin() bool { return r == TimedOut || r == WentIdle || r == StdinClosed }

// stopsItself reports whether the command is being stopped for such a reason.
func (x fact) stopsItself() bool {
	l, is := x.by.machine.(*ladder)
	return is && l.stopReason.fromWithin()
}

// goesIdle reports whether a machine stops the command for --idle.
func (x fact) goesIdle() bool {
	return slices.ContainsFunc(x.by.todo, func(a action) bool { s, ok := a.(say); return ok && s.why == WentIdle })
}

// asks reports whether SIGTERM goes to a leftover.
func (x fact) asks() bool { return x.sig == syscall.SIGTERM && x.way == toLeftover }

// kills reports whether SIGKILL goes to somebody, but for the rest of the group of a command that had to be killed.
func (x fact) kills(w *world) bool {
	s, ok := x.by.machine.(*sweep)
	return x.sig == syscall.SIGKILL && !w.isCleared(x.to) && !(x.to.mark.cleared && ok && s.killsGroup)
}

// isCleared reports whether a process is of the command's group, and the command had to be killed.
func (w *world) isCleared(p *proc) bool {
	return w.ghost.cleared && w.ghost.mainEnded != 0 && p.group == firstMain && p.id != w.cast.main
}

func (w *world) inGroup(p *proc) bool { return p.group == w.rules.commandGroup(firstMain) }

// lived reports whether a process certainly lived at a time: starts are rounded down to ticks.
func (p *proc) lived(at time.Duration) bool { return p.start/tick*tick+tick <= at }

// isCleanUp reports whether a process was started since its parent, a living leftover, had SIGTERM with the group.
func (w *world) isCleanUp(p *proc) bool {
	parent := w.get(p.parent)
	if parent == nil || !parent.alive() || !parent.has(ofTree) {
		return false
	}
	since := func(had bool, at time.Duration) bool {
		return at != 0 && w.inGroup(parent) && (had || parent.has(privileged) && parent.lived(at)) && !p.lived(at)
	}
	byInt := !parent.has(ignoresInt) && since(parent.mark.hadInt, w.ghost.intAt)
	return since(parent.mark.hadTerm, w.ghost.termAt) || byInt || w.isCleanUp(parent)
}

// isItsOwn reports whether a process was started since its parent, a living leftover, had SIGTERM from fini.
func (w *world) isItsOwn(p *proc) bool {
	parent := w.get(p.parent)
	return parent != nil && parent.alive() && parent.has(ofTree) && (p.mark.afterAsk || w.isItsOwn(parent))
}

// grace is how long nobody is killed.
func (w *world) grace() time.Duration {
	return min(w.rules.Grace, cmp.Or(w.rules.KillAfter, w.rules.Grace))
}

// reserveLeft reports whether --stop-within leaves no more than so many parts of its reserve.
func (w *world) reserveLeft(parts time.Duration) bool {
	return w.ghost.stopBy != 0 && w.now >= w.ghost.endsAt-parts*(w.rules.StopWithin/10)/6
}

// orphansGrace is how long those have that are asked after the command's exit. An heir asks the command too, and under
// --pause there is none: then it is --grace.
func (w *world) orphansGrace() time.Duration {
	if g := &w.ghost; g.wordless || g.early != 0 || w.cast.main == 0 { // or there will be an heir
		return w.rules.Grace
	}
	return w.rules.OrphansGrace
}

// forLeftovers is how long it may take from the first question to the end. What comes to light when all that had the
// command's SIGTERM have exited has --orphans-grace again.
func (w *world) forLeftovers() time.Duration {
	after, termAt := w.orphansGrace(), max(w.ghost.termAt, w.ghost.intAt)
	isMember := func(p *proc) bool { return p.alive() && w.inGroup(p) && p.lived(termAt) }
	if termAt != 0 && w.first(isMember) != nil {
		after += max(termAt+w.rules.Grace-w.now, 0)
	}
	return after + w.extra()
}

const (
	firstMain = 30 // the main child's pid
	slack     = 300 * ms
)

// ladder is how long it may take from a reason to the end.
func (w *world) ladder() time.Duration {
	return time.Duration(2+max(len(w.rules.StopSignals)-1, 0))*w.rules.Grace + w.rules.Linger + w.rules.OrphansGrace + w.extra()
}

// extra is the same for those that can't be ended.
func (w *world) extra() time.Duration {
	if w.first(func(p *proc) bool { return p.has(asleep | privileged | traced) }) != nil {
		return 4*killedLimit + slack
	}
	return slack
}

// treeAlive reports whether any of the tree is, or seems to be, because a tracer hides its end.
func (w *world) treeAlive() bool {
	return w.first(func(p *proc) bool {
		isOne := p.has(ofTree) || p.id == w.cast.inner && p.has(traced)
		return isOne && !w.isSpared(p) && (p.alive() || p.state == 'Z' && p.has(traced))
	}) != nil
}

// finisAlive reports whether any fini is, and whether one of them is stopped.
func (w *world) finisAlive() (alive, isStopped bool) {
	for i := range w.finis {
		if p := w.get(w.finis[i].id); p != nil && p.alive() {
			alive, isStopped = true, isStopped || p.state == 'T'
		}
	}
	return alive, isStopped
}
