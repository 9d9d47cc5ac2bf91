package main

// The methods of life.Kernel on the real kernel. The methods that only write a message are in say.go.

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Now is the uptime.
func (l *loop) Now() time.Duration { return signals.Uptime() }

// Wait is where fini spends its life: one thread, in one system call.
func (l *loop) Wait(until time.Duration, main bool) (woken life.Woken) {
	fds := l.fds[:0]
	for _, b := range l.bonds {
		fds = append(fds, unix.PollFd{Fd: int32(b.fd), Events: b.events})
	}
	child := l.mainFD
	if !main {
		child, until = l.livingChild(until)
	}
	fds = append(fds, unix.PollFd{Fd: int32(child), Events: unix.POLLIN})
	l.fds = fds
	early := l.early
	l.early = nil
	if len(early) > 0 {
		until = 1 // an uptime that is past
	}
	l.caught.Wait(until, fds)

	for i, got := range append(early, l.caught.Take()...) {
		switch {
		case got.Signal == syscall.SIGCHLD:
			woken.Children = true
		case l.line.FD >= 0 && i < len(early): // it was for the outer fini's group, which the inner fini has left since
		case l.line.FD >= 0:
			l.notForInner(got)
		case got.Signal == parentSignal && l.bySignal && pdeath.Died(l.parentPid()):
			woken.Stop = append(woken.Stop, life.ParentDied)
		case got.Signal == parentSignal && l.bySignal:
			// Only one thread of the parent process has exited, not the process. The signal's sender does not tell one
			// from the other: in gVisor the sender is the thread that exited, by its thread ID.
		default:
			// The SIGINT of a Ctrl-C may have come before the main child was there to get it too. So an early signal is
			// forwarded like a signal from a process, and the main child may get it twice.
			got.Kernel = got.Kernel && i >= len(early)
			woken.Signals = append(woken.Signals, got)
		}
	}
	for i := range l.bonds {
		if b := &l.bonds[i]; fds[i].Revents != 0 && (b.why != life.FiniDied || !l.heard(&woken)) {
			b.fd, b.ended = -1, true // poll passes over it from now on
			woken.Stop = append(woken.Stop, b.why)
		}
	}
	for _, got := range woken.Signals {
		l.report.Signal(got)
	}
	ended := fds[len(fds)-1].Revents != 0
	woken.Main = main && ended
	woken.Children = woken.Children || ended || l.polls
	if !main && child >= 0 {
		_ = unix.Close(child)
	}
	return woken
}

// heard adds the messages of the outer fini, and reports whether the outer fini is still alive.
func (l *loop) heard(woken *life.Woken) bool {
	messages, open := l.line.Receive()
	for _, m := range messages {
		switch {
		case m.Kind == entry.ParentDied && l.bySignal:
			woken.Stop = append(woken.Stop, life.ParentDied)
		case m.Kind == entry.Signal:
			got := signals.Received{Signal: syscall.Signal(m.Value), Sender: int(m.Sender), Kernel: m.Flags&entry.FromKernel != 0}
			if l.isolated {
				got.Sender = 0 // here that pid is another process
			}
			if signals.Catchable(got.Signal) && !got.Own(0) {
				woken.Signals = append(woken.Signals, got)
			}
		}
	}
	return open
}

// notForInner says, once, that the inner fini takes signals from the outer fini only. So a signal for a whole cgroup or
// session, or for every process of this name, reaches the command once.
func (l *loop) notForInner(got signals.Received) {
	if got.Kernel || l.refusedOther {
		return
	}
	l.refusedOther = true
	outer, _, _ := entry.Outer()
	sender := ""
	if name := orphans.Name(got.Sender); got.Sender != 0 {
		sender = fmt.Sprintf(" from %d (%s)", got.Sender, report.OneLine(name, 16))
	}
	l.sayf(life.Warning, "dropped %s%s: fini takes signals by its other process, %d", signals.Name(got.Signal), sender, outer)
}

// parentPid is the pid of the parent process that is watched.
func (l *loop) parentPid() int {
	i := slices.IndexFunc(l.bonds, func(b bond) bool { return b.why == life.ParentDied })
	return l.bonds[i].pid
}

// livingChild returns a pidfd of a leftover, so that Wait returns when that leftover exits. It returns -1 if the kernel
// reports every exit of a child, as before Linux 7.1: see LivingChild in package orphans. It also returns -1 before the
// main child has exited. If a pidfd is needed and there is none, Wait returns after at most a second.
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

// OfTree reports whether the sender of a signal belongs to the tree. A leftover that has been reaped counts as outside;
// the main child counts as inside even then.
func (l *loop) OfTree(pid int) bool {
	return pid > 0 && (pid == l.main || l.tree.Descends(pid))
}

// Unread returns how much of standard input the command has not read, if fini watches standard input.
func (l *loop) Unread() int {
	if l.stdin != pdeath.Open {
		return 0
	}
	return pdeath.Unread()
}

// Reap reaps, and records the exits.
func (l *loop) Reap() (exits []reaper.Exit, none bool) {
	var name func(int) string
	if l.rules.WarnReaped {
		name = orphans.Name
	}
	exits, none = reaper.Reap(name)
	for _, x := range exits {
		if x.Ended() {
			l.tree.Reaped(x.Pid)
			l.kills.Over = l.kills.Over || x.Pid == l.main
		}
	}
	l.report.Reaped(exits)
	l.tellOfMemory(exits)
	return exits, none || l.tree.OnlyEarlier()
}

// MainEnded records the exit of the main child.
func (l *loop) MainEnded() {
	l.kills.Over = true
	l.ended = l.Now()
	if l.terminal >= 0 {
		signals.TakeForeground() // for a Ctrl-C while leftovers exit
	}
}

// Look finds the live tree.
func (l *loop) Look() (orphans.View, error) {
	view, err := l.tree.Look()
	l.owners.Remember(view.Found)
	return view, err
}

// Forward sends a signal to the command.
func (l *loop) Forward(sig syscall.Signal, group bool) {
	l.sayf(life.Detail, "sending %s to the command", signals.Name(sig))
	l.kills.Sent(sig, group, l.main)
	send := signals.To
	if group {
		send = signals.ToGroup
	}
	l.failed(send(l.main, sig))
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
	l.kills.Sent(syscall.SIGKILL, os.Getpid() == 1, hit...) // PID 1 may have hit other processes too
	for _, pid := range hit {
		l.report.Sent(pid, syscall.SIGKILL)
	}
	return hit, refused, err
}

// Exit writes the last messages, and tells the outer fini the result.
func (l *loop) Exit(end life.End) {
	l.close(end)
	if l.line.FD < 0 {
		return
	}
	l.line.Done(end.WaitStatus())
	// If the outer fini is in the job, it may have been suspended with the command. If the outer fini had been killed,
	// this process would have another parent by now. The message Done of an isolated inner fini makes the kernel
	// continue the outer fini: see prepareIsolation in package entry.
	if outer, _, _ := entry.Outer(); end.WasStopped && l.rules.Job != 0 && os.Getppid() == outer {
		l.failed(signals.To(outer, syscall.SIGCONT))
	}
}

// failed writes the error of something that fini could not do.
func (l *loop) failed(err error) {
	if err != nil {
		l.sayf(life.Failure, "%v", err)
	}
}

// tellOfMemory says that the kernel may have killed processes for want of memory: the processes that died by a SIGKILL
// which fini has not sent.
func (l *loop) tellOfMemory(exits []reaper.Exit) {
	for _, x := range l.kills.Others(exits, l.main) {
		n, err := l.memory.KilledSince()
		if err != nil {
			l.report.OOM(x.Pid, "unknown", err.Error())
			continue
		}
		if n == 0 {
			continue
		}
		l.report.OOM(x.Pid, "likely", fmt.Sprintf("oom_kill in %s rose by %d", l.memory.File, n))
		if l.toldOfMemory++; l.toldOfMemory > life.MaxNamed {
			continue
		}
		who := fmt.Sprintf("leftover %d was killed by SIGKILL", x.Pid)
		switch {
		case x.Pid == l.main && x.Status.Exited():
			who = "the command exited with 137, as for SIGKILL"
		case x.Pid == l.main:
			who = "the command was killed by SIGKILL"
		}
		l.sayf(life.Warning, "%s; the kernel killed a process for memory in this cgroup (oom: likely)", who)
	}
}
