package life

import (
	"slices"
	"syscall"
	"time"
)

// A ghost is what the invariants remember of a world's facts. Nobody in the world knows it. Worlds with the same future are one
// state only if their ghosts are the same, so a ghost never counts further than matters.
type ghost struct {
	firstLeftover handle // the first id after the cast

	parentDiedAt time.Duration
	killed       int            // how many finis were
	wordless     bool           // one of them was the inner one, before it was done
	started      bool           // an inner one has said so
	done         bool           // the same
	early        int            // with what an inner one has ended by itself before its loop has
	suspended    bool           // by a key that the outer one has taken itself
	toEnd        bool           // a signal has asked fini to end
	endBy        syscall.Signal // the one for which the outer one has killed the inner one

	mainEnded   time.Duration // when it did; 0 if it has not
	mainStatus  syscall.WaitStatus
	cleared     bool          // the command, whose group was asked with it, had to be killed
	hurried     bool          // a signal or reason cut short what leftovers have to finish
	unended     bool          // the command could not be ended by SIGKILL
	stopping    bool          // a stop signal has gone to the command, or all were asked
	stopAt      time.Duration // when it went to the command, for the first time
	termAt      time.Duration // when SIGTERM went to the command's group, for the last time
	intAt       time.Duration // the same for SIGINT
	clearsAt    time.Duration // when clearing began
	startedK    time.Duration // when a signal has started the clock of -k
	urgent      bool          // a signal that ends waiting has come since the command's exit
	lookedToAsk bool          // a look was taken to ask all
	begun       bool          // and they are being asked
	askedAt     time.Duration
	interrupts  int                 // SIGINTs that the sweep took
	sent        bool                // a leftover was sent SIGTERM
	seen        bool                // one was found when all were to be asked
	overruled   bool                // a machine has had a reason that overrules the policy, or to stop waiting
	unwait      bool                // the same for --orphans=wait
	wanted      bool                // a signal has asked the command to exit
	heard       set[syscall.Signal] // what has come while the command ran, as received and as sent
	timeout     byte                // 1 if the command may have ended behind --timeout, 2 if it has; 0 if fini can see that it has not
	idled       bool                // fini stops the command for --idle
	talkedAt    time.Duration       // when the command last read or wrote
	talked      bool                // since the last look of --idle
	measuredAt  time.Duration       // when that was
	stood       time.Duration       // how long the command had stood still then
	quietLooks  int                 // in a row without such a word
	surveyed    bool                // the tree was read
	surveyedOwn bool                // for a stop of fini's own

	got, due    [4]int        // how often the main child got a signal, and may have: see counted
	sentForMain [4]bool       // a process has sent it to fini for the main child
	endsAt      time.Duration // when --stop-within is over, were all fini quick
	stopBy      time.Duration // when --stop-within is over; 0 if it has not begun
	mustEnd     time.Duration // at the latest; 0 for no reason yet
}

// mark is what the ghost remembers of a process.
type mark struct {
	afterStop bool // born when the command had had a stop signal
	afterAsk  bool // born when its parent had been asked
	termed    bool // had a stop signal
	hadTerm   bool // SIGTERM with the group, certainly
	hadInt    bool // the same for a SIGINT that it does not ignore
	sender    bool // of a signal to the job
	missed    bool // the last look before asking did not show it
	cleared   bool // the last look showed it in the group of a command that had to be killed: if it leaves that now, it is too late
	adopted   bool // it was there when all were asked, or had come to fini since
	hidden    bool // without /proc the last round of SIGKILL did not reach it, below one that can't be ended
	asked     bool // with SIGTERM, as a leftover
	refused   bool // SIGKILL, to it alone

	orphanedAt time.Duration // when its parent exited and it came to fini; 0 if it has not
	askedAt    time.Duration // when it was sent SIGTERM as an orphan, or as what descends from one
	due        bool          // the last look while the command runs found it, below one that had been an orphan for --orphan-timeout
	belowAsked bool          // born below one that had been asked or named as an orphan
	named      bool          // as an orphan, or as what descends from one
}

// remember keeps of a fact what an invariant needs later.
func (w *world) remember(x fact) {
	g := &w.ghost
	switch x.what {
	case sends:
		if x.way == toCommand && x.sig == syscall.SIGKILL {
			g.cleared = x.by.rules.ToGroup // even if the command has just ended
		}
		if x.way == toLeftover && x.sig == syscall.SIGKILL && x.to != nil {
			x.to.mark.refused = x.to.has(privileged)
		}
	case hits:
		w.rememberSignal(x)
	case gets:
		if i := slices.Index(counted, x.sig); i >= 0 && x.to.id == w.cast.main {
			g.got[i]++
		}
		g.toEnd = g.toEnd || x.to.id == w.cast.outer && w.cast.inner != 0 && ending(x.sig)
	case measures:
		g.talkedAt = max(g.talkedAt, w.now-w.rules.Idle) // longer ago is no other case
		g.measuredAt, g.stood = w.now, w.now-g.talkedAt
		l, ok := x.by.machine.(*ladder)
		if g.quietLooks = min(g.quietLooks+1, 10); g.talked || ok && l.isSuspended { // a command that is suspended is not idle
			g.quietLooks, g.talked = 0, false
		}
	case surveys:
		g.surveyed, g.surveyedOwn = true, g.surveyedOwn || x.stopsItself()
	case turns:
		w.rememberTurn(x)
	case reports:
		g.done = g.done || x.by.rules.Outer != 0
	}
}

// rememberSignal remembers what a fini sends.
func (w *world) rememberSignal(x fact) {
	g, p := &w.ghost, x.to
	switch {
	case x.sig == syscall.SIGTERM && x.way == toLeftover:
		p.mark.asked, g.sent = true, true
		if x.during() {
			p.mark.askedAt = w.now
			for _, q := range w.procs() { // started since the look, within the tick of SIGTERM: a limit
				since := !q.lived(w.now) && !slices.Contains(x.by.looked, q.id)
				q.mark.afterAsk = q.mark.afterAsk || since && q.parent == p.id
				q.mark.belowAsked = q.mark.belowAsked || since && w.descends(q, p.id)
			}
		}
	case x.sig == syscall.SIGTERM && x.by.rules.ToGroup:
		p.mark.hadTerm = p.mark.hadTerm || p.lived(w.now)
		if g.termAt = w.now; g.mainEnded != 0 && g.mustEnd != 0 { // it has just ended
			g.mustEnd = max(g.mustEnd, w.now+w.rules.Linger+w.forLeftovers())
		}
		for _, p := range w.procs() {
			p.mark.afterStop = p.mark.afterStop || w.isCleanUp(p) // started within the tick of SIGTERM: a limit
		}
	case x.sig == syscall.SIGINT && x.way == toCommand && x.by.rules.ToGroup:
		p.mark.hadInt = p.mark.hadInt || p.lived(w.now) && !p.has(ignoresInt)
		g.intAt = w.now
		for _, p := range w.procs() {
			p.mark.afterStop = p.mark.afterStop || w.isCleanUp(p)
		}
	}
	if ending(x.sig) || x.sig == w.rules.StopOnDeath || slices.Contains(w.rules.StopSignals, x.sig) {
		p.mark.termed, g.stopping = true, true
	}
}

// rememberLook remembers who is there when all are to be asked or counted.
func (w *world) rememberLook(f *fini) {
	g := &w.ghost
	s, ok := f.machine.(*sweep)
	if !ok {
		w.rememberDue(f)
		return
	}
	pipes := w.policy() == StopPipes
	if s.stage == asking {
		for _, p := range w.procs() {
			p.mark.missed = !slices.Contains(f.looked, p.id)
		}
	}
	for _, id := range f.looked {
		p := w.get(id)
		switch {
		case s.stage == counting || s.stage == clearing:
			p.mark.cleared = w.isCleared(p)
			g.seen = g.seen || !w.isSpared(p) && (s.stage == counting || p.mark.cleared)
		case s.stage == asking && !w.isSpared(p) && (!pipes || p.has(holding)):
			g.seen = true
			p.mark.adopted = p.mark.adopted || !g.lookedToAsk && !w.isCleanUp(p) && !w.isItsOwn(p) || p.parent == f.id
		}
	}
	if s.stage == asking {
		g.lookedToAsk, g.stopping = true, true
	}
	g.overruled = g.overruled || w.blind && pipes // all are stopped where nobody can tell who holds what
}

// rememberOrphan remembers that a process has come to the fini that runs the command.
func (w *world) rememberOrphan(p *proc) {
	if p.mark.orphanedAt = 0; p.parent == w.worker().id {
		p.mark.orphanedAt = w.now
	}
}

// isDue reports whether the parent of a process exited --orphan-timeout ago, or it descends from such a process, or from one
// that fini has begun to stop.
func (w *world) isDue(p *proc) bool {
	at := p.mark.orphanedAt
	return p.mark.named || at != 0 && w.now >= at+w.rules.OrphanTimeout || w.get(p.parent) != nil && w.get(p.parent).has(ofTree) && w.isDue(w.get(p.parent))
}

// rememberDue remembers who is due for --orphan-timeout.
func (w *world) rememberDue(f *fini) {
	for _, p := range w.procs() {
		p.mark.due = w.rules.OrphanTimeout > 0 && slices.Contains(f.looked, p.id) && w.isDue(p)
	}
}

// rememberTurn remembers what a machine has heard, and what it has made of that.
func (w *world) rememberTurn(x fact) {
	g, r, before, after := &w.ghost, w.rules, x.before, where(x.by.machine)
	s, _ := x.by.machine.(*sweep)
	if x.during() && slices.ContainsFunc(x.by.todo, func(a action) bool { _, names := a.(tell); return names }) {
		g.seen = true
	}
	inSweep := slices.Contains(beginnings, before) || before == "killing" || before == "pausing"
	if g.stopBy == 0 && w.rules.StopWithin > 0 && w.beginsEnd(x, after) {
		g.stopBy, g.endsAt = w.now+w.rules.StopWithin, w.now+w.rules.StopWithin
	}
	if x.goesIdle() {
		g.idled, g.unwait = true, true
		w.may(syscall.SIGTERM, false)
		w.oblige(w.ladder())
	}
	_, byTime := x.event.(elapsed)
	_, byLook := x.event.(looked)
	g.hurried = g.hurried || before == "lingering" && (after == "clearing" || after == "counting") && !byTime && !byLook
	switch e := x.event.(type) {
	case stop:
		g.overruled = g.overruled || e.why.overrules()
		g.unwait = true
	case Signal:
		sent := w.rules.rewritten(e.Signal)
		switch {
		case inSweep && sent != 0 && (ending(e.Signal) || ending(sent)):
			g.unwait = true
			if before == "pausing" && after != "pausing" || before == "waiting" {
				w.oblige(w.ladder())
			}
		case !inSweep && sent != 0 && !e.OfTree:
			g.heard.add(e.Signal)
			g.heard.add(sent)
		}
		g.urgent = g.urgent || inSweep && g.unwait
		if g.wanted = g.wanted || !inSweep && w.wantsEnd(e); before == "running" && w.wantsEnd(e) && w.rules.KillAfter > 0 {
			w.oblige(w.rules.KillAfter + w.ladder())
		}
		if r.KillAfter > 0 && g.startedK == 0 && (before == "running" || before == "closing") && w.wantsEnd(e) {
			g.startedK = w.now
		}
		if e.Signal == syscall.SIGINT && s != nil && before != "pausing" {
			g.interrupts = min(g.interrupts+1, 2)
		}
	case elapsed:
		if before == "killed" { // a command that can't be ended is a leftover, and all are stopped
			g.overruled, g.unwait, g.unended = true, true, true
		}
	case looked:
		if before == "asking" && !g.begun && (s == nil || s.askedAt != notAsked) {
			g.begun, g.askedAt = true, w.now
		}
		for _, p := range e.Found { // a reason may overrule the policy between the look and its answer
			g.seen = g.seen || before == "asking" && g.overruled && !p.Allowed
		}
	}
	end, _ := x.event.(reaped)
	died := end.exit() != nil && end.exit().Signaled() && g.heard.has(end.exit().Signal())
	if s != nil && !inSweep && (g.wanted || died) {
		g.unwait = true
		w.oblige(r.Linger + w.orphansGrace() + w.forLeftovers())
	}
	if before != "clearing" && after == "clearing" {
		g.clearsAt = w.now
	}
	if before != "stopping" && after == "stopping" {
		g.stopAt = w.now
	}
}

// ending reports whether a signal is one that ends a process, and that people send for that, or else for a reload or a dump.
func ending(sig syscall.Signal) bool {
	return slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}, sig)
}

// wantsEnd reports whether who sends a signal wants the command to exit, and leaves it to fini to pass that on.
func (w *world) wantsEnd(got Signal) bool {
	sent, hangUp := w.rules.rewritten(got.Signal), got.FromKernel && got.Signal == syscall.SIGHUP
	if sent == 0 || w.rules.Job != NoJob && (got.OfTree || got.byKey() && !(hangUp && w.rules.Leader)) {
		return false
	}
	return hangUp || slices.ContainsFunc([]syscall.Signal{got.Signal, sent}, func(sig syscall.Signal) bool {
		return sig == syscall.SIGTERM || sig == syscall.SIGINT || slices.Contains(w.rules.StopSignals, sig)
	})
}

// beginsEnd reports whether --stop-within counts from this turn: from a stop of fini's own, a signal for the command that
// ends servers, or the command's exit, unless fini then waits.
func (w *world) beginsEnd(x fact, after string) bool {
	switch x.by.machine.(type) {
	case *sweep:
		return after != "waiting"
	case *ladder:
		got, isSignal := x.event.(Signal)
		sent := w.rules.rewritten(got.Signal)
		_, isStop := x.event.(stop)
		ends := slices.ContainsFunc([]syscall.Signal{got.Signal, sent}, func(sig syscall.Signal) bool {
			return sig == syscall.SIGTERM || slices.Contains(w.rules.StopSignals, sig)
		})
		return isSignal && len(x.by.todo) > 0 && ends ||
			(isStop || x.goesIdle()) && after != "running"
	}
	return false
}

// rememberDeath draws the conclusions of a death.
func (w *world) rememberDeath(p *proc) {
	g, r, c := &w.ghost, w.rules, w.cast
	switch f := w.fini(p.id); {
	case p.id == c.shell && w.supply.bond, p.id == c.bound:
		if p.id == c.shell {
			g.parentDiedAt = w.now
		}
		w.may(r.StopOnDeath, false)
		heeds := time.Duration(0)
		if r.Job != NoJob {
			heeds = min(r.Linger, sameEnd)
		}
		w.oblige(heeds + w.ladder())
	case f != nil && (!f.said || f.machine != nil): // it was killed
		g.killed++
		g.wordless = g.wordless || p.id == c.inner && !g.done
		if p.id == c.outer && c.inner != 0 {
			w.may(r.StopOnDeath, false)
		}
		if p.id == c.inner {
			g.mustEnd, g.stopBy = 0, 0 // the heir begins anew
		}
		if c.inner != 0 {
			w.oblige(w.ladder())
		}
	case p.id == c.main:
		g.mainEnded, g.mainStatus = w.now, p.status
		if r.Orphans != WaitAll {
			w.oblige(r.Linger + w.forLeftovers())
		}
		if worker := w.worker(); w.rules.Timeout != 0 && worker.timeout == 0 {
			isTime := func(e event) bool { s, is := e.(stop); return is && s.why == TimedOut }
			undecided := slices.ContainsFunc(worker.queue, isTime)
			g.timeout = 1 + byte(boolToInt(!undecided))
		}
	}
	if g.mainEnded != 0 && g.mustEnd != 0 {
		w.oblige(r.Linger + w.orphansGrace() + w.forLeftovers())
	}
	if p.mark.sender {
		w.may(syscall.SIGTERM, false) // who is gone can't be told to have been of the tree: a limit
	}
	if _, pausing := w.finis[0].machine.(paused); g.mainEnded != 0 && !pausing && !w.treeAlive() {
		w.oblige(r.Linger + longPause)
	}
}

// may lets a signal reach the main child once more; sent says that it has to.
func (w *world) may(sig syscall.Signal, sent bool) {
	if i := slices.Index(counted, sig); i >= 0 {
		w.ghost.due[i]++
		w.ghost.sentForMain[i] = w.ghost.sentForMain[i] || sent
	}
}

// oblige obliges all finis to end within a time.
func (w *world) oblige(within time.Duration) {
	if at := w.now + within; w.ghost.mustEnd == 0 || at < w.ghost.mustEnd {
		w.ghost.mustEnd = at
	}
}
