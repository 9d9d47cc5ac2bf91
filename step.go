package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A machine decides what to do about events, in order, and which machine goes on: itself,
// another one, or none when the life is over. It makes no system call and reads no clock: now
// is the time since boot.
//
// A command goes through two machines: the ladder here, by which it is stopped, and the sweep,
// by which its leftovers are. The outer fini of a pair has the watch.
type machine interface {
	step(now time.Duration, e event) (do []action, next machine)

	// mayDelayReap reports whether ends of children other than the main child can wait.
	mayDelayReap() bool
}

// An event is what the loop has learnt.
type event any

type (
	received struct { // somebody sent fini a signal
		sig    syscall.Signal
		from   origin
		sender int // its pid, 0 if unknown
	}
	stop   struct{ why reason } // fini has a reason of its own
	unread struct{ bytes int }  // the answer to askStdin
	ended  struct {             // children were reaped
		exits  []reaper.Exit
		none   bool        // no child is left: the tree is empty
		hidden bool        // the main child has ended, but a tracer keeps it from being reaped
		told   reaper.Told // by the inner fini, if that is what has ended
		asked  bool        // the kernel has sent the command SIGTERM for that: the parent death signal
	}
	looked struct { // the answer to look
		found []orphans.Process
		err   error
	}
	swept struct { // the answer to kill
		hit, refused []int // pids: sent SIGKILL, and those that may not be
		err          error
	}
	told    struct{ reaper.Told } // by an inner fini that is isolated, or nothing: it ends
	elapsed struct{}              // the time asked for with wake has come
)

// An origin is who sent a signal.
type origin int

const (
	fromProcess origin = iota // outside of the tree
	fromTree                  // a process of the tree
	fromKernel                // as for a key of the terminal
)

// An action is what the loop has to do.
type action any

type (
	forward  struct{ sig syscall.Signal } // to the command
	relay    struct{ received }           // to the inner fini, with its sender
	watchAll struct{}                     // the parent process too, since the inner fini can't
	resume   struct{}                     // the job, by SIGCONT
	askStdin struct{}                     // how much is unread; answered by unread
	reap     struct{}                     // answered by ended
	look     struct{}                     // at the tree, after reaping; answered by looked
	remember struct{}                     // who has started whom, as long as that is to be seen
	send     struct {                     // to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill    struct{ childrenOnly bool }   // SIGKILL to the tree; answered by ended and swept
	wake    struct{ after time.Duration } // replaces the wake before
	hurry   struct{ after time.Duration } // the same, unless that one comes sooner
	because struct {                      // says what is being done to the command or its leftovers
		level level
		what  string
		why   reason
	}
	tell struct { // of a leftover: what is being done about it
		process orphans.Process
		what    string
		quietly bool // it is one of many
		asked   bool // it has had SIGTERM already
	}
	leave struct { // says that this one goes on living
		process orphans.Process
		quietly bool
	}
	say struct { // anything else
		level level
		text  string
	}
	exit struct {
		result  result
		stopped int // how many leftovers had to be
	}
)

// A result is how a process has ended: by a signal, or with an exit code if that is 0.
type result struct {
	sig  syscall.Signal
	code int
}

func resultOf(s syscall.WaitStatus) result {
	if s.Signaled() {
		return result{sig: s.Signal()}
	}
	return result{code: s.ExitStatus()}
}

// status is the result as a shell gives it.
func (r result) status() int {
	if r.sig != 0 {
		return 128 + int(r.sig)
	}
	return r.code
}

// waitStatus is the result as wait(2) gives it.
func (r result) waitStatus() syscall.WaitStatus { return syscall.WaitStatus(int(r.sig) | r.code<<8) }

// A reason is why fini stops a command of itself.
type reason int

const (
	noReason reason = iota
	parentDied
	finiDied   // the outer one of a pair
	boundEnded // --bind
	stdinClosed
	timedOut
	notEnded // --kill-after

	innerTold // no reason: it marks the descriptor by which an isolated inner fini tells. It is the last.
)

// overrules reports whether the reason overrides --orphans: whoever could want leftovers is gone.
func (r reason) overrules() bool { return r == parentDied || r == finiDied || r == boundEnded }

// rules are what the command line and the role say of a life.
type rules struct {
	grace, linger time.Duration
	killAfter     time.Duration  // 0 for off
	deathsig      syscall.Signal // the stop signal when the parent process has died
	orphans       string
	allow         bool // some leftovers are left alone: --allow-orphan
	orphansExit   int  // -1 for none
	remap         []int
	warnReaped    bool
	rewrite       map[syscall.Signal]syscall.Signal

	ignored []syscall.Signal // when fini started, and the command too: see asksForEnd

	self   int  // this process's pid
	seen   int  // the main child's pid as a user sees it, 0 for the same
	group  bool // what is forwarded goes to the main child's group, and not to it alone
	leader bool // of the session: a hang-up reaches fini alone
	job    int  // the job's process group, if the command is in it; 0 if it has one of its own

	// That group is orphaned, but for the inner fini of a pair: nobody would continue it. See setpgid(2).
	orphaned bool
}

// outsideJob, as rules.job, is a process group that has no number here: it is outside of the PID
// namespace.
const outsideJob = -1

// commandGroup is the process group of the command, as proc_pid_stat(5) has it.
func (r rules) commandGroup(main int) int {
	switch r.job {
	case 0:
		return main
	case outsideJob:
		return 0
	}
	return r.job
}

// The policies of --orphans.
const (
	stopAll   = "stop"
	stopPipes = "pipes"
	waitAll   = "wait"
	leaveAll  = "leave"
)

const (
	// How long fini waits once SIGKILL reaches nobody new. One that was killed may
	// have much memory to give back, or sit in uninterruptible sleep; one that may
	// not be signalled can only end by itself.
	killedBound  = 10 * time.Second
	refusedBound = 2 * time.Second

	// Who kills the parent process, or both processes of a pair, sends the same signal within
	// this long.
	sameEnd = time.Second
)

// A rung is where a ladder stands.
//
//	rung       what is so                           what leads to the next
//	running    the main child lives                 stdin's end: closing; another reason to
//	                                                stop, --kill-after: stopping
//	heeding    fini's parent process has died, and  --linger, another reason: stopping
//	           the command may heed the same key
//	closing    it can see the end of its stdin      --grace without a byte read, another
//	                                                reason, a signal to end: stopping
//	stopping   it has been sent a stop signal       --grace or --kill-after: ending
//	ending     it has been sent SIGKILL             it does not end: the sweep, asking
//
// On each rung the end of the main child leads to the sweep of what it left: lingering, or
// from running waiting under --orphans=wait. If no child is left, or under --orphans=leave,
// the life is over. Some reasons overrule every policy: see overrules.
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
	rules
	main int // the main child's pid

	rung       rung
	deadline   time.Duration // when the rung ends, as uptime
	leftUnread int           // bytes of stdin when last looked at

	stopReason reason // why the command is being stopped
	isStopped  bool   // the main child is stopped by a signal
	// the stop signal sent when the parent died; the next one of that kind is a duplicate
	expectedDuplicate syscall.Signal
	sent              map[syscall.Signal]time.Duration // when the main child was last sent one, as uptime
	interrupted       bool                             // SIGINT came
}

func newLadder(r rules, main int) *ladder {
	return &ladder{rules: r, main: main, sent: map[syscall.Signal]time.Duration{}}
}

func (l *ladder) mayDelayReap() bool { return true }

func (l *ladder) step(now time.Duration, e event) (do []action, next machine) {
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
	sig, rewritten := l.rewrite[e.sig]
	if !rewritten {
		sig = e.sig
	}
	l.interrupted = l.interrupted || e.sig == syscall.SIGINT && l.asksForEnd(e.sig)
	switch {
	case sig == 0, l.hasHad(e):
		return nil
	case e.sig == l.expectedDuplicate:
		// The group of a parent process that died was sent this signal too.
		l.expectedDuplicate = 0
		return nil
	case l.rung == ending: // it has been sent SIGKILL
		return nil
	}
	do = l.forward(now, sig)
	if !l.asksForEnd(e.sig) {
		return do
	}
	do = append(do, l.letGoOn(now)...)
	switch {
	case l.rung == closing: // the sender has climbed to the next rung
		do = append(do, l.endIn(now, l.grace)...)
	case l.rung == running && l.killAfter > 0:
		l.stopReason = notEnded
		do = append(do, l.endIn(now, l.killAfter)...)
	}
	return do
}

// hasHad reports whether a signal has reached the command by itself, since that is in the job
// to which it was sent.
func (l *ladder) hasHad(e received) bool {
	if l.job == 0 {
		return false
	}
	switch e.sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH:
		return e.from != fromProcess
	case syscall.SIGHUP, syscall.SIGCONT:
		return e.from == fromTree || e.from == fromKernel && !l.leader
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

// asksForEnd is the same for what fini is sent. The command may still ignore what was ignored when fini
// started, as a shell has it that runs it in the background: that is forwarded, and nothing more.
func (r rules) asksForEnd(sig syscall.Signal) bool {
	return asksForEnd(sig) && !slices.Contains(r.ignored, sig)
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
func (l *ladder) stop(now time.Duration, why reason) []action {
	if why.overrules() {
		l.orphans = stopAll
	}
	switch {
	case l.rung == running && why == stdinClosed:
		l.rung, l.deadline, l.leftUnread = closing, now, math.MaxInt
		return []action{because{detail, "waiting for the command", why}, askStdin{}}
	case l.rung == running && why == parentDied && l.job != 0 && l.linger > 0:
		// A key of the terminal that ended it has reached the command too, which ends by that and
		// needs no word of it.
		after := min(l.linger, sameEnd)
		l.rung, l.deadline = heeding, now+after
		return []action{wake{after}}
	case (l.rung == closing || l.rung == heeding) && why == stdinClosed,
		l.rung == stoppingRung && l.deadline <= now+l.grace,
		l.rung == ending:
		return nil
	}
	return l.climb(now, why)
}

// climb starts stopping the command with the signal that is for this reason.
func (l *ladder) climb(now time.Duration, why reason) []action {
	sig := syscall.SIGTERM
	if why.overrules() {
		sig = l.deathsig
		if !l.hadRecently(now, sig) {
			l.expectedDuplicate = sig
		}
	}
	return l.startStopping(now, why, sig)
}

// hadRecently reports whether the main child was sent sig for this very end: who killed
// the parent process may have sent fini the same a moment before.
func (l *ladder) hadRecently(now time.Duration, sig syscall.Signal) bool {
	at, ok := l.sent[sig]
	return ok && now-at <= max(l.grace, sameEnd)
}

// startStopping sends the stop signal, unless the main child has had it, and waits for
// its end.
func (l *ladder) startStopping(now time.Duration, why reason, sig syscall.Signal) []action {
	l.stopReason = why
	do := []action{because{warning, "stopping the command", why}, remember{}}
	if !l.hadRecently(now, sig) {
		do = append(do, l.forward(now, sig)...)
	}
	do = append(do, l.letGoOn(now)...)
	return append(do, l.endIn(now, l.grace)...)
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
		return l.startStopping(now, stdinClosed, syscall.SIGTERM)
	}
	l.leftUnread, l.deadline = bytes, now+l.grace
	return []action{wake{l.grace}}
}

func (l *ladder) ended(now time.Duration, e ended) (do []action, next machine) {
	do, status := sortExits(e.exits, l.main, l.warnReaped)
	for _, x := range e.exits {
		if x.Pid == l.main {
			do = append(do, l.changed(now, x.Status)...)
		}
	}
	switch {
	case status != nil:
		do = append(do, say{detail, fmt.Sprintf("command %d ended with status %d", cmp.Or(l.seen, l.main), resultOf(*status).status())})
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
			do = append(do, say{warning, fmt.Sprintf("reaped zombie %d (%s), which %s", x.Pid, x.Name, howEnded(x.Status))})
		}
	}
	return do, status
}

func (l *ladder) elapsed(now time.Duration) ([]action, machine) {
	switch {
	case l.rung == closing:
		return []action{askStdin{}}, l
	case l.rung == heeding && now >= l.deadline:
		return l.climb(now, parentDied), l
	case l.rung == stoppingRung && now >= l.deadline:
		l.rung = ending
		do := []action{l.killing()}
		do = append(do, l.forward(now, syscall.SIGKILL)...)
		return append(do, wake{killedBound}), l
	case l.rung == ending:
		// The main child has been sent SIGKILL and lives: it is a leftover like others,
		// which have not been asked yet.
		s := l.sweep(nil)
		s.policy, s.had.pid = stopAll, l.main
		return s.ask()
	}
	return nil, l
}

// killing says that the command is being killed, and by which flag it would have longer.
func (l *ladder) killing() action {
	if l.stopReason == notEnded {
		return because{warning, "killing the command", notEnded}
	}
	return say{warning, fmt.Sprintf("killing the command: it has not ended %v after the stop signal; --grace gives it longer", l.grace)}
}

// over is what follows the end of the main child.
func (l *ladder) over(now time.Duration, status *syscall.WaitStatus, none bool) ([]action, machine) {
	s := l.sweep(status)
	switch {
	case none || s.policy == leaveAll:
		return s.finish()
	case s.policy == waitAll && l.rung == running:
		return s.wait()
	}
	return s.start(now)
}

// sweep is the machine for what the main child has left behind. Its status may be unknown yet.
func (l *ladder) sweep(status *syscall.WaitStatus) *sweep {
	s := newSweep(l.rules)
	s.main, s.interrupted = l.main, l.interrupted
	switch {
	case l.stopReason == timedOut:
		s.result = result{code: exitTimedOut}
	case status != nil:
		s.result = resultOf(*status)
	default:
		s.result, s.unknown = result{sig: syscall.SIGKILL}, true
	}
	if at, ok := l.sent[syscall.SIGTERM]; ok && l.group {
		s.had = had{group: l.main, at: at}
	}
	return s
}

// paused is the machine of --pause: there is no command.
type paused struct{ warnReaped bool }

func (paused) mayDelayReap() bool { return true }

func (p paused) step(_ time.Duration, e event) (do []action, next machine) {
	switch e := e.(type) {
	case received:
		if e.sig == syscall.SIGTERM || e.sig == syscall.SIGINT {
			return []action{exit{}}, nil
		}
	case ended:
		do, _ = sortExits(e.exits, 0, p.warnReaped)
	}
	return do, p
}

// copies finds what came twice: a sender that means fini may send the same signal to both
// processes of a pair, and one of the two copies comes by way of the other process.
type copies struct {
	seen map[copyKey]time.Duration
}

type copyKey struct {
	sig     syscall.Signal
	sender  int
	relayed bool
}

// second reports whether a signal is the copy of one that came the other way.
func (c *copies) second(now time.Duration, sig syscall.Signal, sender int, relayed bool) bool {
	if sender == 0 {
		return false
	}
	if at, ok := c.seen[copyKey{sig, sender, !relayed}]; ok {
		delete(c.seen, copyKey{sig, sender, !relayed})
		if now-at <= sameEnd {
			return true
		}
	}
	if c.seen == nil || len(c.seen) > 100 { // most senders send one signal
		c.seen = map[copyKey]time.Duration{}
	}
	c.seen[copyKey{sig, sender, relayed}] = now
	return false
}
