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
//	running   stop      closing, at the end of stdin; heeding, in a job whose parent has died, unless --linger is 0;
//	                    otherwise stopping
//	          signal    stopping, if the signal starts --kill-after or --stop-within: see requestOf
//	          measured  stopping, if eight looks of --idle in a row found no change
//	heeding   elapsed   stopping, after --linger, but at most sameEnd
//	          stop      stopping, unless it is the end of stdin
//	closing   elapsed   stopping, if no byte was read during --grace; killed, after --kill-after
//	          stop      stopping
//	          signal    stopping, if the signal asks the command to exit: see startsKillAfter
//	stopping  elapsed   killed, after --kill-after, or after --grace for the last --stop-signal
//	          stop      closing, at the end of stdin, if --kill-after leaves more than --grace
//	killed    elapsed   asking or clearing, if the main child survives SIGKILL, which makes it a leftover
//	any rung  reaped    the sweep, if the main child has exited; over, if no child is left
//
// The sweep begins in the stage lingering, or in asking if --linger is 0. With --orphans=wait it begins in waiting,
// unless fini has stopped the main child or a signal has asked it to exit. See wasAsked. With --orphans=leave it begins
// in the stage counting, unless --orphans-exit is set or fini has asked the whole group to exit. It begins in clearing
// if fini had to kill the main child after asking the whole group. Some reasons overrule the policy. See overrules.
type rung int

const (
	running  rung = iota // the main child is running
	heeding              // the parent process has died, perhaps from a Ctrl-C that has reached the command too
	closing              // the command can see that stdin has ended
	stopping             // fini has sent the main child a stop signal
	killed               // fini has sent SIGKILL to the main child alone
)

// ladder is the machine that stops a command.
type ladder struct {
	Rules
	*records

	rung       rung
	deadline   time.Duration // uptime when the rung ends
	killBy     time.Duration // uptime when --kill-after is over, or 0 if no signal has started it
	leftUnread int           // unread bytes of stdin when last checked

	further           []syscall.Signal // remaining --stop-signals, which fini sends at intervals of --grace
	stopReason        Reason           // why fini stops the command
	timedOut          bool             // --timeout or --idle has stopped the command
	standstill        standstill
	isSuspended       bool   // the main child is suspended by a signal
	asked             bool   // a signal has asked the command to exit: see startsKillAfter
	taken             uint64 // signals received, and what --rewrite makes of them; bit n-1 is signal n
	stopWithinStarted bool   // --stop-within is counting
	surveyed          bool
	// stop signal for a reason that overrules; fini ignores the same signal from outside for the time sameEnd
	expectedDuplicate syscall.Signal
}

func newLadder(r Rules, known *records) *ladder { return &ladder{Rules: r, records: known} }

func (l *ladder) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case Signal:
		do = l.onSignal(now, e)
	case stop:
		do = l.onStop(now, e)
	case reaped:
		return l.onReaped(now, e)
	case elapsed:
		return l.onElapsed(now, e.unread)
	case measured:
		do = l.onMeasured(now, e)
	case listed:
		do = whom{l.Rules, l.records}.onListed(now, e)
	case looked:
		do = whom{l.Rules, l.records}.stopOrphans(now, e)
	case late:
		l.deadline += e.by
		if l.killBy != 0 {
			l.killBy += e.by
		}
	}
	return do, l
}

func (l *ladder) stops() bool { return l.rung != running }

func (l *ladder) waitEnd() (end *time.Duration, keeps, waits time.Duration) {
	switch {
	case !l.stopWithinStarted || l.rung == running:
		return nil, 0, 0
	case l.rung == killed:
		return &l.deadline, 4, 1
	case l.rung == closing || l.rung == heeding: // the stop signals are still to come
		return &l.deadline, partsOfReserve, time.Duration(1 + max(len(l.StopSignals), 1))
	}
	return &l.deadline, partsOfReserve, time.Duration(1 + len(l.further))
}

func (l *ladder) onSignal(now time.Duration, got Signal) (do []action) {
	sig, request := l.rewritten(got.Signal), l.requestOf(got)
	if sig != 0 && !got.OfTree {
		l.taken |= 1<<(got.Signal-1) | 1<<(sig-1)
	}
	switch {
	case sig == 0, l.reachedCommand(got), l.rung == killed: // on the last rung, SIGKILL has been sent already
		return nil
	case sig == l.expectedDuplicate:
		l.expectedDuplicate = 0
		if l.main.wasSentRecently(now, sig) {
			return nil // it was sent to the process group of the dead parent
		}
	}
	do = append(do, signalCommand{sig: sig})
	if request&terminates != 0 {
		do = append(do, l.continueMain()...)
	}
	if request&startsKillAfter == 0 {
		return do
	}
	l.asked = true
	if got.Signal != syscall.SIGHUP {
		do = append(do, l.survey(NoReason)...)
	}
	if l.KillAfter > 0 && (l.rung == running || l.rung == closing && l.killBy == 0) {
		l.killBy = now + l.KillAfter
	}
	starts := l.StopWithin > 0 && request&startsStopWithin != 0
	l.stopWithinStarted = l.stopWithinStarted || starts
	switch {
	case l.rung == closing: // this signal takes the place of the stop signal
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

// continueMain continues a suspended main child, because it could not react to a signal otherwise.
func (l *ladder) continueMain() []action {
	if !l.isSuspended {
		return nil
	}
	l.isSuspended = false
	return []action{signalCommand{sig: syscall.SIGCONT}}
}

// onStop moves to another rung for a reason that is not a signal.
func (l *ladder) onStop(now time.Duration, e stop) []action {
	why := e.why
	if why.overrules() {
		l.Orphans = StopAll
	}
	l.timedOut = l.timedOut || why == TimedOut || why == WentIdle
	l.stopWithinStarted = true
	switch {
	case why == StdinClosed && (l.rung == running ||
		l.rung == stopping && l.stopReason == NotEnded && now+l.Grace < l.killBy):
		l.leftUnread = e.unread
		return append([]action{say{level: Detail, text: "waiting for the command", why: why}},
			l.enterFor(closing, now, l.Grace)...)
	case l.rung == running && why == ParentDied && l.Job != NoJob && l.Linger > 0:
		// If a Ctrl-C has killed the parent process, the command has received SIGINT too, and may exit.
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
	return l.sendStopSignal(now, why)
}

// sendStopSignal sends the stop signal and waits for the main child to exit. If the parent process has died, and the
// same signal has just been forwarded, sendStopSignal doesn't send it again. Otherwise it does, because that signal
// may have had a purpose.
func (l *ladder) sendStopSignal(now time.Duration, why Reason) []action {
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
		sig, l.further = l.StopOnDeath, nil
	}
	switch {
	case !why.overrules():
		do = append(do, signalCommand{sig: sig})
	case !l.main.wasSentRecently(now, sig): // unless whoever killed the parent process has sent it already
		l.expectedDuplicate = sig
		do = append(do, signalCommand{sig: sig})
	}
	do = append(do, l.continueMain()...)
	if why.overrules() {
		do = append(do, l.survey(why)...)
	}
	// Look at the tree to record which process started which. A look may take long, so send the signal first.
	do = append(do, look{})
	return append(do, l.endIn(now, l.Grace)...)
}

// survey records what the tree is doing, because that can't be found out any more after a stop signal. If fini itself
// stops the command, the survey comes before the signal. If somebody is waiting for the signal to arrive, because it
// was forwarded or the parent process has died, the survey comes after it. A second survey is made only if the command
// survives a signal and is later stopped by fini itself.
func (l *ladder) survey(why Reason) []action {
	named := why == TimedOut || why == WentIdle
	if own := named || why == StdinClosed; !named && !l.Reports || l.surveyed && !own {
		return nil
	}
	l.surveyed = true
	return []action{survey{named}}
}

func (l *ladder) endIn(now, after time.Duration) []action { return l.enterFor(stopping, now, after) }

// enterFor starts a rung, which lasts for the time after, but not longer than until --kill-after.
func (l *ladder) enterFor(rung rung, now, after time.Duration) []action {
	if l.killBy != 0 {
		after = min(after, max(l.killBy-now, 0))
	}
	l.rung, l.deadline = rung, now+after
	return []action{wake{after}}
}

// isOverdue reports whether the time of --kill-after is over.
func (l *ladder) isOverdue(now time.Duration) bool { return l.killBy != 0 && now >= l.killBy }

func (l *ladder) onReaped(now time.Duration, e reaped) (do []action, next Machine) {
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

// wasAsked reports whether the command exited because of a signal that fini has received.
func (l *ladder) wasAsked(status *syscall.WaitStatus) bool {
	return l.asked || status != nil && status.Signaled() && l.taken>>(status.Signal()-1)&1 != 0
}

// changed is called when the main child was suspended or continued. If it was suspended although it has to exit, fini
// continues it, because the suspension may have begun before fini sent the signal.
func (l *ladder) changed(now time.Duration, status syscall.WaitStatus) []action {
	l.isSuspended = status.Stopped()
	hasToExit := slices.ContainsFunc(l.main.Sent, func(s Sent) bool {
		return l.requestBy(s.Sig)&terminates != 0 && l.main.wasSentRecently(now, s.Sig)
	})
	if l.rung == stopping || hasToExit {
		return l.continueMain()
	}
	return nil
}

func (l *ladder) onElapsed(now time.Duration, unread int) ([]action, Machine) {
	switch {
	case l.rung == running && l.Idle > 0:
		return []action{measure{}}, l
	// the command can't notice the end before it has read the last byte
	case l.rung == closing && now >= l.deadline && unread < l.leftUnread && !l.isOverdue(now):
		l.leftUnread = unread
		return l.enterFor(closing, now, l.Grace), l
	case l.rung == closing && now >= l.deadline && !l.isOverdue(now):
		return l.sendStopSignal(now, StdinClosed), l
	case l.rung == heeding && now >= l.deadline:
		return l.sendStopSignal(now, ParentDied), l
	case l.rung == stopping && now >= l.deadline && len(l.further) > 0 && !l.isOverdue(now):
		sig := l.further[0]
		l.further = l.further[1:]
		return append(append([]action{signalCommand{sig: sig}}, l.continueMain()...), l.endIn(now, l.Grace)...), l
	case (l.rung == stopping || l.rung == closing) && now >= l.deadline:
		l.rung, l.deadline = killed, now+killedLimit
		// Kill only the main child, so that other processes of the group still have the time of --linger to clean up.
		return []action{l.killing(now), signalCommand{sig: syscall.SIGKILL, alone: true}, wake{killedLimit}}, l
	case l.rung == killed:
		// The main child is still alive after SIGKILL, so treat it as a leftover, and ask the others to exit now.
		s := l.sweep(nil)
		s.Orphans = StopAll
		return s.proceed()
	}
	return nil, l
}

// killing returns a message about killing the command, with the flag that would give the command more time.
func (l *ladder) killing(now time.Duration) action {
	switch {
	case l.cut:
		return say{level: Normal, text: "killing the command", why: OutOfTime}
	case l.isOverdue(now):
		return say{level: Normal, text: "killing the command", why: NotEnded}
	}
	return say{level: Normal, text: fmt.Sprintf("killing the command: the command did not exit within %v of the stop "+
		"signal; --grace sets this time", l.Grace)}
}

// sweep returns the machine that stops the leftovers. status is nil if the main child's exit status is not known.
func (l *ladder) sweep(status *syscall.WaitStatus) *sweep {
	s := newSweep(l.Rules, l.records)
	s.killsGroup = l.ToGroup && l.rung == killed
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

// howEnded describes an exit status or a signal in words.
func howEnded(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "was killed by " + signals.Name(status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}
