package main

// The methods of life.Kernel on the real kernel; those that only say something are in say.go.

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Now is the uptime.
func (l *loop) Now() time.Duration { return signals.Uptime() }

// Wait is where fini spends its life: one thread, in one system call.
func (l *loop) Wait(until time.Duration, main bool) (woken life.Woken) {
	fds := append(l.fds[:0], l.bond.Fds...)
	watched := l.mainFD
	if !main {
		watched, until = l.livingChild(until)
	}
	if watched >= 0 {
		fds = append(fds, pdeath.Watch([]int{watched}, pdeath.Unwatched).Fds...)
	}
	l.fds = fds
	l.caught.Wait(until, fds)

	for _, got := range l.caught.Take() {
		switch {
		case got.Signal == syscall.SIGCHLD:
			woken.Children = true
		case got.Signal == parentSignal && l.bySignal && pdeath.Died(l.parent):
			l.role.parentDied()
			woken.Stop = append(woken.Stop, life.ParentDied)
		case got.Signal == parentSignal && l.bySignal:
			// Only one thread of the parent process has ended. The sender does not tell: in gVisor it is
			// that thread, by a number of its own.
		default:
			if origin, mine := l.role.accepts(l, got); mine {
				woken.Signals = append(woken.Signals, life.Signal{Received: got, Origin: origin})
			}
		}
	}
	for _, i := range l.bond.Ended(fds[:len(l.bond.Fds)]) {
		if i == len(l.bound) {
			woken.Stop = append(woken.Stop, life.StdinClosed)
		} else {
			l.role.shows(l, i, &woken)
		}
	}
	ended := watched >= 0 && fds[len(fds)-1].Revents != 0
	woken.Main = main && ended
	woken.Children = woken.Children || ended || l.polls
	if !main && watched >= 0 {
		_ = unix.Close(watched)
	}
	return woken
}

// livingChild is a pidfd of a leftover, where the kernel may not tell of its end: by it the end of the last one is seen.
// -1 is for none; if there should be one, Wait takes a second at most.
func (l *loop) livingChild(until time.Duration) (pidfd int, _ time.Duration) {
	l.polls = false
	if l.ended == 0 {
		return -1, until
	}
	pidfd, needed := l.tree.LivingChild()
	if l.polls = needed && pidfd < 0; l.polls {
		if second := l.Now() + time.Second; until == 0 || until > second {
			until = second
		}
	}
	return pidfd, until
}

// CatchChildren makes SIGCHLD wake Wait, or not.
func (l *loop) CatchChildren(on bool) { l.caught.Children(on) }

// OfTree reports whether the sender of a signal is of the tree. A sender that has been reaped counts as
// outside.
func (l *loop) OfTree(pid int) bool { return l.role.ofTree(l, pid) }

func (l *loop) ofTree(pid int) bool {
	return pid > 0 && (pid == l.main || l.tree.Descends(pid))
}

// Received takes note of a signal.
func (l *loop) Received(got signals.Received) { l.report.Signal(got) }

// Unread is how much of standard input the command has not read.
func (l *loop) Unread() int { return pdeath.Unread() }

// Reap reaps, and takes note of what that tells.
func (l *loop) Reap() (exits []reaper.Exit, none bool) {
	var name func(int) string
	if l.role.common().rules.WarnReaped {
		name = orphans.Name
	}
	exits, none = reaper.Reap(name)
	for _, x := range exits {
		if x.Ended() {
			l.tree.Reaped(x.Pid)
			l.kills.Over = l.kills.Over || x.Pid == l.main
		}
	}
	l.report.Reaped(exits, l.main)
	l.tellOfMemory(exits)
	return exits, none || l.tree.OnlyEarlier()
}

// MainEnded takes note of the end of the main child.
func (l *loop) MainEnded() (told reaper.Told, asked bool) {
	l.kills.Over = true
	l.ended = l.Now()
	if l.role.common().command.Terminal >= 0 {
		signals.TakeForeground() // for a Ctrl-C while leftovers end
	}
	return l.role.mainEnded(l)
}

// Look finds the live tree.
func (l *loop) Look() (orphans.View, error) {
	view, err := l.tree.Look()
	l.found = view.Found
	l.owners.Remember(view.Found)
	return view, err
}

// Remember notes who has started whom, as long as that is to be seen.
func (l *loop) Remember() {
	if view, err := l.tree.Look(); err == nil {
		l.owners.Remember(view.Found)
	}
}

// Forward sends a signal to the command.
func (l *loop) Forward(sig syscall.Signal, group bool) {
	l.sayf(life.Detail, "sending %s to the command", signals.Name(sig))
	l.kills.Sent(sig, group, l.main)
	if group {
		l.failed(signals.ToGroup(l.main, sig))
	} else {
		l.failed(signals.To(l.main, sig))
	}
}

// Relay sends a signal on to the inner fini.
func (l *loop) Relay(got signals.Received) { l.failed(signals.Relay(l.main, got)) }

// ContinueJob continues the job.
func (l *loop) ContinueJob() { l.failed(signals.ContinueJob()) }

// WatchAll also watches what the inner fini watches, which can't act on it while it is stopped.
func (l *loop) WatchAll() {
	l.watch(slices.Concat(l.role.common().watch, l.role.whileInnerIsStopped()), pdeath.Unwatched)
}

// Send sends a signal to a leftover.
func (l *loop) Send(to orphans.Process, sig syscall.Signal) {
	l.report.Sent(to.Pid, sig)
	l.kills.Sent(sig, false, to.Pid)
	l.failed(l.tree.Signal(to, sig))
}

// Kill sends SIGKILL to the children, or to the whole tree.
func (l *loop) Kill(childrenOnly bool) (hit, refused []int, err error) {
	round := l.tree.Kill
	if childrenOnly {
		round = l.tree.KillChildren
	}
	hit, refused, err = round()
	l.kills.Sent(syscall.SIGKILL, os.Getpid() == 1, hit...) // PID 1 may have hit others too
	for _, pid := range hit {
		l.report.Sent(pid, syscall.SIGKILL)
	}
	return hit, refused, err
}

// Exit says what is to be said at the end, and tells the outer fini.
func (l *loop) Exit(end life.End) (stays bool) {
	l.close(end)
	return l.role.exit(l, end)
}

// failed says what could not be done.
func (l *loop) failed(err error) {
	if err != nil {
		l.sayf(life.Failure, "%v", err)
	}
}

// tellOfMemory says that the kernel may have killed processes for want of memory: those that were ended by a
// SIGKILL which fini has not sent.
func (l *loop) tellOfMemory(exits []reaper.Exit) {
	for _, x := range l.kills.Others(exits, l.main) {
		n, err := l.memory.KilledSince()
		if err != nil {
			l.report.OOM(x.Pid, l.main, "unknown", err.Error())
			continue
		}
		if n == 0 {
			continue
		}
		count := "a process"
		if n > 1 {
			count = fmt.Sprintf("%d processes", n)
		}
		l.report.OOM(x.Pid, l.main, "likely", fmt.Sprintf("oom_kill in %s rose by %d", l.memory.File, n))
		if l.toldOfMemory++; l.toldOfMemory > life.MaxTold {
			continue
		}
		who := fmt.Sprintf("leftover %d was ended by SIGKILL", x.Pid)
		switch {
		case x.Pid == l.main && x.Status.Exited():
			who = "the command exited with 137, as for SIGKILL"
		case x.Pid == l.main:
			who = "the command was ended by SIGKILL"
		}
		l.sayf(life.Warning, "%s; the kernel killed %s for memory in this cgroup (oom: likely)", who, count)
	}
}
