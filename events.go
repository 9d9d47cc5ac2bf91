package main

// How the loop in main.go learns what has happened: it waits, takes in signals, and reaps.

import (
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// While the command runs, orphans that end within this time share a wake-up.
const reapDelay = 25 * time.Millisecond

// mainProcess is the command's first process.
type mainProcess struct {
	main       int  // its pid
	seen       int  // its pid, as a user sees it
	mainFD     int  // its pidfd; -1 for none, and once it is known to have ended
	mainGone   bool // mainFD has just become readable
	reaped     bool // its pid may be another's now
	wasStopped bool // it has been stopped by a signal
}

// alarms are the times at which the loop wakes up, as uptime; 0 is never.
type alarms struct {
	timeout time.Duration // when --timeout is over
	wake    time.Duration // when the machine wants to be woken
	reapAt  time.Duration // until then SIGCHLD is not caught
}

// wait sleeps until something has happened. It is where fini spends its life: one thread, in
// one system call.
func (l *loop) wait() {
	fds := append(l.fds[:0], l.bond.Fds...)
	if l.mainFD >= 0 {
		fds = append(fds, pdeath.Watch([]int{l.mainFD}, pdeath.Unwatched).Fds...)
	}
	l.fds = fds
	l.caught.Wait(l.next(), fds)

	for _, got := range l.caught.Take() {
		l.received(got)
	}
	for _, i := range l.bond.Ended(fds[:len(l.bond.Fds)]) {
		why := stdinClosed
		if i < len(l.bound) {
			why = l.bound[i].why
		}
		if why == finiDied && l.role.line.Told() {
			l.bond.Fds[i].Fd = int32(l.bound[i].fd) // its own end is still to come
			l.parentDied()
			continue
		}
		if i < len(l.bound) {
			l.bound[i].ended = true
		}
		if why == innerTold {
			l.innerTold(i)
			continue
		}
		l.queue = append(l.queue, stop{why})
	}
	if l.mainFD >= 0 && fds[len(fds)-1].Revents != 0 {
		l.mustReap, l.mainFD, l.mainGone = true, -1, true
	}
	now := signals.Uptime()
	if due(&l.timeout, now) {
		l.queue = append(l.queue, stop{timedOut})
	}
	if due(&l.wake, now) {
		l.queue = append(l.queue, elapsed{})
	}
	l.mustReap = l.mustReap || l.reapAt != 0 && l.reapAt <= now
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
func (l *loop) next() (first time.Duration) {
	for _, at := range []time.Duration{l.timeout, l.wake, l.reapAt} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// received takes in a signal.
func (l *loop) received(got signals.Received) {
	if got.Signal == syscall.SIGCHLD {
		l.mustReap = true
		return
	}
	if got.Signal == parentSignal && l.bySignal {
		if pdeath.Died(l.parent) {
			l.parentDied()
		}
		return // otherwise one thread of it has ended, which in gVisor is the sender by its own number
	}
	if l.role.rules.orphaned && got.Sender == l.role.rules.self {
		return // it has continued the job
	}
	now := signals.Uptime()
	sender := got.Sender
	if l.isolates() {
		var mine bool
		if sender, mine = l.acceptSignal(got); !mine {
			return
		}
	}
	if l.role.inner && l.copies.second(now, got.Signal, sender, got.Relayed) {
		return
	}
	l.report.signal(got)
	from := fromProcess
	switch {
	case got.Kernel:
		from = fromKernel
	case l.role.rules.job != 0 && !l.role.outer && !(l.outside != nil && got.Relayed) && l.ofTree(got.Sender):
		from = fromTree
	}
	l.queue = append(l.queue, received{got.Signal, from, got.Sender})
}

// parentDied takes in the end of a parent process of which there is no pidfd. The inner one of a pair, whose
// parent process is another, has it told by the outer one.
func (l *loop) parentDied() {
	if l.role.outer {
		l.role.line.ParentDied()
	}
	l.queue = append(l.queue, stop{parentDied})
}

// ofTree reports whether a process is of the tree. One that has been reaped can't be told.
func (l *loop) ofTree(pid int) bool {
	return pid > 0 && (pid == l.main || l.tree.Descends(pid))
}

// reap takes in the children that have ended, and rests for a while before it does so again, if
// that keeps nobody waiting.
func (l *loop) reap() {
	l.mustReap = false
	rest := l.mainFD >= 0 && l.machine.mayDelayReap() || l.main == 0
	e := l.collect()
	mainEnded := slices.ContainsFunc(e.exits, func(x reaper.Exit) bool { return x.Pid == l.main })
	if l.mainGone && !mainEnded && !e.none {
		// A tracer has not waited for it: the kernel gives it to nobody else. See ptrace(2).
		hidden := ended{hidden: true}
		l.mainEnded(&hidden)
		l.queue = append(l.queue, hidden)
	}
	l.mainGone = false
	switch {
	case rest && len(e.exits) > 0 && !mainEnded:
		if l.reapAt == 0 {
			l.caught.Children(false)
		}
		l.reapAt = signals.Uptime() + reapDelay
	case l.reapAt != 0:
		l.reapAt = 0
		l.caught.Children(true)
		l.mustReap = true // some may have ended before that
	}
}

// collect reaps, and queues what that tells.
func (l *loop) collect() (e ended) {
	var name func(int) string
	if l.role.rules.warnReaped {
		name = orphans.Name
	}
	e.exits, e.none = reaper.Reap(name)
	for _, x := range e.exits {
		if x.Ended() {
			l.tree.Reaped(x.Pid)
		}
	}
	e.none = e.none || l.tree.OnlyEarlier()
	l.report.reaped(e.exits, l.main)
	for _, x := range e.exits {
		if x.Pid == l.main && x.Status.Stopped() {
			l.wasStopped = true
		} else if x.Pid == l.main && !x.Status.Continued() && !l.reaped {
			l.mainEnded(&e)
		}
	}
	l.tellOfMemory(e.exits)
	if l.main == 0 {
		e.none = false // --pause goes on without a child
	}
	if len(e.exits) > 0 || e.none {
		l.queue = append(l.queue, e)
	}
	return e
}

// mainEnded adds what there is to know when the main child has ended.
func (l *loop) mainEnded(e *ended) {
	l.mainFD = -1
	l.reaped, l.kills.over = true, true
	if l.role.command.Terminal >= 0 {
		signals.TakeForeground() // for a Ctrl-C while leftovers end
	}
	if l.role.outer && !l.tookOver {
		e.told, _ = l.role.word.Told()
		if l.tookOver = !e.told.Done; l.tookOver {
			l.report.takeOver(e.told.Pid)
			l.tree.Allow(l.allow, e.told.Pid)
		}
		// The kernel sends no parent death signal to who has other credentials by then.
		same, known := l.tree.SameCredentials(e.told.Pid)
		e.asked = e.told.Pid != 0 && !e.told.Unbound && same && known
	}
}
