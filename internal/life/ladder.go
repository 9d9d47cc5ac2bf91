package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/signals"
)

// A rung is a state of the ladder.
//
//	rung      event     where it leads
//	running   stop      closing, at the end of stdin; heeding, in a job after the parent's death, unless --linger is 0;
//	                    otherwise stopping
//	          signal    stopping, if it starts the clock of --kill-after, and there is one: see asks
//	          measured  stopping, after eight looks of --idle without a change
//	heeding   elapsed   stopping, after --linger, but at most sameEnd
//	          stop      stopping, unless it is the end of stdin
//	closing   elapsed   stopping, after --grace without a byte read; killed, after --kill-after
//	          stop      stopping
//	          signal    stopping, if it starts that clock
//	stopping  elapsed   killed, after --kill-after, or after the --grace of the last --stop-signal
//	          stop      closing, at the end of stdin, if there is more than --grace to --kill-after
//	killed    elapsed   asking or clearing, if SIGKILL does not end the main child: it becomes a leftover
//	any rung  reaped    the sweep, after the main child's exit, or over, if no child is left
//
// The sweep begins with lingering, or with asking if --linger is 0. Under --orphans=wait it begins with waiting if the
// main child exited on the rung running, and nobody had asked it to: see wasAsked. Under --orphans=leave without
// --orphans-exit it begins with counting, unless the group was asked with the main child. If the rung was killed and fini
// has asked the whole group, clearing comes before asking and counting. Some reasons overrule every policy: see overrules.
type rung int

const (
	running  rung = iota // the main child lives
	heeding              // fini's parent process has died, perhaps by a Ctrl-C whose SIGINT has reached the command too
	closing              // the command can see the end of stdin
	stopping             // the main child has had a stop signal
	killed               // the main child alone has had SIGKILL
)

// ladder stops a command.
type ladder struct {
	Rules
	*records

	rung       rung
	deadline   time.Duration // when the rung ends, as uptime
	killBy     time.Duration // when --kill-after is over, as uptime; 0 if a signal has not started that
	leftUnread int           // unread bytes of stdin at the last look

	further     []syscall.Signal // of --stop-signal, each to be sent a --grace after the one before
	stopReason  Reason           // why fini stops the command
	timedOut    bool             // --timeout has passed before the command exited
	standstill  standstill
	isSuspended bool   // the main child is suspended by a signal
	asked       bool   // a signal that asks for the end has come: see startsKillAfter
	taken       uint64 // signals that have come, as received and as sent: bit n-1 is signal n
	ends        bool   // --stop-within counts
	surveyed    bool
	// the stop signal sent for a reason that overrules; the same signal to fini within sameEnd is a duplicate
	expectedDuplicate syscall.Signal
}

func newLadder(r Rules, known *records) *ladder { return &ladder{Rules: r, records: known} }

func (l *ladder) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case Signal:
		do = l.received(now, e)
	case stop:
		do = l.stop(now, e)
	case reaped:
		return l.reaped(now, e)
	case elapsed:
		return l.elapsed(now, e.unread)
	case measured:
		do = l.measured(now, e)
	case late:
		l.deadline += e.by
		if l.killBy != 0 {
			l.killBy += e.by
		}
	}
	return do, l
}

func (l *ladder) stops() bool { return l.rung != running }

func (l *ladder) bounded() (end *time.Duration, keeps, waits time.Duration) {
	switch {
	case !l.ends || l.rung == running:
		return nil, 0, 0
	case l.rung == killed:
		return &l.deadline, 4, 1
	case l.rung == closing || l.rung == heeding: // then come the stop signals
		return &l.deadline, partsOfReserve, time.Duration(1 + max(len(l.StopSignals), 1))
	}
	return &l.deadline, partsOfReserve, time.Duration(1 + len(l.further))
}

func (l *ladder) received(now time.Duration, got Signal) (do []action) {
	sig, asks := l.rewritten(got.Signal), l.asks(got)
	if sig != 0 && !got.OfTree {
		l.taken |= 1<<(got.Signal-1) | 1<<(sig-1)
	}
	switch {
	case sig == 0, l.hasHad(got), l.rung == killed: // on the last rung the main child has had SIGKILL
		return nil
	case sig == l.expectedDuplicate:
		l.expectedDuplicate = 0
		if l.main.hadRecently(now, sig) {
			return nil // the group of the dead parent process got this signal too
		}
	}
	do = append(do, forward{sig: sig})
	if asks&terminates != 0 {
		do = append(do, l.letGoOn()...)
	}
	if asks&startsKillAfter == 0 {
		return do
	}
	l.asked = true
	if got.Signal != syscall.SIGHUP {
		do = append(do, l.survey(NoReason)...)
	}
	if l.KillAfter > 0 && (l.rung == running || l.rung == closing && l.killBy == 0) {
		l.killBy = now + l.KillAfter
	}
	starts := l.StopWithin > 0 && asks&startsStopWithin != 0
	l.ends = l.ends || starts
	switch {
	case l.rung == closing: // the sender's signal serves as the stop signal
		do = append(do, l.endIn(now, l.Grace)...)
	case l.rung == running && l.KillAfter > 0:
		l.stopReason = NotEnded
		do = append(do, l.endIn(now, l.KillAfter)...)
	case l.rung == running && starts:
		l.stopReason = OutOfTime
		do = append(do, l.endIn(now, l.StopWithin)...)
	}
	return do
}

// letGoOn continues a suspended main child, which could not act on the signal that fini has just sent.
func (l *ladder) letGoOn() []action {
	if !l.isSuspended {
		return nil
	}
	l.isSuspended = false
	return []action{forward{sig: syscall.SIGCONT}}
}

// stop climbs the ladder for a reason of fini's own.
func (l *ladder) stop(now time.Duration, e stop) []action {
	why := e.why
	if why.overrules() {
		l.Orphans = StopAll
	}
	l.timedOut = l.timedOut || why == TimedOut || why == WentIdle
	l.ends = true
	switch {
	case why == StdinClosed && (l.rung == running || l.rung == stopping && l.stopReason == NotEnded && now+l.Grace < l.killBy):
		l.leftUnread = e.unread
		return append([]action{say{level: Detail, text: "waiting for the command", why: why}}, l.onFor(closing, now, l.Grace)...)
	case l.rung == running && why == ParentDied && l.Job != 0 && l.Linger > 0:
		// If a Ctrl-C killed the parent process, its SIGINT has reached the command too. A command that is killed by this
		// signal doesn't need one from fini.
		after := min(l.Linger, sameEnd)
		l.rung, l.deadline = heeding, now+after
		return []action{wake{after}}
	case (l.rung == stopping && l.deadline <= now+l.Grace || l.rung == killed) && why == TimedOut:
		return []action{say{level: Normal, text: "the exit status will be 124", why: why}}
	case (l.rung == closing || l.rung == heeding) && why == StdinClosed,
		l.rung == stopping && l.deadline <= now+l.Grace && (len(l.further) == 0 || !why.overrules()),
		l.rung == killed:
		return nil
	}
	return l.climb(now, why)
}

// climb sends the stop signal for this reason, and waits for the main child to exit. A signal that came with the death of
// the parent process is the same as the stop signal. For any other reason it is not: it may have been for a reload.
func (l *ladder) climb(now time.Duration, why Reason) []action {
	l.stopReason = why
	do := []action{say{level: Normal, text: "stopping the command", why: why}}
	if !why.overrules() {
		do = append(do, l.survey(why)...)
	}
	sig := syscall.SIGTERM
	if len(l.StopSignals) > 0 {
		sig, l.further = l.StopSignals[0], l.StopSignals[1:]
	}
	if why.overrules() {
		sig, l.further = l.Deathsig, nil
	}
	switch {
	case !why.overrules():
		do = append(do, forward{sig: sig})
	case !l.main.hadRecently(now, sig): // from whoever killed the parent process
		l.expectedDuplicate = sig
		do = append(do, forward{sig: sig})
	}
	do = append(do, l.letGoOn()...)
	if why.overrules() {
		do = append(do, l.survey(why)...)
	}
	// The look records which process started which. It comes after the signal, because it may take long.
	do = append(do, look{})
	return append(do, l.endIn(now, l.Grace)...)
}

// survey reads what the tree is doing, because whoever asks why the command was stopped can't see that after a stop signal.
// A stop of fini's own waits for it. The other stops, and a signal from outside (NoReason), come before it, because a
// process waits for them. A life has one survey, but a stop of fini's own replaces what a signal that the command has
// survived has left.
func (l *ladder) survey(why Reason) []action {
	named := why == TimedOut || why == WentIdle
	if own := named || why == StdinClosed; !named && !l.Reports || l.surveyed && !own {
		return nil
	}
	l.surveyed = true
	return []action{survey{why, named}}
}

func (l *ladder) endIn(now, after time.Duration) []action { return l.onFor(stopping, now, after) }

// onFor begins a rung that lasts for a time, but not longer than --kill-after.
func (l *ladder) onFor(rung rung, now, after time.Duration) []action {
	if l.killBy != 0 {
		after = min(after, max(l.killBy-now, 0))
	}
	l.rung, l.deadline = rung, now+after
	return []action{wake{after}}
}

// isOverdue reports whether --kill-after is over.
func (l *ladder) isOverdue(now time.Duration) bool { return l.killBy != 0 && now >= l.killBy }

func (l *ladder) reaped(now time.Duration, e reaped) (do []action, next Machine) {
	for _, status := range e.main {
		do = append(do, l.changed(now, status)...)
	}
	status := e.exit()
	switch {
	case status != nil:
		do = append(do, say{level: Detail, text: fmt.Sprintf("command %d %s", l.main.Pid, howEnded(*status))})
	case !e.none && !e.hidden:
		return do, l
	}
	s := l.sweep(status)
	if e.none {
		return s.finish(do...)
	}
	return s.begin(now, l.rung == running && !l.wasAsked(status), do...)
}

// wasAsked reports whether a signal has asked the command to exit, or has ended it.
func (l *ladder) wasAsked(status *syscall.WaitStatus) bool {
	return l.asked || status != nil && status.Signaled() && l.taken>>(status.Signal()-1)&1 != 0
}

// changed records that the main child was suspended or continued. If the main child has to exit, fini does not leave it
// suspended: the suspension may have been under way when fini sent its signal.
func (l *ladder) changed(now time.Duration, status syscall.WaitStatus) []action {
	l.isSuspended = status.Stopped()
	hasToExit := slices.ContainsFunc(l.main.Sent, func(s Sent) bool { return l.asksBy(s.Sig)&terminates != 0 && l.main.hadRecently(now, s.Sig) })
	if l.rung == stopping || hasToExit {
		return l.letGoOn()
	}
	return nil
}

func (l *ladder) elapsed(now time.Duration, unread int) ([]action, Machine) {
	switch {
	case l.rung == running && l.Idle > 0:
		return []action{measure{}}, l
	case l.rung == closing && now >= l.deadline && unread < l.leftUnread && !l.isOverdue(now): // the command sees the end only after the last byte
		l.leftUnread = unread
		return l.onFor(closing, now, l.Grace), l
	case l.rung == closing && now >= l.deadline && !l.isOverdue(now):
		return l.climb(now, StdinClosed), l
	case l.rung == heeding && now >= l.deadline:
		return l.climb(now, ParentDied), l
	case l.rung == stopping && now >= l.deadline && len(l.further) > 0 && !l.isOverdue(now):
		sig := l.further[0]
		l.further = l.further[1:]
		return append(append([]action{forward{sig: sig}}, l.letGoOn()...), l.endIn(now, l.Grace)...), l
	case (l.rung == stopping || l.rung == closing) && now >= l.deadline:
		l.rung, l.deadline = killed, now+killedBound
		// A cleaner must outlive what it cleans: the sweep gives the rest of the group --linger.
		return []action{l.killing(now), forward{sig: syscall.SIGKILL, alone: true}, wake{killedBound}}, l
	case l.rung == killed:
		// The main child has had SIGKILL and is alive: it becomes a leftover. The other leftovers have not been asked
		// to exit yet.
		s := l.sweep(nil)
		s.Orphans = StopAll
		return s.ask()
	}
	return nil, l
}

// killing says that fini kills the command, and which flag gives the command longer.
func (l *ladder) killing(now time.Duration) action {
	switch {
	case l.cut:
		return say{level: Normal, text: "killing the command", why: OutOfTime}
	case l.isOverdue(now):
		return say{level: Normal, text: "killing the command", why: NotEnded}
	}
	return say{level: Normal, text: fmt.Sprintf("killing the command: the command did not exit within %v of the stop signal; --grace sets this time", l.Grace)}
}

// sweep returns the machine for the leftovers. The main child's status may be unknown yet.
func (l *ladder) sweep(status *syscall.WaitStatus) *sweep {
	s := newSweep(l.Rules, l.records)
	s.clears = l.Group && l.rung == killed
	switch {
	case l.timedOut:
		s.result = Result{Code: exitTimedOut}
	case status != nil:
		s.result = ResultOf(*status)
	default:
		s.result, s.resultUnknown = Result{Sig: syscall.SIGKILL}, true
	}
	return s
}

// howEnded says in words how a process exited or died.
func howEnded(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "was killed by " + signals.Name(status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}
