package life

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
)

// What docs/behavior.md promises, as predicates on a world. Each name below begins the text of a breach.
var invariants = []string{
	"nobody else",       // a process outside of the tree is never signalled
	"nothing left",      // nothing of the tree is alive at the end, unless refused or by policy
	"EOF",               // nobody holds fini's streams at the end, under --orphans=pipes too
	"policy",            // whom the policy spares is spared
	"TERM once",         // nobody gets the same stop signal twice for one end
	"TERM before KILL",  // whoever was there when all were asked
	"grace",             // nor sooner than --grace or --kill-after behind that
	"cleaners",          // SIGKILL for the command spares the rest of its group for --linger, under every policy
	"its own to finish", // what a leftover starts after it was asked is left to it while it lives
	"forwarded",         // a signal that a process sends reaches the command
	"bounded",           // from a reason to the end it takes a ladder's time
	"the reason",        // a parent process that dies right after the end of stdin is why that has ended
	"status",            // the parent process gets the command's
	"listed",            // whoever stays is told of, and why
	"idle",              // fini stops for --idle what has stood still for that time, and nothing else
	"one end",           // an exit is the last action, and there is no other end
	"the pair",          // the outer fini ends last, and as the inner one has told it
	"the terminal",      // a key that stops the command stops fini, which its shell knows
}

// ghost is what the invariants remember of a world.
type ghost struct {
	firstLeftover int // the first id after the cast

	closedAt     time.Duration // stdin
	parentDiedAt time.Duration
	mainEnded    bool
	mainEndedAt  time.Duration
	cleared      bool // the command, whose group was asked with it, had to be killed
	hurried      bool // a signal or reason cut short what leftovers have to finish
	mainStatus   syscall.WaitStatus
	stopping     bool // a stop signal has gone to the command, or all were asked
	lookedToAsk  bool // a look was taken to ask all
	begun        bool // and they are being asked
	askedAt      time.Duration
	stopAt       time.Duration  // when the command was, for the first time
	termAt       time.Duration  // when the command's group was, for the last time
	talkedAt     time.Duration  // when the command last read or wrote
	talked       bool           // since the last look of --idle
	measuredAt   time.Duration  // when that was
	stood        time.Duration  // how long the command had stood still then
	quietLooks   int            // in a row without such a word
	idled        bool           // fini stops the command for that
	interrupts   int            // SIGINTs that the sweep took
	sent         bool           // a leftover was sent SIGTERM
	seen         bool           // one was found when all were to be asked
	overruled    bool           // a machine has had a reason that overrules the policy, or to stop waiting
	unwait       bool           // the same for --orphans=wait
	unended      bool           // the command could not be ended by SIGKILL
	reason       bool           // there was one to stop, beside --timeout
	timeout      byte           // 1 if the command may have ended behind --timeout, 2 if it has; 0 if fini can see that it has not
	killed       int            // how many finis were
	wordless     bool           // one of them was the inner one, before it was done
	early        int            // with what an inner one has ended by itself before its loop has
	started      bool           // an inner one has said so
	done         bool           // the same
	suspended    bool           // by a key that the outer one has taken itself
	toEnd        bool           // a signal has asked fini to end
	endBy        syscall.Signal // the one for which the outer one has killed the inner one

	got, due    [4]int        // how often the main child got a signal, and may have: see counted
	sentForMain [4]bool       // a process has sent it to fini for the main child
	mustEnd     time.Duration // at the latest; 0 for no reason yet
}

// mark is what the invariants remember of a process.
type mark struct {
	afterStop bool // born when the command had had a stop signal
	afterAsk  bool // born when its parent had been asked
	termed    bool // had a stop signal
	hadTerm   bool // SIGTERM with the group, certainly
	sender    bool // of a signal to the job
	byKey     bool // that is how it was stopped
	missed    bool // the last look before asking did not show it
	cleared   bool // the last look showed it in the group of a command that had to be killed: if it leaves that now, it is too late
	adopted   bool // it was there when all were asked, or had come to fini since
	asks      int
}

var counted = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1}

// breach notes the first invariant that does not hold.
func (w *world) breach(invariant, format string, args ...any) {
	if !slices.Contains(invariants, invariant) {
		panic("no such invariant: " + invariant)
	}
	if w.broken == "" {
		w.broken = invariant + ": " + fmt.Sprintf(format, args...)
	}
}

const (
	byForward = iota
	bySend
	byKill
)

// judgeSignal looks at what a fini is about to send.
func (w *world) judgeSignal(f *fini, p *proc, sig syscall.Signal, by int) {
	if p == nil {
		w.breach("nobody else", "%s sends %d to a process that is none of its own", w.name(f.id), sig)
		return
	}
	if p.id == w.cast.inner && f.outer || p.id == w.cast.outer && f.inner {
		return
	}
	if !p.has(ofTree) {
		w.breach("nobody else", "%s sends %d to %s", w.name(f.id), sig, w.name(p.id))
	}
	if by == byForward && sig == syscall.SIGKILL {
		w.ghost.cleared = f.rules.Group // even if the command has just ended
	}
	if !p.alive() || p.has(privileged) {
		return
	}
	if by != byForward {
		w.judgePolicy(p, sig)
	}
	if w.blind && by != byForward {
		return // whom fini does not see it can't ask, nor tell whether it has been asked: a limit
	}
	switch {
	case sig == syscall.SIGKILL && (w.isCleared(p) || p.mark.cleared && f.machine.(*sweep).clears):
		if !w.ghost.hurried && w.now < w.ghost.mainEndedAt+w.rules.Linger {
			w.breach("cleaners", "%s is killed %v after main", w.name(p.id), w.now-w.ghost.mainEndedAt)
		}
	case sig == syscall.SIGKILL:
		m := p.mark
		there := !m.afterStop && (!w.ghost.begun || p.start/tick*tick+tick <= w.ghost.askedAt)
		hurried := w.rules.Grace <= shortPause || w.ghost.interrupts > 1 // no second look before that: a limit
		if !m.termed && (m.adopted || there) && !(m.missed && hurried) {
			w.breach("TERM before KILL", "%s is killed, and has had no stop signal", w.name(p.id))
		}
		since := w.ghost.askedAt
		if by == byForward {
			since = w.ghost.stopAt
			if p.id != w.cast.main {
				w.breach("cleaners", "%s is killed together with main", w.name(p.id))
			}
		}
		if w.ghost.interrupts < 2 && w.now < since+w.grace() {
			w.breach("grace", "%s is killed %v after it was asked", w.name(p.id), w.now-since)
		}
	case sig == syscall.SIGTERM && by == bySend:
		if p.mark.asks > 0 || p.mark.hadTerm && p.group == w.rules.commandGroup(firstMain) {
			w.breach("TERM once", "%s has had it", w.name(p.id))
		}
		if w.isItsOwn(p) || !f.heir && w.isCleanUp(p) {
			w.breach("its own to finish", "%s is sent TERM, and is a child of %s", w.name(p.id), w.name(p.parent))
		}
		p.mark.asks++
		w.ghost.sent = true
	case sig == syscall.SIGTERM && f.rules.Group:
		p.mark.hadTerm = p.mark.hadTerm || p.start/tick*tick+tick <= w.now
		w.ghost.termAt = w.now
	}
	if asksForEnd(sig) || sig == w.rules.Deathsig || slices.Contains(w.rules.StopSignals, sig) {
		p.mark.termed, w.ghost.stopping = true, true
	}
}

// isCleared reports whether a process is of the command's group, and the command had to be killed.
func (w *world) isCleared(p *proc) bool {
	return w.ghost.cleared && w.ghost.mainEnded && p.group == firstMain && p.id != w.cast.main
}

// isCleanUp reports whether a process was started since its parent, a living leftover, had SIGTERM with the group.
func (w *world) isCleanUp(p *proc) bool {
	parent := w.get(p.parent)
	if parent == nil || !parent.alive() || !parent.has(ofTree) {
		return false
	}
	had := parent.group == w.rules.commandGroup(firstMain) && (parent.mark.hadTerm || parent.has(privileged) && parent.start/tick*tick+tick <= w.ghost.termAt)
	return w.ghost.termAt != 0 && had && p.start/tick*tick+tick > w.ghost.termAt || w.isCleanUp(parent)
}

// isItsOwn reports whether a process was started since its parent, a living leftover, had SIGTERM from fini.
func (w *world) isItsOwn(p *proc) bool {
	parent := w.get(p.parent)
	return parent != nil && parent.alive() && parent.has(ofTree) && (p.mark.afterAsk || w.isItsOwn(parent))
}

// grace is how long nobody is killed.
func (w *world) grace() time.Duration {
	if w.rules.KillAfter > 0 {
		return min(w.rules.Grace, w.rules.KillAfter)
	}
	return w.rules.Grace
}

const firstMain = 30 // the main child's pid

func (w *world) judgePolicy(p *proc, sig syscall.Signal) {
	if w.stays(p) {
		w.breach("policy", "%s is sent %d and has a name that is left alone", w.name(p.id), sig)
	}
	if w.ghost.overruled || sig == syscall.SIGKILL && (w.isCleared(p) || p.mark.cleared) || !slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, sig) {
		return
	}
	switch w.rules.Orphans {
	case LeaveAll:
		if !w.ghost.mainEnded {
			return // a command that does not end of SIGKILL
		}
		w.breach("policy", "%s is sent %d under leave", w.name(p.id), sig)
	case StopPipes:
		if w.ghost.mainEnded && !p.has(holding) {
			w.breach("policy", "%s is sent %d under pipes and holds none", w.name(p.id), sig)
		}
	case WaitAll:
		if !w.ghost.unwait {
			w.breach("policy", "%s is sent %d under wait", w.name(p.id), sig)
		}
	}
}

// judgeLook notes who is there when all are asked.
func (w *world) judgeLook(f *fini, ids []int) {
	s, ok := f.machine.(*sweep)
	if ok && (s.stage == counting || s.stage == clearing) {
		for _, id := range ids {
			p := w.get(id)
			p.mark.cleared = w.isCleared(p)
			w.ghost.seen = w.ghost.seen || !w.stays(p) && (s.stage == counting || p.mark.cleared)
		}
	}
	if !ok || s.stage != asking {
		return
	}
	first := !w.ghost.lookedToAsk
	w.ghost.lookedToAsk, w.ghost.stopping = true, true
	for _, p := range w.procs() {
		p.mark.missed = !slices.Contains(ids, p.id)
	}
	for _, id := range ids {
		p := w.get(id)
		if w.stays(p) || w.rules.Orphans == StopPipes && !w.ghost.overruled && !p.has(holding) {
			continue
		}
		w.ghost.seen = true
		if first && !w.isCleanUp(p) || p.parent == f.id {
			p.mark.adopted = true
		}
	}
}

// spared are the ids of those whom a fini leaves alone if they are all that is left.
func (w *world) spared(f *fini, v orphans.View) (ids []int) {
	s, ok := f.machine.(*sweep)
	for i, p := range v.Found {
		pipes := w.rules.Orphans == StopPipes && !w.ghost.overruled && p.Holds == 0
		if p.Allowed || pipes || ok && s.stage == counting {
			ids = append(ids, f.looked[i])
		}
	}
	return ids
}

// judgeIdle looks at a fini that is about to stop the command for --idle.
func (w *world) judgeIdle(f *fini) {
	main := w.get(w.cast.main)
	if w.ghost.stood < w.rules.Idle || w.ghost.quietLooks < 8 || w.blind {
		w.breach("idle", "%s stops for it after %v and %d looks", w.name(f.id), w.ghost.stood, w.ghost.quietLooks)
	}
	if w.stdin.unread > 0 || main != nil && main.state == 'T' && main.changed == 0 {
		w.breach("idle", "%s stops for it a command that is suspended or has %d bytes to read", w.name(f.id), w.stdin.unread)
	}
	w.ghost.idled, w.ghost.unwait = true, true
	w.may(syscall.SIGTERM, false)
	w.oblige(w.ladder())
}

// stepped looks at what a machine made of an event.
func (w *world) stepped(f *fini, before string, e event) {
	after := where(f.machine)
	exits := 0
	for i, a := range f.todo {
		if s, ok := a.(say); ok && s.why == WentIdle {
			w.judgeIdle(f)
		}
		if _, ok := a.(exit); ok {
			exits++
			if i != len(f.todo)-1 {
				w.breach("one end", "%s goes on behind its exit", w.name(f.id))
			}
		}
	}
	if exits > 1 || (exits == 1) != (f.machine == nil) {
		w.breach("one end", "%s is %s with %d exits", w.name(f.id), after, exits)
	}
	w.ghost.hurried = w.ghost.hurried || before == "lingering" && after == "clearing" && reflect.TypeOf(e) != reflect.TypeFor[elapsed]()
	switch e := e.(type) {
	case stop:
		w.ghost.overruled = w.ghost.overruled || e.why.overrules()
		w.ghost.unwait = true
	case Signal:
		if before == "pausing" && (after == "lingering" || after == "asking") {
			w.oblige(w.ladder())
		}
		sent := w.rules.rewritten(e.Signal)
		w.ghost.unwait = w.ghost.unwait || asksForEnd(sent)
		if before == "running" && asksForEnd(sent) && w.rules.KillAfter > 0 && (w.rules.Job == 0 || !e.OfTree && !e.byKey()) {
			w.oblige(w.rules.KillAfter + w.ladder())
		}
		if e.Signal == syscall.SIGINT && slices.Contains([]string{"lingering", "waiting", "clearing", "asking", "killing", "counting"}, before) {
			w.ghost.interrupts++
		}
	case elapsed:
		if before == "killed" { // a command that can't be ended is a leftover, and all are stopped
			w.ghost.overruled, w.ghost.unwait, w.ghost.unended = true, true, true
		}
	case looked:
		if s, ok := f.machine.(*sweep); before == "asking" && !w.ghost.begun && (!ok || s.askedAt != notAsked) {
			w.ghost.begun, w.ghost.askedAt = true, w.now
		}
		for _, p := range e.Found { // a reason may overrule the policy between the look and its answer
			w.ghost.seen = w.ghost.seen || before == "asking" && w.ghost.overruled && !p.Allowed
		}
	}
	if s, ok := f.machine.(*sweep); ok && before != where(s) && (before == "running" || before == "pausing") && s.Orphans == WaitAll {
		w.ghost.unwait = false // what came before is not for the leftovers
	}
	if before != "stopping" && after == "stopping" {
		w.ghost.stopAt = w.now
	}
	if before != after || len(f.todo) > 0 {
		w.supply.rows.one(before, strings.ToLower(reflect.TypeOf(e).Name()), after)
	}
	if w.story != nil {
		*w.story = append(*w.story, scene{
			at: w.now, who: w.name(f.id), what: text(f.todo), event: eventText(e),
			turn: fmt.Sprintf("{%d * ms, %s, %q, %q},", w.now/ms, eventCode(e), text(f.todo), after),
		})
	}
}

// got counts what reaches the main child.
func (w *world) got(p *proc, sig syscall.Signal) {
	if i := slices.Index(counted, sig); i >= 0 && p.id == w.cast.main {
		w.ghost.got[i]++
		if w.ghost.got[i] > w.ghost.due[i] {
			w.breach("TERM once", "main gets signal %d %d times, and %d were for it", sig, w.ghost.got[i], w.ghost.due[i])
		}
	}
}

// may lets a signal reach the main child once more; sent says that it has to.
func (w *world) may(sig syscall.Signal, sent bool) {
	if i := slices.Index(counted, sig); i >= 0 {
		w.ghost.due[i]++
		w.ghost.sentForMain[i] = w.ghost.sentForMain[i] || sent
	}
}

// lost draws the conclusions of a death.
func (w *world) lost(p *proc, status syscall.WaitStatus) {
	r, c := w.rules, w.cast
	pair := c.inner != 0
	switch {
	case p.id == c.shell && w.supply.bond && w.ghost.parentDiedAt == 0:
		w.ghost.parentDiedAt = w.now
		fallthrough
	case p.id == c.shell && w.supply.bond, p.id != 0 && p.id == c.bound:
		w.ghost.reason = true
		w.may(r.Deathsig, false)
		heeds := time.Duration(0)
		if r.Job != 0 {
			heeds = min(r.Linger, sameEnd)
		}
		w.oblige(heeds + w.ladder())
	case p.has(isFini) && (w.fini(p.id).said && w.fini(p.id).machine == nil):
	case p.has(isFini):
		w.ghost.killed++
		w.ghost.reason = true
		w.ghost.wordless = w.ghost.wordless || p.id == c.inner && !w.ghost.done
		if pair {
			if p.id == c.outer {
				w.may(r.Deathsig, false)
			}
			w.oblige(w.ladder())
		}
	case p.id == c.main:
		w.ghost.mainEnded, w.ghost.mainStatus, w.ghost.mainEndedAt = true, status, w.now
		if r.Orphans != WaitAll {
			w.oblige(r.Linger + r.Grace + w.extra())
		}
		if worker := &w.finis[len(w.finis)-1]; w.supply.timeout != 0 && worker.timeout == 0 {
			undecided := slices.ContainsFunc(worker.queue, func(e event) bool { s, is := e.(stop); return is && s.why == TimedOut })
			w.ghost.timeout = 1 + byte(boolToInt(!undecided))
		}
	}
	if p.mark.sender {
		w.may(syscall.SIGTERM, false) // who is gone can't be told to have been of the tree: a limit
	}
	if _, pausing := w.finis[0].machine.(paused); w.ghost.mainEnded && !pausing && !w.treeAlive(p) {
		w.oblige(r.Linger + longPause)
	}
}

// treeAlive reports whether any of the tree is, beside the one that is just ending.
func (w *world) treeAlive(but *proc) bool {
	for _, p := range w.procs() {
		if (p != but || p.has(traced)) && (p.has(ofTree) || p.id == w.cast.inner && p.has(traced)) && !w.stays(p) && (p.alive() || p.state == 'Z' && p.has(traced)) {
			return true
		}
	}
	return false
}

const slack = 300 * ms

// ladder is how long it may take from a reason to the end.
func (w *world) ladder() time.Duration {
	return time.Duration(2+max(len(w.rules.StopSignals)-1, 0))*w.rules.Grace + w.rules.Linger + w.extra()
}

// extra is the same for those that can't be ended.
func (w *world) extra() time.Duration {
	for _, p := range w.procs() {
		if p.has(asleep | privileged | traced) {
			return 4*killedBound + slack
		}
	}
	return slack
}

func (w *world) oblige(within time.Duration) {
	if at := w.now + within; w.ghost.mustEnd == 0 || at < w.ghost.mustEnd {
		w.ghost.mustEnd = at
	}
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

// judgeRest looks at a world in which no fini has anything to do until next, 0 for never.
func (w *world) judgeRest(next time.Duration) {
	alive, isStopped := w.finisAlive()
	if w.judgePair(); !alive || isStopped {
		return
	}
	if must := w.ghost.mustEnd; must != 0 && (next == 0 || next > must) {
		w.breach("bounded", "no fini has anything to do before %v, and all should be over at %v", next, must)
	}
	for _, p := range w.procs() {
		if w.orphaned && w.top() != nil && w.top().alive() && p.state == 'T' && p.mark.byKey && p.group == w.rules.Job {
			w.breach("bounded", "%s is left stopped with an orphaned job, which nobody continues", w.name(p.id))
		}
	}
	worker := &w.finis[len(w.finis)-1]
	l, ok := worker.machine.(*ladder)
	main := w.get(w.cast.main)
	if !ok || w.ghost.killed > 0 || l.rung == killed || main == nil || !main.alive() || main.has(privileged) || main.pending.has(syscall.SIGKILL) {
		return
	}
	for i, sig := range counted {
		if w.ghost.sentForMain[i] && w.ghost.got[i] == 0 {
			w.breach("forwarded", "main has not got signal %d", sig)
		}
	}
	if l.rung == running && w.rules.Idle > 0 && (next == 0 || next > w.now+w.rules.lookIdle() || w.ghost.quietLooks > 9 && !w.ghost.talked && w.stdin.unread == 0 && !w.blind && main.state == 'S') {
		w.breach("idle", "next is %v, after %d looks", next, w.ghost.quietLooks)
	}
	if main.state == 'T' && l.rung == stopping && l.isSuspended {
		w.breach("bounded", "main is to end, and is left stopped")
	}
}

// judgeEnd looks at a fini that ends by itself.
func (w *world) judgeEnd(f *fini) {
	if f.outer {
		if inner := w.get(w.cast.inner); inner != nil && inner.alive() {
			w.breach("the pair", "outer ends before inner")
		}
	}
	for _, p := range w.procs() {
		if !p.alive() || !p.has(ofTree) || p.has(privileged|asleep) || w.stays(p) {
			continue
		}
		if w.blind && p.parent != f.id {
			continue // it is below one that can't be ended: nobody sees it
		}
		switch spared := w.rules.Orphans == LeaveAll && w.ghost.mainEnded; {
		case w.isCleared(p):
			w.breach("cleaners", "%s ends and %s of its group is alive", w.name(f.id), w.name(p.id))
		case w.ghost.overruled || w.rules.Orphans == StopAll || w.rules.Orphans == WaitAll:
			w.breach("nothing left", "%s ends and %s is alive", w.name(f.id), w.name(p.id))
		case w.rules.Orphans == StopPipes && p.has(holding):
			w.breach("EOF", "%s ends and %s holds a stream", w.name(f.id), w.name(p.id))
		case w.rules.Orphans == LeaveAll && !spared:
			w.breach("nothing left", "%s ends before main", w.name(f.id))
		}
	}
	for _, id := range f.stay {
		if p := w.get(id); p != nil && p.alive() && !slices.Contains(f.told, p.pid) {
			w.breach("listed", "%s ends and has not told that %s stays", w.name(f.id), w.name(id))
		}
	}
	if !f.inner {
		w.judgeStatus(f)
	}
}

// judgeReason looks at the reason that the report gives.
func (w *world) judgeReason(f *fini, why Reason) {
	closed, died := w.ghost.closedAt, w.ghost.parentDiedAt
	switch {
	case w.noPidfds || !w.supply.bond || f.heir:
	case why == StdinClosed && closed != 0 && died != 0 && died-closed <= crash && f.stdinAt == closed && died <= w.now && (f.parentAt == 0 && w.now-closed <= crash || f.parentAt != 0 && f.parentAt-closed <= crash):
		w.breach("the reason", "stdin has closed at %v, and the parent process has died at %v", closed, died)
	case why == ParentDied && died == 0:
		w.breach("the reason", "the parent process is alive")
	}
}

// judgeStatus looks at how the outer or only fini ends.
func (w *world) judgeStatus(f *fini) {
	if sig := w.ghost.endBy; sig != 0 && !w.ghost.done {
		if f.result != (Result{Sig: sig}) {
			w.breach("the pair", "fini was asked to end by %d before the command was started, and outer ends with %+v", sig, f.result)
		}
		return
	}
	if w.ghost.early != 0 {
		if f.result.Status() != w.ghost.early && (w.cast.tracer == 0 || f.result.Sig != syscall.SIGKILL) {
			w.breach("the pair", "inner has ended by itself, and outer ends with %d, want %d", f.result.Status(), w.ghost.early)
		}
		return
	}
	if w.ghost.wordless {
		if f.result.Status() != 128+9 {
			w.breach("the pair", "inner was killed, and outer ends with %d", f.result.Status())
		}
		return
	}
	ends := []Result{ResultOf(w.ghost.mainStatus)}
	if !w.ghost.mainEnded || w.ghost.unended || w.cast.tracer != 0 {
		ends = append(ends, Result{Sig: syscall.SIGKILL}) // it could not be ended, or its end not be seen
	}
	switch {
	case w.ghost.idled, w.ghost.timeout == 2: // whatever else has asked it to end
		ends = []Result{{Code: exitTimedOut}}
	case w.ghost.timeout > 0:
		ends = append(ends, Result{Code: exitTimedOut})
	}
	if !w.ghost.mainEnded && w.supply.timeout != 0 {
		ends = append(ends, Result{Code: exitTimedOut})
	}
	for _, end := range slices.Clone(ends) {
		mapped := end
		if slices.Contains(w.rules.Remap, end.Status()) {
			mapped = Result{}
		}
		with := mapped
		if mapped.Status() == 0 && w.rules.OrphansExit >= 0 {
			with.Code = w.rules.OrphansExit
		}
		ends = slices.DeleteFunc(ends, func(r Result) bool { return r == end })
		audited := w.rules.Orphans == LeaveAll && !w.ghost.overruled && w.ghost.seen
		if !w.ghost.sent && !audited {
			ends = append(ends, mapped)
		}
		if w.ghost.seen {
			ends = append(ends, with)
		}
	}
	if f.pid1 {
		return // by status alone; see endOf
	}
	if !slices.Contains(ends, f.result) {
		w.breach("status", "%s ends with %+v, want one of %+v", w.name(f.id), f.result, ends)
	}
}
