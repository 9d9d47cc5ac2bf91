package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// A stage is a state of the sweep.
//
//	stage      event    where it leads
//	lingering  elapsed  asking, or what takes its place: clearing or counting
//	           looked   counting, if none was asked with the command, and counting could have begun at once
//	           stop     the same, unless it is the end of stdin: asking, clearing or counting
//	           signal   the same, if it ends that (see asks): asking, clearing or counting
//	waiting    stop     asking
//	           signal   asking, if it ends that
//	clearing   looked   asking or counting, if none of the group is left, or a bound has passed
//	asking     elapsed  killing, after --orphans-grace, or the --grace of those that were asked with the command
//	           signal   killing, at a second SIGINT
//	           stop     asking, once more, if it overrules --orphans=pipes
//	killing    stop     asking, the same
//	           swept    over, if nothing more can be done
//	counting   stop     asking, if it overrules --orphans=leave
//	any stage  reaped   over, if no child is left
//	           looked   over, if nobody is left whom fini stops, or only such that refused SIGKILL in clearing, if fini only
//	                    counts, or if the look has failed
//
// If the command had to be killed, clearing comes before asking, under every policy, because its group was asked a
// whole --grace or --kill-after before that, and has had --linger to clean up. Only --allow-orphan spares a process of
// the group.
//
// Under --orphans=leave, counting takes the place of asking, after --linger, a reason or a signal. Without
// --orphans-exit the count decides nothing, so counting begins at once. Only what was asked to exit with the command has
// --linger for that, so that fini does not name what is about to end.
//
// A leftover that had SIGINT with the command gets SIGTERM only after half of --grace: many servers take a SIGTERM after
// that for "at once". If SIGTERM comes late, its half of --grace is whole. If --stop-within has cut a wait, SIGTERM comes
// at the next look.
//
// A reason that overrules --orphans=pipes begins asking once more, even in asking or in killing: leftovers that hold
// neither stream have not been asked yet. If fini can't tell which processes hold a stream, pipes acts as stop.
//
// The deadline of asking doesn't move with each leftover that is asked, because a process may start another one whenever
// it is asked.
//
// In each stage the sweep is over when no child is left, except the children that --allow-orphan leaves alone. Under
// --orphans=pipes the sweep is also over when two looks in a row don't find a leftover that holds standard output or
// standard error. The second look must be still: see orphans.View. While lingering, the end of stdin is no reason to
// stop: it may be why the command has exited.
type stage int

const (
	lingering stage = iota // leftovers may finish by themselves, for --linger
	waiting                // leftovers may take for ever
	clearing               // the rest of the command's group, asked when the command was, has SIGKILL, again and again
	asking                 // each leftover is sent SIGTERM once
	killing                // SIGKILL, again and again
	counting               // fini lists leftovers and leaves them, under --orphans=leave
)

const (
	// The time between two looks at the tree. It starts short after each death, since a death may bring new leftovers
	// to light, and doubles.
	shortPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond

	// A look at thousands of leftovers costs a long wait no more than a hundredth of a processor: from longPause on the
	// pause doubles up to this many times what the last look took, and up to costlyPause on a machine that is busy.
	timesLook   = 128
	costlyPause = 10 * time.Second

	// In the stage waiting the pause doubles up to this. From then on fini looks only when a child has exited.
	longestPause = time.Minute

	// At first fini kills only children, without a walk of the tree: a process that forks and exits in a loop outruns any
	// walk. This phase lasts at most this long, while each round hits new processes.
	burstFor = 100 * time.Millisecond

	// MaxNamed is how many leftovers fini names, each in a line. fini only counts the others.
	MaxNamed = 20

	// The unit of orphans.Process.Start, which is rounded down to it.
	tick = 10 * time.Millisecond

	// A process whose start is unknown is spared as clean-up for at most this long, or half of --grace.
	startUnknown = 5 * time.Second
)

// notAsked is askedAt until fini asks the leftovers to exit.
const notAsked time.Duration = -1

// sweep stops a command's leftovers.
type sweep struct {
	whom

	result        Result // of the command
	resultUnknown bool   // the main child is not reaped yet: a tracer holds it, or it has outlived SIGKILL

	clears       bool // the command's group has to be killed: see clearing
	stage        stage
	answered     bool          // the first look of asking or of clearing was, and the deadline counts from that
	deadline     time.Duration // when the stage ends, as uptime
	pause        time.Duration // until the next look
	askedAt      time.Duration // when fini first asked the leftovers to exit, as uptime; notAsked before
	graceEnd     time.Duration // when --orphans-grace ends, as uptime
	hasAsked     bool          // SIGTERM was sent in the stage asking, and --orphans-grace counts from the first one
	sawInterrupt bool          // SIGINT has come since the sweep began
	urgent       bool          // a signal that ends waiting has
	owed         bool          // at the last look a leftover that had SIGINT with the command was still to get SIGTERM

	burstEnd  time.Duration // until then fini kills only children
	quietLook bool          // the last look found only processes that the policy or --allow-orphan spares
	lookedAt  time.Duration // the uptime of the last look
	lookTook  time.Duration // how long it took
	staying   []action      // a tell for each process that the last look found and that fini leaves alone
}

func newSweep(r Rules, known *records) *sweep {
	return &sweep{whom: whom{r, known}, askedAt: notAsked}
}

func (s *sweep) step(now time.Duration, e event) ([]action, Machine) {
	switch e := e.(type) {
	case Signal:
		return s.received(now, e)
	case stop:
		return s.stop(now, e.why)
	case reaped:
		return s.reaped(now, e)
	case elapsed:
		return s.elapsed(now)
	case looked:
		return s.looked(now, e)
	case swept:
		return s.swept(now, e)
	case late:
		s.deadline += e.by
		s.graceEnd += e.by
	}
	return nil, s
}

func (s *sweep) stops() bool { return s.stage != waiting }

// bounded leaves killing as it is: what does not exit by then is in uninterruptible sleep, or not to be signalled.
func (s *sweep) bounded() (end *time.Duration, keeps, waits time.Duration) {
	switch s.stage {
	case lingering:
		return &s.deadline, 4, 1
	case clearing:
		return &s.deadline, 3, 1
	case asking:
		return &s.deadline, 2, 1
	}
	return nil, 0, 0
}

// begin begins to deal with leftovers. Under --orphans=wait fini waits for them unless it has a reason to stop them.
func (s *sweep) begin(now time.Duration, mayWait bool, do ...action) ([]action, Machine) {
	switch {
	case s.Orphans == WaitAll && mayWait:
		return s.enter(waiting, 0, do...)
	case s.Linger == 0,
		s.onlyNames() && !s.askedGroup():
		return s.ask(do...)
	}
	return s.enter(lingering, now+s.Linger, do...)
}

// ask begins with a look. The grace begins with the answer: no process is killed unasked, however late the answer
// comes. Under --orphans=leave fini doesn't ask any process. A method that takes actions as its parameter returns them
// before its own.
func (s *sweep) ask(do ...action) ([]action, Machine) {
	switch {
	case s.clears:
		return s.enter(clearing, 0, do...)
	case s.Orphans == LeaveAll:
		return s.enter(counting, 0, do...)
	}
	return s.enter(asking, 0, do...)
}

// enter begins a stage, with a look that also records which process started which.
func (s *sweep) enter(stage stage, deadline time.Duration, do ...action) ([]action, Machine) {
	s.stage, s.answered, s.hasAsked, s.deadline, s.pause = stage, false, false, deadline, shortPause
	return append(do, look{}), s
}

func (s *sweep) received(now time.Duration, got Signal) ([]action, Machine) {
	sig := s.rewritten(got.Signal)
	switch asks := s.asks(got); {
	case asks == ignoredFromInside:
		return s.ignore(got), s
	case asks&endsWaiting == 0, s.stage == lingering && s.Job != 0 && got.byKey(): // the rest of the job has had the key too
		return nil, s
	}
	again := sig == syscall.SIGINT && s.sawInterrupt
	s.sawInterrupt, s.urgent = s.sawInterrupt || sig == syscall.SIGINT, true
	switch {
	case again && s.stage == asking && s.answered:
		return s.enter(killing, now+killedBound, say{level: Normal, text: "killing the leftovers: a second SIGINT"})
	case s.stage == lingering || s.stage == waiting:
		return s.ask()
	case s.stage == asking && s.owed:
		return []action{look{}}, s
	}
	return nil, s
}

func (s *sweep) stop(now time.Duration, why Reason) ([]action, Machine) {
	spared := false // the policy has spared some leftovers
	if why.overrules() {
		spared, s.Orphans = s.Orphans == StopPipes || s.Orphans == LeaveAll, StopAll
	}
	switch {
	case !spared && s.stage != waiting && (s.stage != lingering || why == StdinClosed):
		return nil, s
	case s.Orphans == LeaveAll:
		return s.ask()
	}
	return s.ask(say{level: Normal, text: "stopping the leftovers", why: why})
}

func (s *sweep) reaped(now time.Duration, e reaped) ([]action, Machine) {
	if status := e.exit(); status != nil && s.resultUnknown {
		s.result, s.resultUnknown = ResultOf(*status), false
	}
	switch {
	case e.none:
		s.staying = nil
		return s.finish()
	case s.stage == waiting && s.looks():
		// Leftovers may exit in quick succession, and nothing is urgent: one look in longPause is enough.
		return []action{hurry{max(shortPause, s.lookedAt+longPause-now)}}, s
	case s.looks():
		// A tree that never stops dying must not put the next look off for ever.
		s.pause = shortPause
		return []action{hurry{shortPause}}, s
	}
	return nil, s
}

// looks reports whether fini looks at the tree in this stage, mostly again and again. In the stage waiting fini looks
// only with --allow-orphan, for a while and ever more rarely, because a process may take an allowed name late.
func (s *sweep) looks() bool {
	return s.stage == clearing || s.stage == asking || s.stage == killing || s.stage == counting ||
		s.stage == lingering && (s.Orphans == StopPipes || s.onlyNames()) || s.Allow
}

// onlyNames reports whether fini only names leftovers for lines and the report, which say what is alive now.
func (s *sweep) onlyNames() bool { return s.Orphans == LeaveAll && s.OrphansExit < 0 && !s.clears }

func (s *sweep) elapsed(now time.Duration) ([]action, Machine) {
	switch {
	case s.stage == lingering && now >= s.deadline:
		return s.ask()
	case s.stage == asking && s.answered && now >= s.deadline && !s.owed:
		return s.enter(killing, now+killedBound) // the look names the processes that did not exit
	case s.stage == killing && s.Orphans == StopAll:
		return s.kill(now)
	case s.looks():
		return []action{look{}}, s
	}
	return nil, s
}

func (s *sweep) looked(now time.Duration, e looked) ([]action, Machine) {
	if e.err != nil {
		return s.finish(cannotFind(e.err))
	}
	s.lookedAt, s.lookTook = now, e.took
	if s.Orphans == StopPipes && !e.Still {
		s.lookTook = 0 // a holder that the look has missed keeps a reader waiting
	}
	var do []action
	if e.Nameless && s.Orphans == StopPipes {
		// No look can show that no process holds a stream any more, but wait4(2) shows when no process is left.
		s.Orphans = StopAll
		if len(e.Found) > 0 {
			do = append(do, say{level: Normal, text: "stopping every leftover: without /proc fini can't tell which processes hold the output"})
		}
	}
	if e.Nameless && s.Allow {
		s.Allow = false
		if len(e.Found) > 0 {
			do = append(do, say{level: Normal, text: "--allow-orphan leaves no process alone: without /proc fini can't tell the names of processes"})
		}
	}
	found := slices.DeleteFunc(slices.Clone(e.Found), func(p orphans.Process) bool {
		return s.spares(p) != ""
	})
	s.staying = s.stay(e.Found)
	if s.stage == asking || s.stage == counting {
		do = append(do, s.unread(found)...)
	}
	mayEnd := len(found) == 0 && (len(s.staying) > 0 || s.Orphans == StopPipes)
	switch {
	case mayEnd && !s.quietLook:
		// A process that has forked during the look may have slipped through it.
		s.quietLook = true
		return append(do, look{}), s
	case mayEnd && e.Still:
		return s.finish(do...)
	case mayEnd && s.stage == killing && now >= s.deadline:
		return s.finish(append(do, say{level: Always, text: "gave up on leftovers: processes come and go all the time"})...)
	}
	if s.stage == clearing {
		return s.clear(now, e, do)
	}
	s.quietLook = mayEnd
	switch s.stage {
	case asking:
		since, spared := s.cleanUp(e.Found, s.askedAt == notAsked || now < s.askedAt+min(startUnknown, s.Grace/2))
		if left := s.refusing(found); len(found) > 0 && len(left) == len(found) {
			return s.finish(append(do, s.gaveUp(now, left))...)
		}
		do = append(do, s.askEach(now, found, spared)...)
		s.setDeadline(found, since)
		return append(do, s.again(now)), s
	case killing:
		return s.killEach(now, found, do)
	case lingering:
		if s.onlyNames() && !slices.ContainsFunc(found, func(p orphans.Process) bool { _, asked := s.askedWithGroup(p); return asked }) {
			return s.ask(do...)
		}
		if !s.looks() {
			return append(do, wake{max(s.deadline-now, 0)}), s
		}
		return append(do, s.again(now)), s
	case waiting:
		if s.looks() && s.pause < longestPause {
			do = append(do, wake{s.pause})
			s.pause *= 2
		}
		return do, s
	case counting:
		s.count = len(found)
		return s.finish(do...)
	}
	return nil, s
}

// inGroup reports whether a leftover is in the command's process group. The main child is no leftover.
func (s *sweep) inGroup(p orphans.Process) bool {
	return p.Group == s.commandGroup(s.main.Pid) && p.Pid != s.main.Pid
}

// clear sends SIGKILL to the rest of the command's group, after each look, until two looks in a row show none: a process
// that has forked during a look may have slipped through it.
func (s *sweep) clear(now time.Duration, e looked, do []action) ([]action, Machine) {
	if !s.answered {
		s.answered, s.deadline = true, now+killedBound
	}
	group := slices.DeleteFunc(slices.Clone(e.Found), func(p orphans.Process) bool { return p.Allowed || !s.inGroup(p) })
	none, refusing, bound := len(group) == 0, s.refusing(e.Found), s.deadline
	if !slices.ContainsFunc(group, func(p orphans.Process) bool { return !slices.Contains(refusing, p.Pid) }) {
		bound -= killedBound - refusedBound
	}
	for _, p := range group {
		if slices.Contains(refusing, p.Pid) {
			continue
		}
		if s.of(p) == nil {
			s.count++
		}
		do = append(do, s.strike(p, 0)...)
	}
	switch wasQuiet := s.quietLook; {
	case none && wasQuiet, now >= bound:
		s.clears, s.quietLook = false, false
		return s.ask(do...)
	case none && !wasQuiet:
		s.quietLook = true
		return append(do, look{}), s
	}
	s.quietLook = none
	return append(do, s.again(now)), s
}

// spares is whom's, but clearing spares only what --allow-orphan names.
func (s *sweep) spares(p orphans.Process) string {
	if s.clears && s.inGroup(p) && !p.Allowed {
		return ""
	}
	return s.whom.spares(p)
}

// stay gives the reason for each process that fini leaves alone. A process that has closed the streams because fini asked
// it to exit was not left alone.
func (s *sweep) stay(found []orphans.Process) (do []action) {
	told := map[string]int{}
	for _, p := range found {
		why := s.spares(p)
		if why == "" && s.stage == counting {
			why = LeaveAll
		}
		_, asked := s.of(p).had(syscall.SIGTERM)
		if why != "" && !(asked && why == StopPipes) {
			do = append(do, tell{process: p, what: "leaving", spared: why, quietly: told[why] >= MaxNamed})
			told[why]++
		}
	}
	return do
}

// setDeadline sets when the leftovers have had their time. Whatever was asked with the command keeps --grace from then.
func (s *sweep) setDeadline(found []orphans.Process, since map[int]Sent) {
	s.deadline = s.graceEnd
	for _, p := range found {
		if first := since[p.Pid]; first.Group {
			s.deadline = max(s.deadline, s.keeps(first))
		}
	}
}

// askEach asks each process that is not spared, and has not been asked: first the processes outside of the main child's
// group that keep a reader waiting.
func (s *sweep) askEach(now time.Duration, found []orphans.Process, spared map[int]bool) (do []action) {
	asks := false
	s.owed = false
	for _, p := range s.holdersFirst(found) {
		if spared[p.Pid] {
			continue
		}
		more, how := s.question(now, p, s.urgent || s.cut, 0)
		do = append(do, more...)
		switch how {
		case askedNow:
			asks = true
		case askedAgain:
			s.graceEnd = max(s.graceEnd, now+min(s.Grace/2, s.OrphansGrace))
		case askedLater:
			s.owed = true
		}
	}
	if s.askedAt == notAsked {
		s.askedAt = now
	}
	if !s.answered || asks && !s.hasAsked {
		s.graceEnd = now + s.OrphansGrace
	}
	s.answered, s.hasAsked = true, s.hasAsked || asks
	return do
}

// killEach names the leftovers that are about to be killed. Under --orphans=pipes it kills only these, after each look;
// otherwise it calls kill for the whole tree.
func (s *sweep) killEach(now time.Duration, found []orphans.Process, do []action) ([]action, Machine) {
	if len(found) == 0 && s.Allow { // the last leftovers are exiting, unless a tracer keeps one
		if now >= s.deadline {
			return s.finish(append(do, s.gaveUp(now, s.unreaped()))...)
		}
		return append(do, s.again(now)), s
	}
	var hit []int
	fresh, refused := false, s.refusing(found)
	for i, p := range found {
		_, killed := s.of(p).had(syscall.SIGKILL)
		if !killed {
			do = append(do, tell{process: p, what: "killing", quietly: i >= MaxNamed})
		}
		if s.Orphans == StopPipes && !slices.Contains(refused, p.Pid) {
			do = append(do, send{process: p, sig: syscall.SIGKILL})
			hit, fresh = append(hit, p.Pid), fresh || !killed
		}
	}
	if s.Orphans == StopPipes {
		return s.swept(now, swept{hit: hit, refused: refused, fresh: fresh && len(refused) == 0}, do...)
	}
	return s.kill(now, do...)
}

// kill begins rounds of SIGKILL to the tree, at first only to the children of this process: see burstFor. If
// --allow-orphan may spare a child, each round needs a look.
func (s *sweep) kill(now time.Duration, do ...action) ([]action, Machine) {
	if s.Allow {
		return append(do, kill{}), s
	}
	s.burstEnd = now + burstFor
	return append(do, kill{childrenOnly: true}), s
}

func (s *sweep) swept(now time.Duration, e swept, do ...action) ([]action, Machine) {
	if e.err != nil {
		return s.finish(cannotFind(e.err))
	}
	if e.fresh {
		s.deadline, s.pause = now+killedBound, shortPause
	}
	switch {
	case s.Allow && len(e.hit)+len(e.refused) == 0:
		return append(do, look{}), s // does --allow-orphan spare every process that is left?
	case s.burstEnd != 0 && e.fresh && now < s.burstEnd:
		return append(do, kill{childrenOnly: true}), s
	case s.burstEnd != 0:
		s.burstEnd = 0
		return append(do, kill{}), s
	case e.fresh:
		// A process may have forked before SIGKILL hit it: sweep again at once.
		return append(do, wake{0}), s
	}
	bound := s.deadline
	if len(e.hit) == 0 {
		bound -= killedBound - refusedBound
	}
	if left := slices.Concat(e.hit, e.refused); now >= bound && len(left) > 0 {
		return s.finish(append(do, s.gaveUp(now, left))...)
	}
	return append(do, s.again(now)), s
}

func (s *sweep) gaveUp(now time.Duration, pids []int) action {
	text := fmt.Sprintf("gave up on leftovers that do not exit: %v", pids)
	if s.stopBy != 0 && now > s.stopBy {
		text += fmt.Sprintf(", so --stop-within=%v was not kept", s.StopWithin)
	}
	return say{level: Always, text: text}
}

// again asks for the next look, later each time, but not after the stage's end.
func (s *sweep) again(now time.Duration) action {
	after := min(s.pause, max(s.deadline-now, 0))
	s.pause = min(2*s.pause, max(longPause, min(timesLook*s.lookTook, costlyPause)))
	return wake{after}
}

// finish ends the life with the status that the rules make of the command's status.
func (s *sweep) finish(do ...action) ([]action, Machine) {
	end := End{Result: s.result, Leaks: Leaks{Count: s.count - s.unsure, Left: s.stage == counting}}
	do = append(do, s.staying...)
	did, leaks := "stopped", fmt.Sprintf("%d leftovers", end.Count)
	if end.Left {
		did = "left"
	}
	if end.Count == 1 {
		leaks = "1 leftover"
	}
	if s.count > MaxNamed {
		do = append(do, say{level: Normal, text: fmt.Sprintf("%s %d leftovers in all", did, s.count)})
	}
	if s.ignored > 1 {
		do = append(do, say{level: Normal, text: fmt.Sprintf("ignored at least %d signals from inside this PID namespace in all", s.ignored)})
	}
	if slices.Contains(s.Remap, end.Status()) {
		end.Result = Result{}
	}
	if end.Status() == 0 && end.Count > 0 && s.OrphansExit > 0 {
		end.Code, end.Decided = s.OrphansExit, true
		do = append(do, say{level: Always, text: fmt.Sprintf("exit %d instead of 0: --orphans-exit, %s", s.OrphansExit, leaks)})
	}
	return append(do, exit{end}), nil
}

// cannotFind warns that fini can't find the leftovers, and why.
func cannotFind(err error) action {
	return say{level: Always, text: fmt.Sprintf("cannot find leftovers: %v", err)}
}
