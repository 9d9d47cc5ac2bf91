package life

import (
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// A stage is a state of the sweep.
//
//	stage      event    where it leads
//	lingering  elapsed  asking, clearing or counting, see below
//	           looked   counting, if that could have been the first stage and no leftover was asked with the command
//	           stop     asking, clearing or counting, unless it is the end of stdin
//	           signal   asking, clearing or counting, if the signal ends --linger: see requestOf
//	waiting    stop     asking
//	           signal   asking, if the signal ends --orphans=wait
//	clearing   looked   asking or counting, if no process of the group is left, or after a time limit
//	asking     elapsed  killing, after --orphans-grace, or after --grace for those that were asked with the command
//	           signal   killing, at a second SIGINT
//	           stop     asking again, if the reason overrules --orphans=pipes
//	killing    stop     asking again, if the reason overrules --orphans=pipes
//	           swept    over, if nothing more can be done
//	counting   stop     asking, if the reason overrules --orphans=leave
//	any stage  reaped   over, if no child is left
//	           looked   over, if there is nobody left to stop, or only processes that refused SIGKILL in clearing, if
//	                    fini only counts
//
// If the command had to be killed, clearing precedes asking. By then, the rest of the command's group has had as much
// time to react to the stop signal as the command, and the time of --linger to clean up. Whatever the policy, only
// --allow-orphan spares a process of the group.
//
// With --orphans=leave, counting takes the place of asking. It begins when the time of --linger is over, or earlier for
// a reason or a signal. Without --orphans-exit it begins immediately, unless a leftover was asked to exit with the
// command. In that case fini waits first, so that it doesn't name a leftover that is about to exit.
//
// A leftover that received SIGINT with the command is not sent SIGTERM until half of its grace period is over, because
// many servers take SIGTERM after SIGINT to mean "immediately". After that, it has at least the other half. If
// --stop-within has shortened a wait, SIGTERM is sent at the next look.
//
// If a reason overrules --orphans=pipes, asking starts again, because leftovers that hold neither stream have not been
// asked yet. If fini can't tell which processes hold a stream, --orphans=pipes has the same effect as stop.
//
// The deadline of asking does not change when another leftover is found, because a process may start a new one each
// time.
//
// The sweep ends when there are no children other than those that --allow-orphan spares. With --orphans=pipes it also
// ends when two looks in a row find no leftover that holds standard output or standard error. The second of these must
// be still, as View in package orphans defines it. During lingering, the end of stdin is not a reason to stop anything,
// because it may be why the command has exited.
type stage int

const (
	lingering stage = iota // leftovers may finish on their own, within --linger
	waiting                // leftovers may take forever
	clearing               // fini sends SIGKILL to the rest of the command's group, repeatedly
	asking                 // fini sends SIGTERM to each leftover once
	killing                // fini sends SIGKILL to all leftovers, repeatedly
	counting               // with --orphans=leave, fini names leftovers but does not stop them
)

const (
	// The pause between two looks at the tree starts with shortPause after each death, because a death may reveal more
	// leftovers. It doubles up to longPause.
	shortPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond

	// To limit the cost of a long wait to a hundredth of a processor, the pause then doubles further, up to timesLook
	// times the duration of the last look. It never exceeds costlyPause.
	timesLook   = 128
	costlyPause = 10 * time.Second

	// In the stage waiting, the pause doubles up to this. After that, fini looks only when a child has exited.
	longestPause = time.Minute

	// At first fini kills only its children, without a walk of the tree, because no walk can catch a process that forks
	// and exits in a loop. This lasts as long as each round hits new processes, but no longer than burstFor.
	burstFor = 100 * time.Millisecond

	// MaxNamed is the maximum number of leftovers that have a message of their own. Further ones are only counted.
	MaxNamed = 20

	// tick is the unit of orphans.Process.Start, which is rounded down.
	tick = orphans.Tick

	// If it is unknown when a process started, the process may be cleaning up, so it is spared for this long at most.
	startUnknown = 5 * time.Second
)

// notAsked is the value of askedAt before leftovers have been asked to exit.
const notAsked time.Duration = -1

// sweep is the machine that stops a command's leftovers.
type sweep struct {
	whom

	result        Result // of the command
	resultUnknown bool   // the main child has not been reaped, because of a tracer or because it survives SIGKILL

	killsGroup   bool // the command's group must be killed: see clearing
	stage        stage
	answered     bool          // the first look of asking or clearing is done, and its deadline counts
	deadline     time.Duration // uptime when the stage ends
	pause        time.Duration // until the next look
	askedAt      time.Duration // uptime when leftovers were first asked to exit, or notAsked
	graceEnd     time.Duration // uptime when --orphans-grace ends
	hasAsked     bool          // SIGTERM was sent in the stage asking, so --orphans-grace counts from then
	sawInterrupt bool          // SIGINT has arrived during the sweep
	urgent       bool          // a signal that ends waiting has arrived
	owed         bool          // the last look has found a leftover that must still be sent SIGTERM, after SIGINT

	burstEnd  time.Duration // uptime until which fini only kills children
	quietLook bool          // the last look has found only spared processes
	lookedAt  time.Duration // uptime of the last look
	lookTook  time.Duration // duration of the last look
	spared    []action      // messages about the spared processes that the last look has found
}

func newSweep(r Rules, known *records) *sweep {
	return &sweep{whom: whom{r, known}, askedAt: notAsked}
}

func (s *sweep) step(now time.Duration, e event) ([]action, Machine) {
	switch e := e.(type) {
	case Signal:
		return s.onSignal(now, e)
	case stop:
		return s.onStop(now, e.why)
	case reaped:
		return s.onReaped(now, e)
	case elapsed:
		return s.onElapsed(now)
	case looked:
		return s.onLooked(now, e)
	case swept:
		return s.onSwept(now, e)
	case late:
		s.deadline += e.by
		s.graceEnd += e.by
	}
	return nil, s
}

func (s *sweep) stops() bool { return s.stage != waiting }

// waitEnd sets no limit for killing. What has not exited by then is in uninterruptible sleep or can't be signalled.
func (s *sweep) waitEnd() (end *time.Duration, keeps, waits time.Duration) {
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

// begin starts the sweep. With --orphans=wait, mayWait says whether fini may wait for leftovers rather than stop them.
func (s *sweep) begin(now time.Duration, mayWait bool, do ...action) ([]action, Machine) {
	switch {
	case s.Orphans == WaitAll && mayWait:
		return s.enter(waiting, 0, do...)
	case s.Linger == 0,
		s.onlyNames() && !s.askedGroup():
		return s.proceed(do...)
	}
	return s.enter(lingering, now+s.Linger, do...)
}

// proceed starts to stop leftovers, with a look at the tree. Their grace begins when the look is done, so that no
// process is killed without being asked first. With --orphans=leave, proceed only counts leftovers. Like other methods
// with a parameter do, it returns those actions before its own.
func (s *sweep) proceed(do ...action) ([]action, Machine) {
	switch {
	case s.killsGroup:
		return s.enter(clearing, 0, do...)
	case s.Orphans == LeaveAll:
		return s.enter(counting, 0, do...)
	}
	return s.enter(asking, 0, do...)
}

// enter starts a stage, with a look that also records which process has started which.
func (s *sweep) enter(stage stage, deadline time.Duration, do ...action) ([]action, Machine) {
	s.stage, s.answered, s.hasAsked, s.deadline, s.pause = stage, false, false, deadline, shortPause
	return append(do, look{}), s
}

func (s *sweep) onSignal(now time.Duration, got Signal) ([]action, Machine) {
	sig := s.rewritten(got.Signal)
	switch request := s.requestOf(got); {
	case request == ignoredFromInside:
		return s.ignore(got), s
	// everybody else in the job has received the signal as well
	case request&endsWaiting == 0, s.stage == lingering && s.Job != NoJob && got.byKey():
		return nil, s
	}
	again := sig == syscall.SIGINT && s.sawInterrupt
	s.sawInterrupt, s.urgent = s.sawInterrupt || sig == syscall.SIGINT, true
	switch {
	case again && s.stage == asking && s.answered:
		return s.enter(killing, now+killedLimit, say{level: Normal, text: "killing the leftovers: a second SIGINT"})
	case s.stage == lingering || s.stage == waiting:
		return s.proceed()
	case s.stage == asking && s.owed:
		return []action{look{}}, s
	}
	return nil, s
}

func (s *sweep) onStop(now time.Duration, why Reason) ([]action, Machine) {
	spared := false // the policy has spared leftovers so far
	if why.overrules() {
		spared, s.Orphans = s.Orphans == StopPipes || s.Orphans == LeaveAll, StopAll
	}
	switch {
	case !spared && s.stage != waiting && (s.stage != lingering || why == StdinClosed):
		return nil, s
	case s.Orphans == LeaveAll:
		return s.proceed()
	}
	return s.proceed(say{level: Normal, text: "stopping the leftovers", why: why})
}

func (s *sweep) onReaped(now time.Duration, e reaped) ([]action, Machine) {
	if status := e.exit(); status != nil && s.resultUnknown {
		s.result, s.resultUnknown = ResultOf(*status), false
	}
	switch {
	case e.none:
		s.spared = nil
		return s.finish()
	case s.stage == waiting && s.looks():
		// Nothing is urgent here, and leftovers tend to exit in quick succession, so look at most once per longPause.
		return []action{hurry{max(shortPause, s.lookedAt+longPause-now)}}, s
	case s.looks():
		// A tree in which processes keep exiting must not delay the next look forever.
		s.pause = shortPause
		return []action{hurry{shortPause}}, s
	}
	return nil, s
}

// looks reports whether fini looks at the tree repeatedly in this stage. While waiting, it does so only for
// --allow-orphan, and less and less often, because a process may take on an allowed name later.
func (s *sweep) looks() bool {
	return s.stage == clearing || s.stage == asking || s.stage == killing || s.stage == counting ||
		s.stage == lingering && (s.Orphans == StopPipes || s.onlyNames()) || s.Allow
}

// onlyNames reports whether fini does nothing but name the leftovers that are alive now.
func (s *sweep) onlyNames() bool { return s.Orphans == LeaveAll && s.OrphansExit < 0 && !s.killsGroup }

func (s *sweep) onElapsed(now time.Duration) ([]action, Machine) {
	switch {
	case s.stage == lingering && now >= s.deadline:
		return s.proceed()
	case s.stage == asking && s.answered && now >= s.deadline && !s.owed:
		return s.enter(killing, now+killedLimit) // the look is for messages about processes that did not exit
	case s.stage == killing && s.Orphans == StopAll:
		return s.kill(now)
	case s.looks():
		return []action{look{}}, s
	}
	return nil, s
}

func (s *sweep) onLooked(now time.Duration, e looked) ([]action, Machine) {
	s.lookedAt, s.lookTook = now, e.took
	if s.Orphans == StopPipes && !e.Complete {
		s.lookTook = 0 // look again soon, because a missed holder keeps a reader waiting
	}
	do := s.settleNameless(e)
	found := slices.DeleteFunc(slices.Clone(e.Found), func(p orphans.Process) bool {
		return s.sparedBy(p) != ""
	})
	s.spared = s.tellSpared(e.Found)
	if s.stage == asking || s.stage == counting {
		do = append(do, s.unread(found)...)
	}
	onlySpared := len(found) == 0 && (len(s.spared) > 0 || s.Orphans == StopPipes)
	switch {
	case onlySpared && !s.quietLook:
		// A look may miss a process that was forked while it walked the tree, so look again.
		s.quietLook = true
		return append(do, look{}), s
	case onlySpared && e.Complete:
		return s.finish(do...)
	case onlySpared && s.stage == killing && now >= s.deadline:
		return s.finish(append(do, say{level: Always, text: "gave up on leftovers: processes come and go all the time"})...)
	}
	if s.stage == clearing {
		return s.killGroup(now, e, do)
	}
	s.quietLook = onlySpared
	return s.inStage(now, e, found, do)
}

// settleNameless gives up what needs /proc, and says so once, if there is somebody to stop. fini then can't see
// whether a process holds a stream, or what its name is, but wait4(2) shows when there are no processes left.
func (s *sweep) settleNameless(e looked) (do []action) {
	if e.Nameless && s.Orphans == StopPipes {
		s.Orphans = StopAll
		do = append(do, say{level: Normal, text: "stopping every leftover: without /proc fini can't tell which processes " +
			"hold the output"})
	}
	if e.Nameless && s.Allow {
		s.Allow = false
		do = append(do, say{level: Normal, text: "--allow-orphan has no effect: without /proc fini can't tell the names " +
			"of processes"})
	}
	if len(e.Found) == 0 {
		return nil
	}
	return do
}

// inStage decides what to do in the current stage after a look, unless the sweep has ended. found contains the
// leftovers that are not spared.
func (s *sweep) inStage(now time.Duration, e looked, found []orphans.Process, do []action) ([]action, Machine) {
	switch s.stage {
	case asking:
		return s.askFound(now, e, found, do)
	case killing:
		return s.killEach(now, found, do)
	case lingering:
		return s.linger(now, found, do)
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

// askFound asks the leftovers that a look has found to exit, unless fini may signal none of them.
func (s *sweep) askFound(now time.Duration, e looked, found []orphans.Process, do []action) ([]action, Machine) {
	since, spared := s.cleanUp(e.Found, s.askedAt == notAsked || now < s.askedAt+min(startUnknown, s.Grace/2))
	if left := s.refusing(found); len(found) > 0 && len(left) == len(found) {
		return s.finish(append(do, s.gaveUp(now, left))...)
	}
	do = append(do, s.askEach(now, found, spared)...)
	s.setDeadline(found, since)
	return append(do, s.again(now)), s
}

// linger keeps lingering, unless fini only names leftovers, and none was asked to exit with the command.
func (s *sweep) linger(now time.Duration, found []orphans.Process, do []action) ([]action, Machine) {
	wasAsked := func(p orphans.Process) bool { _, asked := s.askedWithGroup(p); return asked }
	switch {
	case s.onlyNames() && !slices.ContainsFunc(found, wasAsked):
		return s.proceed(do...)
	case !s.looks():
		return append(do, wake{max(s.deadline-now, 0)}), s
	}
	return append(do, s.again(now)), s
}

// inGroup reports whether a leftover is in the command's process group. It returns false for the main child.
func (s *sweep) inGroup(p orphans.Process) bool {
	return p.PGID == s.commandGroup(s.main.Pid) && p.Pid != s.main.Pid
}

// killGroup sends SIGKILL to the rest of the command's group after each look, until two looks in a row find none. One
// look is not enough, because it may miss a process that was forked while it walked the tree.
func (s *sweep) killGroup(now time.Duration, e looked, do []action) ([]action, Machine) {
	if !s.answered {
		s.answered, s.deadline = true, now+killedLimit
	}
	group := slices.DeleteFunc(slices.Clone(e.Found), func(p orphans.Process) bool { return p.Allowed || !s.inGroup(p) })
	none, refusing, limit := len(group) == 0, s.refusing(e.Found), s.deadline
	if !slices.ContainsFunc(group, func(p orphans.Process) bool { return !slices.Contains(refusing, p.Pid) }) {
		limit -= killedLimit - refusedLimit
	}
	for _, p := range group {
		if slices.Contains(refusing, p.Pid) {
			continue
		}
		if s.of(p) == nil {
			s.count++
		}
		do = append(do, s.killOne(p, 0)...)
	}
	switch wasQuiet := s.quietLook; {
	case none && wasQuiet, now >= limit:
		s.killsGroup, s.quietLook = false, false
		return s.proceed(do...)
	case none && !wasQuiet:
		s.quietLook = true
		return append(do, look{}), s
	}
	s.quietLook = none
	return append(do, s.again(now)), s
}

// sparedBy is like whom.sparedBy, but while clearing, only --allow-orphan counts.
func (s *sweep) sparedBy(p orphans.Process) string {
	if s.killsGroup && s.inGroup(p) && !p.Allowed {
		return ""
	}
	return s.whom.sparedBy(p)
}

// tellSpared returns a message for each process that fini spares. It leaves out processes that were asked to exit and
// have closed the streams since.
func (s *sweep) tellSpared(found []orphans.Process) (do []action) {
	told := map[string]int{}
	for _, p := range found {
		why := s.sparedBy(p)
		if why == "" && s.stage == counting {
			why = LeaveAll
		}
		_, asked := s.of(p).wasSent(syscall.SIGTERM)
		if why != "" && !(asked && why == StopPipes) {
			do = append(do, tell{process: p, what: "leaving", spared: why, quietly: told[why] >= MaxNamed})
			told[why]++
		}
	}
	return do
}

// setDeadline computes when the leftovers have had their time. A leftover that was asked to exit together with the
// command has the same grace period.
func (s *sweep) setDeadline(found []orphans.Process, since map[int]Sent) {
	s.deadline = s.graceEnd
	for _, p := range found {
		if first := since[p.Pid]; first.ToGroup {
			s.deadline = max(s.deadline, s.keeps(first))
		}
	}
}

// askEach asks leftovers to exit, except those that are spared or that it has asked before. It starts with processes
// outside of the main child's group that keep a reader waiting.
func (s *sweep) askEach(now time.Duration, found []orphans.Process, spared map[int]bool) (do []action) {
	asks := false
	s.owed = false
	for _, p := range s.holdersFirst(found) {
		if spared[p.Pid] {
			continue
		}
		more, how := s.askToExit(now, p, s.urgent || s.cut, 0)
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

// killEach writes messages about the leftovers to be killed. With --orphans=pipes it kills only these, after each look,
// and otherwise it kills the whole tree.
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
		_, killed := s.of(p).wasSent(syscall.SIGKILL)
		if !killed {
			do = append(do, tell{process: p, what: "killing", quietly: i >= MaxNamed})
		}
		if s.Orphans == StopPipes && !slices.Contains(refused, p.Pid) {
			do = append(do, signalLeftover{process: p, sig: syscall.SIGKILL})
			hit, fresh = append(hit, p.Pid), fresh || !killed
		}
	}
	if s.Orphans == StopPipes {
		return s.onSwept(now, swept{hit: hit, refused: refused, fresh: fresh && len(refused) == 0}, do...)
	}
	return s.kill(now, do...)
}

// kill starts to send SIGKILL to the tree in rounds, at first only to children. See burstFor. With --allow-orphan,
// which may spare children, each round needs a look.
func (s *sweep) kill(now time.Duration, do ...action) ([]action, Machine) {
	if s.Allow {
		return append(do, kill{}), s
	}
	s.burstEnd = now + burstFor
	return append(do, kill{own: true}), s
}

func (s *sweep) onSwept(now time.Duration, e swept, do ...action) ([]action, Machine) {
	if e.fresh {
		s.deadline, s.pause = now+killedLimit, shortPause
	}
	switch {
	case s.Allow && len(e.hit)+len(e.refused) == 0:
		return append(do, look{}), s // to find out whether --allow-orphan spares everything that is left
	case s.burstEnd != 0 && e.fresh && now < s.burstEnd:
		return append(do, kill{own: true}), s
	case s.burstEnd != 0:
		s.burstEnd = 0
		return append(do, kill{}), s
	case e.fresh:
		// A process may have forked before it was killed, so start another round immediately.
		return append(do, wake{0}), s
	}
	limit := s.deadline
	if len(e.hit) == 0 {
		limit -= killedLimit - refusedLimit
	}
	if left := slices.Concat(e.hit, e.refused); now >= limit && len(left) > 0 {
		return s.finish(append(do, s.gaveUp(now, left))...)
	}
	return append(do, s.again(now)), s
}

// again schedules the next look. The pause gets longer each time, but ends with the stage.
func (s *sweep) again(now time.Duration) action {
	after := min(s.pause, max(s.deadline-now, 0))
	s.pause = min(2*s.pause, max(longPause, min(timesLook*s.lookTook, costlyPause)))
	return wake{after}
}
