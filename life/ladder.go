package life

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// A rung is where a ladder stands.
//
//	rung       what is so                           what leads to the next
//	running    the main child lives                 stdin's end: closing; another reason to stop, or
//	                                                a signal to end with --kill-after: stopping
//	heeding    fini's parent process has died,      --linger (at most sameEnd), another reason:
//	           perhaps of a key of the terminal     stopping
//	           that has reached the command too
//	closing    it can see the end of its stdin      --grace without a byte read, another
//	                                                reason, a signal to end: stopping
//	stopping   it has been sent a stop signal       --grace or --kill-after: ending
//	ending     it has been sent SIGKILL             it does not end: the sweep, asking
//
// On each rung the end of the main child leads to the sweep of what it left. The sweep begins with
// lingering; under --orphans=wait, if the rung was running, with waiting. If no child is left, or under
// --orphans=leave, the life is over; but under --orphans=leave what is left is counted first, if
// --orphans-exit or a report asks for it. Some reasons overrule every policy: see overrules.
type rung int

const (
	running rung = iota
	heeding
	closing
	stoppingRung
	ending
)

// ladder stops a command.
type ladder struct {
	Rules
	main int // the main child's pid

	rung       rung
	deadline   time.Duration // when the rung ends, as uptime
	leftUnread int           // bytes of stdin when last looked at

	stopReason Reason // why the command is being stopped
	isStopped  bool   // the main child is stopped by a signal
	// the stop signal sent when the parent died; the next one of that kind is a duplicate
	expectedDuplicate syscall.Signal
	sent              map[syscall.Signal]time.Duration // when the main child was last sent one, as uptime
}

func newLadder(r Rules, main int) *ladder {
	return &ladder{Rules: r, main: main, sent: map[syscall.Signal]time.Duration{}}
}

func (l *ladder) mayDelayReap() bool { return true }

func (l *ladder) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case received:
		do = l.received(now, e)
	case stop:
		do = l.stop(now, e.why)
	case unread:
		do = l.unread(now, e.bytes)
	case ended:
		return l.ended(now, e)
	case elapsed:
		return l.elapsed(now)
	}
	return do, l
}

func (l *ladder) received(now time.Duration, e received) (do []action) {
	sig, rewritten := l.Rewrite[e.sig]
	if !rewritten {
		sig = e.sig
	}
	switch {
	case sig == 0, l.hasHad(e), l.rung == ending: // on the last rung it has been sent SIGKILL
		return nil
	case e.sig == l.expectedDuplicate:
		l.expectedDuplicate = 0
		if l.hadRecently(now, e.sig) {
			return nil // the group of a parent process that died was sent this signal too
		}
	}
	do = l.forward(now, sig)
	if !l.asksForEnd(e.sig) {
		return do
	}
	do = append(do, l.letGoOn(now)...)
	switch {
	case l.rung == closing: // the sender has climbed to the next rung
		do = append(do, l.endIn(now, l.Grace)...)
	case l.rung == running && l.KillAfter > 0:
		l.stopReason = NotEnded
		do = append(do, l.endIn(now, l.KillAfter)...)
	}
	return do
}

// hasHad reports whether a signal has reached the command by itself, since that is in the job
// to which it was sent.
func (l *ladder) hasHad(e received) bool {
	if l.Job == 0 {
		return false
	}
	switch e.sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH:
		return e.from != fromProcess
	case syscall.SIGHUP, syscall.SIGCONT:
		return e.from == fromTree || e.from == fromKernel && !l.Leader
	}
	return e.from == fromTree
}

// asksForEnd reports whether a sender of sig wants the command to end.
func asksForEnd(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// asksForEnd is the same for a signal that fini was sent, but false for one that was ignored when fini
// started, as in the background of a shell: the command may still ignore that, so it is forwarded, and
// nothing more.
func (i Identity) asksForEnd(sig syscall.Signal) bool {
	return asksForEnd(sig) && !slices.Contains(i.Ignored, sig)
}

// forward sends sig to the command and remembers that.
func (l *ladder) forward(now time.Duration, sig syscall.Signal) []action {
	l.sent[sig] = now
	return []action{forward{sig}}
}

// letGoOn continues a main child that is stopped and could not act on the signal that it has
// just been sent.
func (l *ladder) letGoOn(now time.Duration) []action {
	if !l.isStopped {
		return nil
	}
	l.isStopped = false
	return l.forward(now, syscall.SIGCONT)
}

// stop climbs the ladder for a reason of fini's own.
func (l *ladder) stop(now time.Duration, why Reason) []action {
	if why.overrules() {
		l.Orphans = StopAll
	}
	switch {
	case l.rung == running && why == StdinClosed:
		l.rung, l.deadline, l.leftUnread = closing, now, math.MaxInt
		return []action{because{Detail, "waiting for the command", why}, askStdin{}}
	case l.rung == running && why == ParentDied && l.Job != 0 && l.Linger > 0:
		// If a key of the terminal ended the parent process, it has reached the command too. A command
		// that ends by it needs no signal from fini, and no line.
		after := min(l.Linger, sameEnd)
		l.rung, l.deadline = heeding, now+after
		return []action{wake{after}}
	case (l.rung == closing || l.rung == heeding) && why == StdinClosed,
		l.rung == stoppingRung && l.deadline <= now+l.Grace,
		l.rung == ending:
		return nil
	}
	return l.climb(now, why)
}

// climb starts stopping the command with the signal that is for this reason.
func (l *ladder) climb(now time.Duration, why Reason) []action {
	sig := syscall.SIGTERM
	if why.overrules() {
		sig = l.Deathsig
		if !l.hadRecently(now, sig) {
			l.expectedDuplicate = sig
		}
	}
	return l.startStopping(now, why, sig)
}

// hadRecently reports whether the main child was sent sig for this very end: the sender that killed the parent
// process may have sent fini the same signal within the same second. A signal from before that second was for
// something else, such as a reload.
func (l *ladder) hadRecently(now time.Duration, sig syscall.Signal) bool {
	at, ok := l.sent[sig]
	return ok && now-at <= sameEnd
}

// startStopping sends the stop signal, unless the main child has had it, and waits for
// its end.
func (l *ladder) startStopping(now time.Duration, why Reason, sig syscall.Signal) []action {
	l.stopReason = why
	do := []action{because{Warning, "stopping the command", why}}
	if !l.hadRecently(now, sig) {
		do = append(do, l.forward(now, sig)...)
	}
	do = append(do, l.letGoOn(now)...)
	do = append(do, remember{}) // a look may take its time
	return append(do, l.endIn(now, l.Grace)...)
}

func (l *ladder) endIn(now, after time.Duration) []action {
	l.rung, l.deadline = stoppingRung, now+after
	return []action{wake{after}}
}

// unread waits on while the command reads what is left of its stdin: the end is behind
// that.
func (l *ladder) unread(now time.Duration, bytes int) []action {
	switch {
	case l.rung != closing:
		return nil
	case bytes >= l.leftUnread:
		return l.startStopping(now, StdinClosed, syscall.SIGTERM)
	}
	l.leftUnread, l.deadline = bytes, now+l.Grace
	return []action{wake{l.Grace}}
}

func (l *ladder) ended(now time.Duration, e ended) (do []action, next Machine) {
	do, status := sortExits(e.exits, l.main, l.WarnReaped)
	for _, x := range e.exits {
		if x.Pid == l.main {
			do = append(do, l.changed(now, x.Status)...)
		}
	}
	switch {
	case status != nil:
		do = append(do, say{Detail, fmt.Sprintf("command %d %s", l.main, howEnded(*status))})
	case !e.none && !e.hidden:
		return do, l
	}
	rest, next := l.over(now, status, e.none)
	return append(do, rest...), next
}

// changed takes note of a main child that was stopped or continued. One that is to end is not
// left stopped; the stop may have been under way when it was asked.
func (l *ladder) changed(now time.Duration, status syscall.WaitStatus) []action {
	l.isStopped = status.Stopped()
	asked := false
	for sig, at := range l.sent {
		asked = asked || l.asksForEnd(sig) && now-at <= sameEnd
	}
	if l.rung == stoppingRung || asked {
		return l.letGoOn(now)
	}
	return nil
}

// sortExits finds the end of the main child among those of others, which -w wants to be told. A pid may
// come again before all is reaped: the first one is the main child.
func sortExits(exits []reaper.Exit, main int, warn bool) (do []action, status *syscall.WaitStatus) {
	for _, x := range exits {
		switch {
		case !x.Ended():
		case x.Pid == main && status == nil:
			status = &x.Status
		case warn:
			do = append(do, say{Warning, fmt.Sprintf("reaped zombie %d (%s), which %s", x.Pid, x.Name, howEnded(x.Status))})
		}
	}
	return do, status
}

func (l *ladder) elapsed(now time.Duration) ([]action, Machine) {
	switch {
	case l.rung == closing:
		return []action{askStdin{}}, l
	case l.rung == heeding && now >= l.deadline:
		return l.climb(now, ParentDied), l
	case l.rung == stoppingRung && now >= l.deadline:
		l.rung = ending
		do := []action{l.killing()}
		do = append(do, l.forward(now, syscall.SIGKILL)...)
		return append(do, wake{killedBound}), l
	case l.rung == ending:
		// The main child has been sent SIGKILL and lives: it is a leftover like others,
		// which have not been asked yet.
		s := l.sweep(nil)
		s.Orphans, s.had.pid = StopAll, l.main
		return s.ask()
	}
	return nil, l
}

// killing says that the command is being killed, and by which flag it would have longer.
func (l *ladder) killing() action {
	if l.stopReason == NotEnded {
		return because{Warning, "killing the command", NotEnded}
	}
	return say{Warning, fmt.Sprintf("killing the command: it has not ended %v after the stop signal; --grace gives it longer", l.Grace)}
}

// over is what follows the end of the main child.
func (l *ladder) over(now time.Duration, status *syscall.WaitStatus, none bool) ([]action, Machine) {
	s := l.sweep(status)
	switch {
	case none:
		return s.finish()
	case s.Orphans == LeaveAll && s.OrphansExit < 0:
		return s.ask() // nothing but lines and the report say what is alive, so that is what is alive now
	case s.Orphans == WaitAll && l.rung == running:
		return s.wait()
	}
	return s.start(now)
}

// sweep is the machine for what the main child has left behind. Its status may be unknown yet.
func (l *ladder) sweep(status *syscall.WaitStatus) *sweep {
	s := newSweep(l.Rules)
	s.main = l.main
	switch {
	case l.stopReason == TimedOut:
		s.result = Result{Code: exitTimedOut}
	case status != nil:
		s.result = ResultOf(*status)
	default:
		s.result, s.unknown = Result{Sig: syscall.SIGKILL}, true
	}
	if at, ok := l.sent[syscall.SIGTERM]; ok && l.Group {
		s.had = had{group: l.main, at: at}
	}
	return s
}

// howEnded is what a line says of a process that has ended.
func howEnded(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "was ended by " + signals.Name(status.Signal())
	}
	return fmt.Sprintf("ended with status %d", status.ExitStatus())
}
