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

// A Kernel answers a Loop's questions and carries out its actions. It is the real kernel, or a model in tests.
type Kernel interface {
	Now() time.Duration // time since boot

	// Wait blocks until something happens or the given time is reached, unless that is 0. If main is true, it also
	// watches the main child's pidfd, and may wait a moment longer to report several exits at once.
	Wait(until time.Duration, main bool) Woken
	// Reap collects the children that have exited, stopped or continued. It also reports whether no other child is left.
	Reap() (exits []reaper.Exit, none bool)
	// RecordExit records a child that was reaped. If killed is true, somebody other than fini killed it with SIGKILL.
	RecordExit(x reaper.Exit, killed bool)
	RecordMainEnd() // records that the main child has exited

	RecordSignal(got Signal) // records a signal that fini has received
	WarnIgnored(got Signal)  // warns about a signal that fini ignores
	// counts what was read and written by processes with standard input
	Traffic() (orphans.Traffic, error)
	Unread() int // counts unread bytes of standard input, if Wait watches it
	// lists the children of fini, zombies included, but none from before fini
	Children() ([]int, error)
	// finds the processes of the tree, and remembers who started them
	Look() orphans.View
	IncludeInherited()                                      // makes Reap and Look include the children from before fini
	Survey(named bool)                                      // records what the tree is doing, within 100 ms
	SignalCommand(main int, sig syscall.Signal, group bool) // sends sig to the main child or its group
	// sends sig to a leftover that the last Look has found
	SignalLeftover(to orphans.Process, sig syscall.Signal) (may bool)
	Kill(own bool) (hit, refused []int) // sends SIGKILL to the tree, or only to children of fini

	Say(level Level, text string, why Reason) // writes a message, with the reason if there is one
	// Tell writes a message about a leftover, or about an orphan if top is not 0. of is nil if fini has sent it nothing.
	Tell(p orphans.Process, what, spared string, quietly bool, top int, of *Record)
	Exit(end End) // ends the life
}

// Woken is what happened during a Wait.
type Woken struct {
	Signals []Signal
	Main    bool     // the main child's pidfd shows its exit
	Stop    []Reason // processes or streams that the command is bound to have ended
}

// An End is the outcome of a life.
type End struct {
	Result
	Leaks
	Why Reason // why fini stopped the command or its leftovers, or NoReason
}

// Leaks are the leftovers that count for --orphans-exit.
type Leaks struct {
	Count   int
	Left    bool // fini has only counted them
	Decided bool // the command succeeded, but fini fails because of the leftovers
}

// A Loop connects the machines to a Kernel. Only its goroutine reaps children and sends signals.
type Loop struct {
	Kernel
	rules   Rules
	machine Machine // nil if the life is over
	queue   []event // events that the machine has not seen yet
	todo    []action
	result  Result

	*records
	watched   bool          // Wait watches the main child's pidfd until it has ended
	mainGone  bool          // the last Wait has seen the main child's exit
	hasWarned bool          // WarnIgnored has been called: see Accept
	mustReap  bool          // there may be children to reap
	timeout   time.Duration // uptime when --timeout is over; 0 for never, as in the next fields
	wake      time.Duration // when to send elapsed to the machine
	listAt    time.Duration // when to send listed to the machine
	listAfter time.Duration // how long before that the machine has asked for it
	why       Reason        // the first reason why fini has stopped anything
	seen      time.Duration // uptime when the loop last looked at the clock
	slice     time.Duration // longest sleep during the wait for wake, if more than shortSlice
}

// If a container is paused while fini waits for the command to exit, fini must not kill the command as soon as the
// container continues. So fini sleeps in slices. When a slice takes too long, fini moves its deadlines by the excess.
// In a long wait, a slice is a 64th of the wait, so fini rarely wakes up. The sum of all excess times is limited,
// although a single one may be longer, because somebody could otherwise prevent SIGKILL forever by suspending fini
// again and again.
const (
	shortSlice   = 250 * time.Millisecond
	slicesOfWait = 64
)

// New returns a loop for a main child that has just been started. main is its pid, or 0 with --pause. watched says that
// Wait can watch for the main child's exit.
func New(k Kernel, rules Rules, main int, watched bool) *Loop {
	l := newLoop(k, rules, main)
	// Reap before the first Wait, because a child may have exited before fini caught SIGCHLD.
	l.watched, l.mustReap = watched, true
	if l.machine = newLadder(rules, l.records); main == 0 {
		l.machine = paused{rules, l.records}
	}
	if rules.Idle > 0 && main != 0 {
		l.wake = k.Now() + rules.lookIdle()
	}
	if rules.OrphanTimeout > 0 {
		list{rules.lookForOrphans()}.do(l)
	}
	if rules.Timeout > 0 {
		l.timeout = k.Now() + rules.Timeout
	}
	return l
}

func newLoop(k Kernel, rules Rules, main int) *Loop {
	return &Loop{Kernel: k, rules: rules, records: &records{main: Record{Pid: main}, leftovers: map[int]*Record{},
		orphans: map[int]orphan{}}, seen: k.Now()}
}

// NewHeir returns the loop of an heir, which takes over after the inner fini was killed. It stops the command, whose
// pid is main, and all leftovers except those that --allow-orphan names, and then ends with result. The kernel has sent
// a parent death signal, but not every process receives it, so the heir also sends SIGTERM to each of them.
//
// asked is the uptime at which the outer fini relayed the first SIGTERM, or 0. If that signal started --stop-within,
// the heir keeps the same deadline.
func NewHeir(k Kernel, rules Rules, main int, result Result, asked time.Duration) *Loop {
	l := newLoop(k, rules, main)
	if asked != 0 && rules.StopWithin > 0 &&
		rules.requestOf(Signal{Received: signals.Received{Signal: syscall.SIGTERM}})&startsStopWithin != 0 {
		l.stopBy = max(asked+rules.StopWithin, k.Now()+rules.reserve())
	}
	s := newSweep(rules, l.records)
	s.Orphans, s.result = StopAll, result
	s.OrphansGrace = s.Grace // because the heir stops the command too
	if l.machine = s; !l.collect().none {
		l.todo, l.machine = s.proceed(say{level: Normal, text: "stopping the command: the inner fini was killed"})
	}
	return l
}

// Stop tells the machine about a reason to stop the command.
func (l *Loop) Stop(why Reason) {
	if why == StdinClosed && !l.main.Ended { // the command may exit because of that before a machine can decide
		l.why = cmp.Or(l.why, why)
	}
	l.queue = append(l.queue, stop{why: why, unread: l.Unread()})
}

// Run handles events until the life is over, and returns how fini must end.
func (l *Loop) Run() Result {
	for !l.over() {
		l.turn()
	}
	return l.result
}

func (l *Loop) over() bool { return l.machine == nil && len(l.todo) == 0 }

// turn carries out an action, reaps children, lets the machine decide about an event, or waits. Reaping comes before
// deciding, so that fini never stops a process that has already exited.
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

// wait blocks until something happens. fini spends nearly all of its life here.
func (l *Loop) wait() {
	woken := l.Wait(l.next(), l.watched && !l.main.Ended)
	now := l.tick()
	for _, got := range woken.Signals {
		l.Accept(got)
	}
	for _, why := range woken.Stop {
		l.Stop(why)
	}
	if woken.Main {
		l.mainGone = true
	}
	if due(&l.timeout, now) {
		l.Stop(TimedOut)
	}
	if due(&l.wake, now) {
		l.queue = append(l.queue, elapsed{l.Unread()})
	}
	if due(&l.listAt, now) {
		pids, err := l.Children()
		l.queue = append(l.queue, listed{pids: pids, after: l.listAfter, err: err})
	}
	l.mustReap = true // whatever the reason for waking up
}

// tick returns the current time. If the last slice took too long, tick first moves all deadlines by the excess.
func (l *Loop) tick() (now time.Duration) {
	now = l.Now()
	if by := now - l.seen - max(l.slice, shortSlice); by > 0 && l.machine.stops() &&
		l.givenBack < max(l.rules.Grace, l.rules.KillAfter, l.rules.OrphansGrace, l.rules.StopWithin) {
		l.givenBack += by
		if l.wake != 0 {
			l.wake += by
		}
		if l.stopBy != 0 {
			l.stopBy += by
		}
		l.machine.step(now, late{by}) // never returns any action
	}
	l.seen = now
	return now
}

// A tenth of the time that --stop-within allows, but at most longestReserve, is reserved for what follows the command's
// exit. Of its six parts, two are for leftovers that exit unasked, two for leftovers that exit after SIGTERM, and two
// for reaping and the report. Machine.waitEnd says how many of these parts must remain.
const (
	longestReserve = time.Second
	partsOfReserve = 6
)

func (p Policy) reserve() time.Duration { return min(p.StopWithin/10, longestReserve) }

// bound starts the time of --stop-within when the first stop begins. It shortens each wait so that all fit into this
// time.
func (l *Loop) bound(now time.Duration) {
	if l.rules.StopWithin == 0 || l.machine == nil {
		return
	}
	end, keeps, waits := l.machine.waitEnd()
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

// due reports whether a time has come. If so, it also resets the time.
func due(at *time.Duration, now time.Duration) bool {
	if *at == 0 || *at > now {
		return false
	}
	*at = 0
	return true
}

// next returns the time until which Wait may block, or 0 if there is no limit.
func (l *Loop) next() (first time.Duration) {
	var sliceEnd time.Duration
	if l.wake != 0 && l.machine != nil && l.machine.stops() {
		sliceEnd = l.seen + max(l.slice, shortSlice)
	}
	for _, at := range []time.Duration{l.timeout, l.wake, l.listAt, sliceEnd} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// reapAll reaps all children that have exited. It does so immediately, because zombies count toward the command's
// limits.
func (l *Loop) reapAll() {
	l.mustReap = false
	if e := l.collect(); l.mainGone && len(e.main) == 0 && !e.none {
		// The main child's tracer has not waited for it yet, so the kernel hides its exit. See ptrace(2).
		l.mainEnded()
		l.exited(reaped{hidden: true})
	}
	l.mainGone = false
}

// collect reaps children, removes the Records of those that have exited, and queues what the machine has to know. A pid
// may be reused during that, so only the first exit with the main child's pid is taken for the main child's.
func (l *Loop) collect() (e reaped) {
	exits, none := l.Reap()
	e.none = none
	ofMain := func(x reaper.Exit) bool { return x.Pid == l.main.Pid && !l.main.reaped }
	_, sweeping := l.machine.(*sweep)
	leftovers := sweeping || l.main.Ended ||
		slices.ContainsFunc(exits, func(x reaper.Exit) bool { return ofMain(x) && x.Ended() })
	for _, x := range exits {
		isMain := ofMain(x)
		if isMain {
			e.main = append(e.main, x.Status)
		}
		if !x.Ended() {
			continue
		}
		l.killedAtOnce(x, l.Now())
		l.RecordExit(x, (isMain || leftovers) && l.killedByOthers(x))
		switch {
		case isMain:
			l.main.reaped = true
			l.mainEnded()
		case l.rules.WarnReaped:
			l.Say(Normal, fmt.Sprintf("reaped zombie %d (%s), which %s", x.Pid, x.Name, howEnded(x.Status)), NoReason)
		}
		delete(l.leftovers, x.Pid) // the pid may be reused at any time
		delete(l.orphans, x.Pid)
	}
	if len(exits) > 0 || none {
		l.exited(e)
	}
	return e
}

// exited puts exits in front of all other events in the queue.
func (l *Loop) exited(e reaped) {
	at := slices.IndexFunc(l.queue, func(e event) bool { _, is := e.(reaped); return !is })
	if at < 0 {
		at = len(l.queue)
	}
	l.queue = slices.Insert(l.queue, at, event(e))
}

func (l *Loop) mainEnded() {
	if !l.main.Ended {
		l.main.Ended = true
		l.RecordMainEnd()
	}
}

func (a signalLeftover) do(l *Loop) {
	of := l.leftover(a.process)
	of.note(a.sig, l.Now(), false)
	may := l.SignalLeftover(a.process, a.sig)
	if a.sig != syscall.SIGCONT { // within a session, fini may always send SIGCONT
		of.refused = !may
	}
}

func (look) do(l *Loop) {
	if l.collect().none {
		return
	}
	began := l.Now()
	view := l.Look()
	// SignalLeftover only knows the processes of the last look, so the results of earlier looks are useless now.
	l.queue = slices.DeleteFunc(l.queue, func(e event) bool { _, is := e.(looked); return is })
	l.queue = append(l.queue, looked{View: view, took: l.Now() - began})
}

func (a survey) do(l *Loop) { l.Survey(a.named) }

func (a kill) do(l *Loop) {
	hit, refused := l.Kill(a.own)
	fresh := l.noteKills(l.Now(), hit)
	l.all = l.all || !l.rules.Allow
	l.collect()
	l.queue = append(l.queue, swept{hit: hit, refused: refused, fresh: fresh})
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
	l.Tell(a.process, a.what, a.spared, a.quietly, a.top, of)
}

func (a ignore) do(l *Loop) { l.WarnIgnored(a.Signal) }

func (noMain) do(l *Loop) { l.mainEnded() }

func (a exit) do(l *Loop) {
	if l.rules.HasInherited {
		l.rules.HasInherited = false
		l.IncludeInherited()
		l.queue, l.wake = nil, 0 // these were for the previous machine
		l.machine, l.todo = newParting(l.rules, l.records, a.End), append(l.todo, look{})
		return
	}
	l.result, a.Why = a.Result, l.why
	l.Exit(a.End)
}
