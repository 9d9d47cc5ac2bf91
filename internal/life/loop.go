package life

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// A Kernel answers a Loop's questions and carries out its actions: the real kernel, or the model of the tests.
type Kernel interface {
	Now() time.Duration // since boot

	// Wait sleeps until something has happened, or the time has come; 0 is never. If main is true, Wait also watches the
	// main child's pidfd. Then it may let the exits of others gather for a moment.
	Wait(until time.Duration, main bool) Woken
	// Reap collects the children that have exited, stopped or continued. none is true if no other child is left.
	Reap() (exits []reaper.Exit, none bool)
	// Exited takes note of a child that was reaped. killed means that it was killed by SIGKILL, which fini has not sent.
	Exited(x reaper.Exit, killed bool)
	MainEnded() // the main child has exited

	Taken(got Signal)                                       // notes a signal that the life takes in
	Dropped(got Signal)                                     // warns that an inner fini has dropped one, or that a pause ignores it
	Traffic() (orphans.Traffic, error)                      // of the processes that hold standard input
	ParentDies() bool                                       // whether the parent process, if that is watched, is dead or dying
	Unread() int                                            // bytes of standard input, if Wait watches for its end
	Look() (orphans.View, error)                            // at the live tree; also records which process started which
	IncludeEarlier()                                        // from now on Reap and Look count the children from before fini
	Survey(why Reason, named bool)                          // of what the tree is doing; takes at most 100 ms
	Forward(main int, sig syscall.Signal, group bool)       // to the main child, or to its group
	Send(to orphans.Process, sig syscall.Signal) (may bool) // to a leftover that the last Look has found, if fini may
	Kill(childrenOnly bool) (hit, refused []int, err error) // by SIGKILL

	Say(level Level, text string, why Reason)                              // adds the reason, if any
	Tell(p orphans.Process, what, spared string, quietly bool, of *Record) // of is nil if fini has sent it nothing
	Exit(end End)                                                          // the last action of a life
}

// Woken is why a Wait has returned.
type Woken struct {
	Signals []Signal
	Main    bool     // a pidfd shows that the main child has exited
	Stop    []Reason // a process or stream to which the command is bound has ended
}

// An End is how a life has ended.
type End struct {
	Result
	Leaks
	Why Reason // why fini stopped the command or its leftovers, if it did
}

// Leaks are the leftovers that count for --orphans-exit.
type Leaks struct {
	Count   int
	Left    bool // fini has only counted them, and left them alone
	Decided bool // leftovers decide the status: the command has succeeded, and fini does not
}

// A Loop ties the machines to a Kernel. It runs in one goroutine, which alone reaps and signals.
type Loop struct {
	Kernel
	rules   Rules
	machine Machine // nil when the life is over
	queue   []event // for the machine
	todo    []action
	result  Result

	*records
	byPidfd    bool          // the main child's pidfd shows its exit to Wait, and has not yet
	mainGone   bool          // Wait has just seen that exit
	hasDropped bool          // a signal, and said so: see Take
	mustReap   bool          // children may have changed
	timeout    time.Duration // when --timeout is over, as uptime; 0 is never, also below
	wake       time.Duration // when the machine wants to be woken
	why        Reason        // the first reason for which fini has stopped anything
	stdinAt    time.Duration // when standard input ended, as uptime
	parentAt   time.Duration // when the parent process died
	mainAt     time.Duration // when the main child's exit was seen
	seen       time.Duration // when the loop last looked at the clock
	slice      time.Duration // of the wait for wake, if that is longer than shortSlice
}

// The waits of a stop count running time, in slices of this length. A slice that took longer counts as one, because the
// command must not get SIGKILL as soon as a paused container or a suspended machine goes on. fini gives back one time
// of any length, or many that add up to the longest of --grace, -k, --orphans-grace and --stop-within. So nobody can put
// SIGKILL off for ever by suspending and continuing fini again and again. In a long wait a slice is a 64th of it, so that
// fini can sleep while leftovers have an hour to finish.
const (
	shortSlice   = 250 * time.Millisecond
	slicesOfWait = 64
)

// New returns the loop of a life that begins now. main is the pid of the main child. Without a main child, as under
// --pause, it is 0. If watched is true, Wait can watch for the main child's exit.
func New(k Kernel, rules Rules, main int, watched bool) *Loop {
	l := newLoop(k, rules, main)
	// mustReap makes the first turn reap: a child may have exited before SIGCHLD was caught.
	l.byPidfd, l.mustReap = watched, true
	if l.machine = newLadder(rules, l.records); main == 0 {
		l.machine = paused{rules, l.records}
	}
	if rules.Idle > 0 && main != 0 {
		l.wake = k.Now() + rules.lookIdle()
	}
	if rules.Timeout > 0 {
		l.timeout = k.Now() + rules.Timeout
	}
	return l
}

func newLoop(k Kernel, rules Rules, main int) *Loop {
	return &Loop{Kernel: k, rules: rules, records: &records{main: Record{Pid: main}, leftovers: map[int]*Record{}}, seen: k.Now()}
}

// NewHeir returns the loop of the outer fini of a pair whose inner fini was killed: it stops the command, whose pid is
// main, and all that the command has started, and ends as result says. The inner fini had not finished, so --orphans
// doesn't spare any leftover, but --allow-orphan still spares the leftovers that it names. Every other process is asked
// to exit, although the kernel may have sent the command its parent death signal.
//
// asked is when the outer fini relayed the first SIGTERM, as uptime, or 0. If that has started --stop-within, it goes on.
func NewHeir(k Kernel, rules Rules, main int, result Result, asked time.Duration) *Loop {
	l := newLoop(k, rules, main)
	if asked != 0 && rules.StopWithin > 0 && rules.asks(Signal{Received: signals.Received{Signal: syscall.SIGTERM}})&startsStopWithin != 0 {
		l.stopBy = max(asked+rules.StopWithin, k.Now()+rules.reserve())
	}
	s := newSweep(rules, l.records)
	s.Orphans, s.result = StopAll, result
	s.OrphansGrace = s.Grace // the command is asked too
	if l.machine = s; !l.collect().none {
		l.todo, l.machine = s.ask(say{level: Normal, text: "stopping the command: the inner fini was killed"})
	}
	return l
}

// Stop stops the command for this reason.
func (l *Loop) Stop(why Reason) {
	switch why {
	case StdinClosed:
		l.stdinAt = l.Now()
	case ParentDied:
		l.parentAt = l.Now()
	}
	l.queue = append(l.queue, stop{why: why, unread: l.Unread()})
}

// reason is why fini has stopped anything. A parent process that dies closes standard input before its death can be seen.
// So if it dies right after the end of standard input, its death is the reason.
func (l *Loop) reason() Reason {
	switch {
	case l.why == NoReason && l.stdinAt != 0 && l.stdinAt <= l.mainAt: // the command has exited because of that
	case l.why != StdinClosed:
		return l.why
	}
	if now := l.Now(); l.parentAt == 0 && now-l.stdinAt <= crash && l.ParentDies() {
		l.parentAt = now // the command has exited before that death can be seen
	}
	if l.parentAt != 0 && l.parentAt-l.stdinAt <= crash {
		return ParentDied
	}
	return StdinClosed
}

// Run takes in events until the life is over, and returns how fini must end.
func (l *Loop) Run() Result {
	for !l.over() {
		l.turn()
	}
	return l.result
}

func (l *Loop) over() bool { return l.machine == nil && len(l.todo) == 0 }

// turn does one thing: an action, a look at the children, a decision, or a wait. The loop reaps before it decides anything,
// so that it never stops what has ended, even if a time has passed since.
func (l *Loop) turn() {
	switch {
	case len(l.todo) > 0:
		a := l.todo[0]
		l.todo = l.todo[1:]
		a.do(l)
	case l.mustReap:
		l.reapAll()
	case len(l.queue) > 0:
		e := l.queue[0]
		l.queue = l.queue[1:]
		now := l.tick()
		l.todo, l.machine = l.machine.step(now, e)
		l.bound(now)
	default:
		l.wait()
	}
}

// wait sleeps until something has happened. fini spends its life here.
func (l *Loop) wait() {
	woken := l.Wait(l.next(), l.byPidfd)
	now := l.tick()
	for _, got := range woken.Signals {
		l.Take(got)
	}
	for _, why := range woken.Stop {
		l.Stop(why)
	}
	if woken.Main {
		l.byPidfd, l.mainGone = false, true
	}
	if due(&l.timeout, now) {
		l.Stop(TimedOut)
	}
	if due(&l.wake, now) {
		l.queue = append(l.queue, elapsed{l.Unread()})
	}
	l.mustReap = true // whatever has woken fini
}

// tick looks at the clock, and gives back the time by which a slice was too long.
func (l *Loop) tick() (now time.Duration) {
	now = l.Now()
	if by := now - l.seen - max(l.slice, shortSlice); by > 0 && l.machine.stops() && l.givenBack < max(l.rules.Grace, l.rules.KillAfter, l.rules.OrphansGrace, l.rules.StopWithin) {
		l.givenBack += by
		if l.wake != 0 {
			l.wake += by
		}
		if l.stopBy != 0 {
			l.stopBy += by
		}
		l.machine.step(now, late{by}) // which decides nothing
	}
	l.seen = now
	return now
}

// The end of --stop-within is kept for what comes after the command: a tenth of it, but at most longestReserve. A sixth of
// that is the unit of what Machine.bounded keeps: two for leftovers to exit by themselves, two for them to exit after
// SIGTERM, and two to reap them and to write the report.
const (
	longestReserve = time.Second
	partsOfReserve = 6
)

func (p Policy) reserve() time.Duration { return min(p.StopWithin/10, longestReserve) }

// bound begins --stop-within at the first wait of a stop, and cuts this wait and each later one.
func (l *Loop) bound(now time.Duration) {
	if l.rules.StopWithin == 0 || l.machine == nil {
		return
	}
	end, keeps, waits := l.machine.bounded()
	if end == nil {
		return
	}
	if l.stopBy == 0 {
		l.stopBy = now + l.rules.StopWithin
	}
	last := l.stopBy - keeps*l.rules.reserve()/partsOfReserve
	if last = now + max(last-now, 0)/waits; *end > last {
		*end, l.cut = last, true
	}
	if *end != 0 && l.wake > *end {
		l.wake = *end
	}
}

// due reports whether a time has come, and forgets it then.
func due(at *time.Duration, now time.Duration) bool {
	if *at == 0 || *at > now {
		return false
	}
	*at = 0
	return true
}

// next is the time that comes first, 0 for none.
func (l *Loop) next() (first time.Duration) {
	var sliceEnd time.Duration
	if l.wake != 0 && l.machine != nil && l.machine.stops() {
		sliceEnd = l.seen + max(l.slice, shortSlice)
	}
	for _, at := range []time.Duration{l.timeout, l.wake, sliceEnd} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// reapAll reaps the children that have exited, at once, because a zombie counts against the limits that the command's
// forks are subject to.
func (l *Loop) reapAll() {
	l.mustReap = false
	if e := l.collect(); l.mainGone && len(e.main) == 0 && !e.none {
		// The main child's tracer has not waited for it, and the kernel doesn't report it to anybody else. See
		// ptrace(2).
		l.mainEnded()
		l.exited(reaped{hidden: true})
	}
	l.mainGone = false
}

// collect reaps, closes the Records of the processes that have ended, and queues for the machine what it has to know. A pid
// may be reused before everything is reaped, so the first exit with the main child's pid is the main child's.
func (l *Loop) collect() (e reaped) {
	exits, none := l.Reap()
	e.none = none
	ofMain := func(x reaper.Exit) bool { return x.Pid == l.main.Pid && !l.main.reaped }
	_, sweeping := l.machine.(*sweep)
	leftovers := sweeping || l.main.Ended || slices.ContainsFunc(exits, func(x reaper.Exit) bool { return ofMain(x) && x.Ended() })
	for _, x := range exits {
		isMain := ofMain(x)
		if isMain {
			e.main = append(e.main, x.Status)
		}
		if !x.Ended() {
			continue
		}
		l.killedAtOnce(x, l.Now())
		l.Exited(x, (isMain || leftovers) && l.killedByOthers(x))
		switch {
		case isMain:
			l.main.reaped = true
			l.mainEnded()
		case l.rules.WarnReaped:
			l.Say(Normal, fmt.Sprintf("reaped zombie %d (%s), which %s", x.Pid, x.Name, howEnded(x.Status)), NoReason)
		}
		delete(l.leftovers, x.Pid) // another process may get this pid, even within the same tick
	}
	if len(exits) > 0 || none {
		l.exited(e)
	}
	return e
}

// exited queues exits before all that is still to be decided.
func (l *Loop) exited(e reaped) {
	at := slices.IndexFunc(l.queue, func(e event) bool { _, is := e.(reaped); return !is })
	if at < 0 {
		at = len(l.queue)
	}
	l.queue = slices.Insert(l.queue, at, event(e))
}

func (l *Loop) mainEnded() {
	if !l.main.Ended {
		l.byPidfd, l.main.Ended, l.mainAt = false, true, l.Now()
		l.MainEnded()
	}
}

func (a send) do(l *Loop) {
	of := l.leftover(a.process)
	of.note(a.sig, l.Now(), false)
	if may := l.Send(a.process, a.sig); a.sig != syscall.SIGCONT { // which is allowed within a session
		of.refused = !may
	}
}

func (look) do(l *Loop) {
	if l.collect().none {
		return
	}
	began := l.Now()
	view, err := l.Look()
	// Send knows only the processes of the last look, so an earlier answer that still waits is useless.
	l.queue = slices.DeleteFunc(l.queue, func(e event) bool { _, is := e.(looked); return is })
	l.queue = append(l.queue, looked{View: view, took: l.Now() - began, err: err})
}

func (a survey) do(l *Loop) { l.Survey(a.why, a.named) }

func (a kill) do(l *Loop) {
	hit, refused, err := l.Kill(a.childrenOnly)
	fresh := l.killed(l.Now(), hit)
	l.all = l.all || !l.rules.Allow
	l.collect()
	l.queue = append(l.queue, swept{hit: hit, refused: refused, fresh: fresh, err: err})
}

func (a wake) do(l *Loop) {
	now := l.Now()
	l.wake = now + a.after
	l.bound(now)
	l.slice = (l.wake - now) / slicesOfWait
}

func (a hurry) do(l *Loop) {
	if at := l.Now() + a.after; l.wake == 0 || l.wake > at {
		l.wake = at
	}
}

func (a say) do(l *Loop) {
	l.why = cmp.Or(l.why, a.why)
	l.Say(a.level, a.text, a.why)
}

func (a tell) do(l *Loop) {
	of := l.of(a.process)
	if a.spared == "" {
		of = l.leftover(a.process)
	}
	l.Tell(a.process, a.what, a.spared, a.quietly, of)
}

func (a ignore) do(l *Loop) { l.Dropped(a.Signal) }

func (noMain) do(l *Loop) { l.mainEnded() }

func (a exit) do(l *Loop) {
	if l.rules.Before {
		l.rules.Before = false
		l.IncludeEarlier()
		l.queue, l.wake = nil, 0 // which were for the machine before, and about a tree without those children
		l.machine, l.todo = newParting(l.rules, l.records, a.End), append(l.todo, look{})
		return
	}
	l.result, a.Why = a.Result, l.reason()
	l.Exit(a.End)
}
