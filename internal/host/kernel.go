package host

// The methods of life.Kernel on the real kernel. The methods that only write a message are in say.go.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Now is the uptime.
func (k *kernel) Now() time.Duration { return proc.Uptime() }

// Wait is where fini spends its life: one thread, in one system call. If fini may not see a child's exit, Wait returns
// after at most a second.
func (k *kernel) Wait(until time.Duration, main bool) (woken life.Woken) {
	fds := k.fds[:0]
	for _, b := range k.bonds {
		fds = append(fds, unix.PollFd{Fd: int32(b.fd), Events: b.events})
	}
	child, blind := k.mainFD, k.cannotReap
	if !main {
		var needed bool
		child, needed = k.livingChild()
		blind = blind || needed && child < 0
	}
	if second := k.Now() + time.Second; blind && (until == 0 || until > second) {
		until = second
	}
	fds = append(fds, unix.PollFd{Fd: int32(child), Events: unix.POLLIN})
	k.fds = fds
	early := k.early
	k.early = nil
	if len(early) > 0 {
		until = 1 // an uptime that is past
	}
	if main && k.rest > 0 {
		k.caught.Rest(k.rest, fds)
	} else {
		k.caught.Wait(until, fds)
	}

	for i, got := range append(early, k.caught.Take()...) {
		switch {
		case got.Signal == syscall.SIGCHLD: // the loop reaps whatever has woken it
		case got.Signal != parentSignal || !k.bySignal || k.line.FD >= 0:
			woken.Signals = append(woken.Signals, k.signal(got, i < len(early), false))
		case k.self.Parent.Died() && (k.self.Parent.Pid != 0 || got.Sender == 0):
			// fini can't ask about a parent process outside of the PID namespace, but such a process is the only one
			// without a pid here.
			woken.Stop = append(woken.Stop, life.ParentDied)
			if signals.Catchable(k.kept.Signal) {
				woken.Signals = append(woken.Signals, life.Signal{Received: k.kept})
			}
		default:
			// Only one thread of the parent process has exited, not the process. The signal's sender does not tell one
			// from the other: in gVisor the sender is the thread that exited, by its thread ID.
		}
	}
	for i := range k.bonds {
		if b := &k.bonds[i]; fds[i].Revents != 0 && (b.why != life.FiniDied || !k.heard(&woken)) {
			b.fd, b.ended = -1, true // poll passes over it from now on
			woken.Stop = append(woken.Stop, b.why)
		}
	}
	woken.Main = main && fds[len(fds)-1].Revents != 0
	if !main && child >= 0 {
		_ = unix.Close(child)
	}
	return woken
}

// heard adds the messages of the outer fini, and reports whether the outer fini is still alive.
func (k *kernel) heard(woken *life.Woken) bool {
	messages, open := k.line.Receive()
	for _, m := range messages {
		switch {
		case m.Kind == entry.ParentDied && k.bySignal:
			woken.Stop = append(woken.Stop, life.ParentDied)
		case m.Kind == entry.Signal:
			got := signals.Received{Signal: syscall.Signal(m.Value), Sender: max(int(m.Sender), 0), Parent: int(m.Parent), Kernel: m.Sender == entry.Kernel}
			if signals.Catchable(got.Signal) && !got.Own(0) {
				woken.Signals = append(woken.Signals, k.signal(got, false, true))
			}
		}
	}
	return open
}

// signal adds to a signal what is known of its sender. A sender that has been reaped belongs to the tree if its parent is
// known and belongs to it.
func (k *kernel) signal(got signals.Received, early, relayed bool) life.Signal {
	s := life.Signal{Received: got, Early: early, Relayed: relayed}
	if k.rules.Job == 0 || got.Sender <= 0 {
		return s
	}
	if !relayed {
		s.Parent = proc.ParentOf(got.Sender) // at once, before it is reaped
	}
	s.OfTree = k.tree.Descends(s.Sender) || s.Parent > 0 && k.tree.Descends(s.Parent)
	return s
}

// Taken records a signal for the report.
func (k *kernel) Taken(got life.Signal) { k.report.Signal(got.Received) }

// Dropped says that the inner fini takes signals only from the outer fini. That is no warning, because whoever signals
// all processes, as by kill -- -1, has reached the outer fini too. A pause as
// PID 1 warns, once, that it takes signals only from outside.
func (k *kernel) Dropped(got life.Signal) {
	sender := ""
	if name := proc.Name(got.Sender); got.Sender != 0 {
		sender = fmt.Sprintf(" from %d (%s)", got.Sender, report.OneLine(cmp.Or(name, "?"), 16))
	}
	if k.rules.Initial {
		k.Sayf(life.Normal, "ignored %s%s: only a process outside of this PID namespace can end the pause, as docker stop does", signals.Name(got.Signal), sender)
		return
	}
	k.Sayf(life.Detail, "dropped %s%s: fini takes signals by its other process, %d", signals.Name(got.Signal), sender, k.self.Pid)
}

// livingChild returns a pidfd of a leftover, so that Wait returns when that leftover exits. It returns -1 if the kernel
// reports every exit of a child, as before Linux 7.1: see LivingChild in package orphans. It also returns -1 before the
// main child has exited.
func (k *kernel) livingChild() (pidfd int, needed bool) {
	if k.ended == 0 {
		return -1, false
	}
	return k.tree.LivingChild()
}

// ParentDies reports whether the parent process, if that is watched, is dead or dying.
func (k *kernel) ParentDies() bool {
	return slices.ContainsFunc(k.bonds, func(b bond) bool { return b.why == life.ParentDied && (b.ended || pdeath.Dying(b.pid)) })
}

// Unread returns how much of standard input the command has not read, if fini watches standard input.
func (k *kernel) Unread() int {
	if k.stdin != pdeath.Open {
		return 0
	}
	return pdeath.Unread()
}

// Traffic returns what the processes that hold standard input have read and written.
func (k *kernel) Traffic() (orphans.Traffic, error) { return k.tree.Traffic() }

// Reap reaps.
func (k *kernel) Reap() (exits []reaper.Exit, none bool) {
	var name func(int) string
	if k.rules.WarnReaped {
		name = proc.Name
	}
	exits, none, err := reaper.Reap(name)
	if err != nil && !k.cannotReap {
		k.cannotReap = true
		k.failed(err)
	}
	k.restAfter(len(exits))
	for _, x := range exits {
		if x.Ended() {
			k.tree.Reaped(x.Pid)
		}
	}
	none = none || k.tree.OnlyEarlier()
	return exits, none && (k.ended == 0 || !k.tree.HasEntrants()) // which nobody asks for before the end of a pause
}

// restAfter decides whether Wait rests, and how long, after n children were reaped at once. A zombie counts against the
// limits that the command's forks are subject to. So a rest lasts at most a millisecond, and ends when about three
// zombies have gathered.
func (k *kernel) restAfter(n int) {
	const first, longest, often, few = 200 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 3
	now := k.Now()
	switch soon := now-k.lastExit < often; {
	case !soon:
		k.rest = 0
	case k.rest == 0 && n > 0:
		k.rest = first
	default:
		k.rest = min(k.rest*few/time.Duration(max(n, 1)), longest)
	}
	if n > 0 {
		k.lastExit = now
	}
}

// MainEnded records the exit of the main child.
func (k *kernel) MainEnded() {
	k.ended = k.Now()
	if k.terminal >= 0 {
		takeForeground() // for a Ctrl-C while leftovers exit
	}
}

// Look finds the live tree.
func (k *kernel) Look() (orphans.View, error) {
	view, err := k.tree.Look()
	k.owners.Remember(view.Found)
	return view, err
}

// IncludeEarlier makes Reap and Look count the children from before fini.
func (k *kernel) IncludeEarlier() { k.tree.IncludeEarlier() }

// Survey reads what the tree is doing, for the report and, if named, for up to ten lines.
func (k *kernel) Survey(why life.Reason, named bool) {
	if named {
		k.outOfTime = why
	}
	if named = named && k.Threshold >= life.Normal; !named && !k.report.Lists() {
		return
	}
	seen, more, err := k.tree.Survey(report.MaxRunning, report.HintNames())
	if err != nil {
		return // the leftovers can't be found either, and fini will say so
	}
	k.report.Running(seen, more, k.owners)
	if !named {
		return
	}
	room := min(cmp.Or(terminalWidth(), report.MaxLine), report.MaxLine) - len("fini: still running ")
	for _, text := range k.report.StillRunning(room) {
		k.Sayf(life.Normal, "still running %s", text)
	}
}

// Forward sends a signal to the command.
func (k *kernel) Forward(main int, sig syscall.Signal, group bool) {
	k.Sayf(life.Detail, "sending %s to the command", signals.Name(sig))
	send := signals.To
	if group {
		send = signals.ToGroup
	}
	err := send(main, sig)
	if errors.Is(err, unix.EPERM) && k.mainFD >= 0 && unix.PidfdSendSignal(k.mainFD, sig, nil, 0) == nil {
		err = nil // a filter refuses kill(2)
	}
	k.failed(err)
}

// Send sends a signal to a leftover. Only the first process that fini may not signal is worth a line: the last line of a
// life names all that are left.
func (k *kernel) Send(to orphans.Process, sig syscall.Signal) (may bool) {
	err := k.tree.Signal(to, sig)
	if may = !errors.Is(err, unix.EPERM); may || !k.saidRefused {
		k.failed(err)
	}
	k.saidRefused = k.saidRefused || !may
	return may
}

// Kill sends SIGKILL to the children, or to the whole tree.
func (k *kernel) Kill(childrenOnly bool) (hit, refused []int, err error) {
	if childrenOnly {
		return k.tree.KillChildren()
	}
	return k.tree.Kill()
}

// Exit writes the last messages, and tells the outer fini the result.
func (k *kernel) Exit(end life.End) {
	done := func() {
		if k.line.FD >= 0 {
			k.line.Done(end.WaitStatus())
		}
	}
	// If this process is killed while it writes to a stream, the reader has a part of the report, and no heir may write
	// all of it behind that part. A file is written anew.
	if slices.ContainsFunc(k.report.To, report.Place.IsStream) {
		done()
		k.close(end)
	} else {
		k.close(end)
		done()
	}
	if k.line.FD < 0 {
		return
	}
	// If the outer fini is in the job, it may have been suspended with the command, which need not have noticed: it may
	// ignore SIGTSTP, or have been killed before this process could see its suspension. If the outer fini had been
	// killed, this process would have another parent by now.
	if k.rules.Job != 0 && os.Getppid() == k.self.Pid {
		k.failed(signals.To(k.self.Pid, syscall.SIGCONT))
	}
}

// failed writes the error of something that fini could not do.
func (k *kernel) failed(err error) {
	if err != nil {
		k.Sayf(life.Always, "%v", err)
	}
}

// Exited records an exit for the report. If SIGKILL of others has killed the process, Exited warns that it may be because
// memory ran out.
func (k *kernel) Exited(x reaper.Exit, killed bool) {
	k.report.Reaped(x)
	if !killed {
		return
	}
	n, err := k.memory.KilledSince()
	if err != nil {
		k.report.OOM(x.Pid, "unknown", err.Error())
		return
	}
	if n == 0 {
		return
	}
	k.report.OOM(x.Pid, "likely", fmt.Sprintf("oom_kill in %s rose by %d", k.memory.File, n))
	if k.toldOfMemory++; k.toldOfMemory > life.MaxNamed {
		return
	}
	who := fmt.Sprintf("leftover %d was killed by SIGKILL", x.Pid)
	switch {
	case x.Pid == k.report.Pid && x.Status.Exited():
		who = "the command exited with 137, as for SIGKILL"
	case x.Pid == k.report.Pid:
		who = "the command was killed by SIGKILL"
	}
	k.Sayf(life.Normal, "%s; the kernel killed a process for memory in this cgroup (oom: likely)", who)
}
