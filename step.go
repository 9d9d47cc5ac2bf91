package main

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// phase is where a life stands. The first four are the rungs that the main child is
// stopped by, the others are about its leftovers. In every phase the answer that no
// child is left ends the life, with the command's status.
//
//	phase      what is so                           what ends it
//	running    the main child lives                 stdin's end: closing; the launcher's
//	                                                death or --timeout: stopping
//	closing    it can see the end of its stdin      --grace without a byte read: stopping
//	stopping   it has been sent a stop signal       --grace or --kill-after: ending
//	ending     its group has been sent SIGKILL      it does not end: killing
//
//	lingering  leftovers may finish by themselves   --linger has passed, or a reason to
//	                                                stop: asking
//	waiting    leftovers may take for ever          a reason to stop: asking
//	asking     each leftover is sent SIGTERM once   --grace has passed: killing
//	killing    SIGKILL, sweep after sweep           nothing more can be done: over
//	over       fini exits
//	pausing    there is no command: --pause         SIGTERM or SIGINT: over
//
// The end of the main child leads from the first four to lingering, from running to
// waiting under --orphans=wait, and to over under leave. The launcher's death overrules
// every policy. Under --orphans=pipes, lingering, asking and killing also end when no
// holder is left. A reason to stop is the launcher's death, stdin's end (not while
// lingering, for the command may have ended by it), --timeout, or a signal that asks for
// an end.
type phase int

const (
	running phase = iota
	closing
	stopping
	ending
	lingering
	waiting
	asking
	killing
	over
	pausing
)

// The policies of --orphans.
const (
	stopAll   = "stop"
	stopPipes = "pipes"
	waitAll   = "wait"
	leaveAll  = "leave"
)

const (
	// The time between two looks at the tree. It starts short after each death,
	// since a death may bring new leftovers to light, and doubles.
	shortPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond

	// How long fini waits once SIGKILL reaches nobody new. One that was killed may
	// have much memory to give back, or sit in uninterruptible sleep; one that may
	// not be signalled can only end by itself.
	killedBound  = 10 * time.Second
	refusedBound = 2 * time.Second

	// A stop that is heard of this long after the main child was asked to end was under
	// way already. It would put the end off until somebody thinks of SIGCONT.
	stopInFlight = time.Second

	// Who kills the launcher has sent fini the same signal within this long, if at all.
	sameEnd = time.Second

	// So many leftovers are told of one by one, the others are counted.
	maxTold = 20
)

// rules are what the command line says of a life.
type rules struct {
	grace, linger time.Duration
	killAfter     time.Duration  // 0 for off
	deathsig      syscall.Signal // the stop signal when the launcher has died
	orphans       string
	orphansExit   int // -1 for none
	remap         []int
	singleChild   bool
	warnReaped    bool
	rewrite       map[syscall.Signal]syscall.Signal
	outer         bool // the command is the inner fini of a pair
}

// reason is why fini stops a command of itself.
type reason int

const (
	launcherDied reason = iota
	stdinClosed
	timedOut
)

func (r reason) String() string {
	return [...]string{"the launcher has died", "standard input has closed", "the time is up"}[r]
}

// An event is what the loop has learnt.
type event any

type (
	received struct{ sig syscall.Signal } // somebody sent fini a signal
	stop     struct{ why reason }         // fini has a reason of its own
	unread   struct{ bytes int }          // the answer to askStdin
	ended    struct {                     // children were reaped
		exits []reaper.Exit
		none  bool // no child is left: the tree is empty
		heir  int  // the command of an inner fini, which had SIGTERM if that died; 0 for none
	}
	looked struct { // the answer to look
		found []orphans.Process
		err   error
	}
	swept struct { // the answer to kill
		hit, refused []int // pids: sent SIGKILL, and those that may not be
		err          error
	}
	elapsed struct{} // the time asked for with wake has passed
	resumed struct{} // the answer to suspend: fini goes on, if it was stopped at all
)

// An action is what the loop has to do.
type action any

type (
	forward  struct{ sig syscall.Signal } // to the main child's group
	suspend  struct{ sig syscall.Signal } // stop fini as the command was; answered by resumed
	handOver struct{}                     // the terminal, if fini holds its foreground
	askStdin struct{}                     // how much is unread; answered by unread
	look     struct{}                     // at the tree; answered by looked
	send     struct {                     // to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill struct{}                      // a sweep of SIGKILL; answered by swept
	wake struct{ after time.Duration } // replaces the wake before
	tell struct {                      // of a leftover: what is being done about it
		process orphans.Process
		what    string
		quietly bool // it is one of many
	}
	say struct { // anything else
		level level
		text  string
	}
	exit struct{ status int }
)

// life is the state of one command and its tree. step is its only way on, and
// makes no system call.
type life struct {
	rules
	group int // the main child's pid and process group

	phase    phase
	status   int           // the main child's, as a shell gives it
	deadline time.Duration // when the phase is due to end, as uptime
	pause    time.Duration // between two looks
	due      time.Duration // when the next wake comes, as uptime

	timedOut   bool           // --timeout ran out first
	leftUnread int            // bytes of stdin when last looked at
	owed       syscall.Signal // sent when the launcher died; the next one is a copy of it

	sent      map[syscall.Signal]time.Duration // when the main child was last sent one, as uptime
	halted    bool                             // the main child is stopped, as far as fini has heard
	stopAsked bool                             // fini was sent a signal that stops the command
	contOwed  bool                             // the command was continued when fini was; a SIGCONT is to come
	stopStale time.Duration                    // up to here a stop of the main child was under way when it was asked to end

	groupAsked time.Duration // when the group was last sent SIGTERM; 0 is never
	heir       int           // see ended

	// Of an outer fini:
	innerKilled bool // the inner one was ended by a signal
	gaveUp      bool // the inner one gave up on leftovers

	asked  map[leftover]bool // leftovers that have had SIGTERM
	told   int               // how many leftovers had to be stopped
	killed map[int]bool      // pids that were sent SIGKILL and are not reaped yet
}

// leftover identifies a process for good, as its pid alone does not.
type leftover struct {
	pid   int
	start time.Duration
}

// newLife is the life of the main child mainPid, 0 for none.
func newLife(r rules, mainPid int) *life {
	start := running
	if mainPid == 0 {
		start = pausing
	}
	return &life{rules: r, group: mainPid, phase: start, sent: map[syscall.Signal]time.Duration{}, asked: map[leftover]bool{}, killed: map[int]bool{}}
}

// step takes in an event at an uptime and returns what to do about it, in order.
func (l *life) step(now time.Duration, e event) []action {
	if l.phase == over {
		return nil
	}
	switch e := e.(type) {
	case received:
		return l.received(now, e.sig)
	case stop:
		return l.stop(now, e.why)
	case unread:
		return l.unread(now, e.bytes)
	case ended:
		return l.ended(now, e)
	case looked:
		return l.looked(now, e)
	case swept:
		return l.swept(now, e)
	case elapsed:
		return l.elapsed(now)
	case resumed:
		return l.resumed(now)
	}
	panic(fmt.Sprintf("no such event: %T", e))
}

func (l *life) received(now time.Duration, sig syscall.Signal) []action {
	as, rewritten := l.rewrite[sig]
	if !rewritten {
		as = sig
	}
	if as == 0 {
		return nil
	}
	switch l.phase {
	case running, closing, stopping:
		if sig == l.owed {
			// The group of a launcher that died was sent this signal too.
			l.owed = 0
			return nil
		}
		switch sig {
		case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
			l.stopAsked = true
		case syscall.SIGCONT:
			if l.contOwed {
				l.contOwed = false
				return nil
			}
			return append([]action{handOver{}}, l.forward(now, as)...)
		}
		do := l.forward(now, as)
		if asksForEnd(sig) {
			do = append(do, l.continueHalted(now)...)
			l.stopStale = now + stopInFlight
		}
		switch {
		case !asksForEnd(sig):
		case l.phase == closing: // the sender has climbed to the next rung
			return append(do, l.stoppingFor(now, l.grace)...)
		case l.phase == running && l.killAfter > 0:
			return append(do, l.stoppingFor(now, l.killAfter)...)
		}
		return do
	case lingering, waiting:
		if asksForEnd(sig) {
			return l.startAsking(now)
		}
	case pausing:
		if sig == syscall.SIGTERM || sig == syscall.SIGINT {
			return l.finish()
		}
	}
	return nil
}

// stopped stops fini as its command was stopped at the terminal, so that the shell sees a
// stopped job. A command that was sent SIGSTOP is its sender's to continue, and one that is
// to end is not left stopped.
func (l *life) stopped(now time.Duration, sig syscall.Signal) []action {
	switch sig {
	case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		if l.phase == stopping || now < l.stopStale {
			return l.forward(now, syscall.SIGCONT)
		}
		return []action{suspend{sig}}
	}
	return nil
}

// resumed continues the command where the shell has continued fini, or none is there
// that could. One that was stopped by way of fini is continued by way of fini.
func (l *life) resumed(now time.Duration) []action {
	if l.stopAsked {
		l.stopAsked = false
		return nil
	}
	l.contOwed = true
	return append([]action{handOver{}}, l.forward(now, syscall.SIGCONT)...)
}

// asksForEnd tells whether a sender of sig wants the command to end.
func asksForEnd(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// continueHalted continues a main child that is stopped, and could not act on the signal
// that it has just been sent.
func (l *life) continueHalted(now time.Duration) []action {
	if !l.halted {
		return nil
	}
	return l.forward(now, syscall.SIGCONT)
}

// forward sends sig to the main child's group and remembers that.
func (l *life) forward(now time.Duration, sig syscall.Signal) []action {
	l.sent[sig] = now
	l.halted = l.halted && sig != syscall.SIGCONT
	if sig == syscall.SIGTERM && !l.singleChild {
		l.groupAsked = now
	}
	return []action{forward{sig}}
}

// stop climbs the ladder for a reason of fini's own.
func (l *life) stop(now time.Duration, why reason) []action {
	do := []action{say{detail, why.String()}}
	if why == launcherDied {
		l.orphans = stopAll // nobody is left for whom another policy would be good
	}
	if l.outer {
		// The inner one sees it too, as long as it is not stopped.
		l.stopStale = math.MaxInt64
		return append(do, l.continueHalted(now)...)
	}
	switch {
	case l.phase == lingering && why != stdinClosed, l.phase == waiting:
		return append(do, l.startAsking(now)...)
	case l.phase > stopping,
		l.phase == closing && why == stdinClosed,
		l.phase == stopping && l.deadline <= now+l.grace:
		return nil
	case l.phase == running && why == stdinClosed:
		l.phase, l.deadline, l.leftUnread = closing, now, math.MaxInt
		return append(do, askStdin{})
	}
	sig := syscall.SIGTERM
	switch why {
	case timedOut:
		l.timedOut = true
	case launcherDied:
		sig = l.deathsig
		if l.hadRecently(now, sig) {
			break
		}
		l.owed = sig
	}
	return append(do, l.startStopping(now, sig)...)
}

// hadRecently tells whether the main child was sent sig for this very end: who killed
// the launcher may have sent fini the same a moment before.
func (l *life) hadRecently(now time.Duration, sig syscall.Signal) bool {
	at, ok := l.sent[sig]
	return ok && now-at <= max(l.grace, sameEnd)
}

// startStopping sends the stop signal, unless the main child has had it, and waits for
// its end.
func (l *life) startStopping(now time.Duration, sig syscall.Signal) (do []action) {
	if !l.hadRecently(now, sig) {
		do = l.forward(now, sig)
	}
	do = append(do, l.continueHalted(now)...)
	return append(do, l.stoppingFor(now, l.grace)...)
}

func (l *life) stoppingFor(now, grace time.Duration) []action {
	l.phase, l.deadline = stopping, now+grace
	return l.wakeAfter(now, grace)
}

// unread waits on while the command reads what is left of its stdin: the end is behind
// that.
func (l *life) unread(now time.Duration, bytes int) []action {
	switch {
	case l.phase != closing:
		return nil
	case now < l.deadline: // woken too early
		return l.wakeAfter(now, l.deadline-now)
	case bytes >= l.leftUnread:
		return l.startStopping(now, syscall.SIGTERM)
	}
	l.leftUnread, l.deadline = bytes, now+l.grace
	return l.wakeAfter(now, l.grace)
}

func (l *life) ended(now time.Duration, e ended) (do []action) {
	mainEnded := false
	for _, x := range e.exits {
		if x.Status.Stopped() {
			if x.Pid == l.group && l.phase < ending {
				l.halted = true
				do = append(do, l.stopped(now, x.Status.StopSignal())...)
			}
			continue
		}
		delete(l.killed, x.Pid)
		switch {
		case x.Pid == l.group && l.phase < lingering:
			mainEnded = true
			l.status = statusOf(x.Status)
			l.innerKilled = l.outer && x.Status.Signaled()
			do = append(do, say{detail, fmt.Sprintf("command %d ended with status %d", x.Pid, l.status)})
		case l.warnReaped:
			do = append(do, say{notice, fmt.Sprintf("reaped zombie %d", x.Pid)})
		}
	}
	switch {
	case l.phase == pausing:
	case e.none:
		return append(do, l.finish()...)
	case mainEnded && l.outer:
		l.heir = e.heir
		return append(do, l.innerEnded(now)...)
	case mainEnded:
		return append(do, l.mainEnded(now)...)
	case l.looking():
		l.pause = shortPause
		return append(do, l.soon(now)...)
	}
	return do
}

// looking tells whether the phase is one in which the tree is looked at again.
func (l *life) looking() bool {
	return l.phase == asking || l.phase == killing || l.phase == lingering && l.orphans == stopPipes
}

// mainEnded is what follows the main child's end when it left something.
func (l *life) mainEnded(now time.Duration) []action {
	switch {
	case l.orphans == leaveAll:
		return l.finish()
	case l.orphans == waitAll && l.phase == running:
		l.phase = waiting
		return nil
	}
	if l.linger == 0 {
		return l.startAsking(now)
	}
	l.phase, l.deadline, l.pause = lingering, now+l.linger, shortPause
	if l.looking() {
		return []action{look{}}
	}
	return l.wakeAfter(now, l.linger)
}

// innerEnded is what follows the end of the inner fini of a pair when it left something.
func (l *life) innerEnded(now time.Duration) []action {
	switch {
	case l.innerKilled:
		// The command was not at its end, so no policy leaves anything alone.
		l.orphans = stopAll
		return l.startAsking(now)
	case l.orphans == stopAll:
		// It gave up on these, and said so. Those that can be killed now are.
		l.gaveUp = true
		l.phase, l.deadline, l.pause = killing, now+killedBound, shortPause
		return []action{kill{}}
	}
	return l.finish()
}

func (l *life) startAsking(now time.Duration) []action {
	l.phase, l.deadline, l.pause = asking, now+l.grace, shortPause
	return []action{look{}}
}

func (l *life) elapsed(now time.Duration) []action {
	switch {
	case l.phase == closing:
		return []action{askStdin{}}
	case l.phase == stopping && now >= l.deadline:
		l.phase, l.deadline = ending, now+killedBound
		return append(l.forward(now, syscall.SIGKILL), l.wakeAfter(now, killedBound)...)
	case l.phase == ending && now >= l.deadline:
		// The main child has been sent SIGKILL and lives: it is a leftover like others.
		l.status = 128 + int(syscall.SIGKILL)
		l.phase, l.orphans, l.deadline, l.pause = killing, stopAll, now+killedBound, shortPause
	case l.phase == lingering && now >= l.deadline:
		return l.startAsking(now)
	case l.phase == asking && now >= l.deadline:
		// One more look, to say who did not end.
		l.phase, l.deadline, l.pause = killing, now+killedBound, shortPause
	case l.phase == killing && l.orphans == stopAll:
		return []action{kill{}}
	}
	switch {
	case l.looking():
		return []action{look{}}
	case l.phase == stopping, l.phase == ending, l.phase == lingering: // woken too early
		return l.wakeAfter(now, l.deadline-now)
	}
	return nil
}

func (l *life) looked(now time.Duration, e looked) []action {
	if e.err != nil {
		return append([]action{say{failure, fmt.Sprintf("cannot stop leftovers: %v", e.err)}}, l.finish()...)
	}
	found := e.found
	if l.orphans == stopPipes {
		// One whose descriptors may not be seen counts as a holder: the policy
		// promises the reader its EOF.
		found = slices.DeleteFunc(slices.Clone(found), func(p orphans.Process) bool { return p.Holds == 0 })
		if len(found) == 0 {
			return l.finish()
		}
	}
	switch l.phase {
	case asking:
		return append(l.ask(found), l.again(now)...)
	case killing:
		return l.finishOff(now, found)
	}
	return l.again(now)
}

// ask sends SIGTERM to those that have not had it, first to the escapees that keep
// a reader waiting.
func (l *life) ask(found []orphans.Process) (do []action) {
	rank := func(p orphans.Process) int {
		if p.Holds != 0 && p.Group != l.group {
			return 0
		}
		return 1
	}
	found = slices.SortedStableFunc(slices.Values(found),
		func(a, b orphans.Process) int { return rank(a) - rank(b) })
	for _, p := range found {
		id := leftover{p.Pid, p.Start}
		if l.asked[id] {
			continue
		}
		l.asked[id] = true
		do = append(do, l.tell(p, "stopping")...)
		// What was forwarded to the group reached every member of it.
		if p.Pid != l.heir && (p.Group != l.group || p.Start > l.groupAsked) {
			do = append(do, send{p, syscall.SIGTERM})
		}
		if p.State == 'T' {
			do = append(do, send{p, syscall.SIGCONT}) // stopped, it can't act on SIGTERM
		}
	}
	return do
}

// tell counts a leftover that has to be stopped, and tells of the first of them.
func (l *life) tell(p orphans.Process, what string) []action {
	l.told++
	return []action{tell{p, what, l.told > maxTold}}
}

// finishOff goes from asking to killing, with what the last look found.
func (l *life) finishOff(now time.Duration, found []orphans.Process) (do []action) {
	var hit []int
	for i, p := range found {
		if !l.killed[p.Pid] {
			do = append(do, tell{p, "killing", i >= maxTold})
		}
		if l.orphans == stopPipes {
			do = append(do, send{p, syscall.SIGKILL})
			hit = append(hit, p.Pid)
		}
	}
	if l.orphans == stopPipes {
		return append(do, l.swept(now, swept{hit: hit})...)
	}
	return append(do, kill{})
}

func (l *life) swept(now time.Duration, e swept) []action {
	if l.gaveUp && (e.err != nil || len(e.hit) == 0) {
		return l.finish()
	}
	if e.err != nil {
		return append([]action{say{failure, fmt.Sprintf("cannot stop leftovers: %v", e.err)}}, l.finish()...)
	}
	fresh := false
	for _, pid := range e.hit {
		fresh = fresh || !l.killed[pid]
		l.killed[pid] = true
	}
	if fresh {
		// It may have forked before it was hit: sweep again at once.
		l.deadline, l.pause = now+killedBound, shortPause
		return l.wakeAfter(now, 0)
	}
	bound := l.deadline
	if len(e.hit) == 0 {
		bound -= killedBound - refusedBound
	}
	if now >= bound && len(e.hit)+len(e.refused) > 0 {
		text := fmt.Sprintf("gave up on leftovers that do not end: %v", slices.Concat(e.hit, e.refused))
		return append([]action{say{failure, text}}, l.finish()...)
	}
	return l.again(now)
}

// again asks for the next look, later each time and not after the phase's end.
func (l *life) again(now time.Duration) []action {
	after := min(l.pause, max(l.deadline-now, 0))
	l.pause = min(2*l.pause, longPause)
	return l.wakeAfter(now, after)
}

// soon asks for a look after a short pause, unless one is due before. A tree that
// never stops dying must not put it off for ever.
func (l *life) soon(now time.Duration) []action {
	if l.due <= now+shortPause {
		return nil
	}
	return l.wakeAfter(now, shortPause)
}

func (l *life) wakeAfter(now, after time.Duration) []action {
	l.due = now + after
	return []action{wake{after}}
}

// finish ends the life with the status that the rules make of it.
func (l *life) finish() (do []action) {
	l.phase = over
	if l.told > maxTold {
		do = append(do, say{notice, fmt.Sprintf("stopped %d leftovers in all", l.told)})
	}
	status := l.status
	if l.timedOut {
		status = exitTimedOut
	}
	if l.outer && !l.innerKilled {
		return append(do, exit{status}) // the inner one has applied the rest
	}
	if slices.Contains(l.remap, status) {
		status = 0
	}
	if status == 0 && l.told > 0 && l.orphansExit >= 0 {
		status = l.orphansExit
	}
	return append(do, exit{status})
}

// statusOf is the status of a process as a shell gives it: what it exited with, or
// 128 and the signal that ended it.
func statusOf(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
