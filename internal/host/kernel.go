package host

// This file contains the methods of life.Kernel, except for those that only write messages. See say.go.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Now returns the uptime.
func (k *system) Now() time.Duration { return calls.Uptime() }

// soon is how long after a child's exit another one is expected.
const soon = 50 * time.Millisecond

// Wait blocks until something happens, in a single poll of a single thread. It returns after a second at most if an
// exit might go unnoticed (see blind).
func (k *system) Wait(until time.Duration, main bool) (woken life.Woken) {
	fds := k.fds[:0]
	for _, b := range k.bonds {
		fds = append(fds, unix.PollFd{Fd: int32(b.fd), Events: b.events})
	}
	child := -1 // poll passes over it
	if main {
		child = k.mainFD
	}
	fds = append(fds, unix.PollFd{Fd: int32(child), Events: unix.POLLIN})
	if second := k.Now() + time.Second; k.blind() && (until == 0 || until > second) {
		until = second
	}
	k.fds = fds
	early := k.early
	k.early = nil
	if len(early) > 0 {
		until = 1 // an uptime in the past
	}
	if left := k.lastExit + soon - k.Now(); k.lastExit > 0 && left > 0 {
		k.caught.WaitBriefly(until, left, fds)
	} else {
		k.caught.Wait(until, fds)
	}

	for i, got := range append(early, k.caught.Take()...) {
		switch {
		case got.Signal == syscall.SIGCHLD: // the loop reaps after every Wait anyway
		case got.Signal != syscall.Signal(entry.ParentSignal) || !k.bySignal || k.socket.FD >= 0:
			woken.Signals = append(woken.Signals, k.signal(got, i < len(early), false))
		case k.self.Parent.MayTell(entry.ParentSignal, got.Sender) && k.self.Parent.Died():
			woken.Stop = append(woken.Stop, life.ParentDied)
			if kept := syscall.Signal(k.self.Parent.Kept); signals.Catchable(kept) {
				woken.Signals = append(woken.Signals, life.Signal{Received: signals.Received{Signal: kept}})
			}
		default:
			// Either somebody else sent it, or only a thread of the parent process has exited. The sender's pid can't tell
			// these cases apart, because in gVisor it is always a thread ID.
		}
	}
	for i := range k.bonds {
		if b := &k.bonds[i]; fds[i].Revents != 0 && (b.why != life.FiniDied || !k.heard(&woken)) {
			b.fd = -1 // poll(2) ignores negative descriptors
			woken.Stop = append(woken.Stop, b.why)
		}
	}
	woken.Main = main && fds[len(fds)-1].Revents != 0
	return woken
}

// heard processes messages from the outer fini, and reports whether the outer fini is still alive.
func (k *system) heard(woken *life.Woken) bool {
	messages, open := k.socket.Receive()
	for _, m := range messages {
		switch {
		case m.Kind == entry.ParentDied && k.bySignal:
			woken.Stop = append(woken.Stop, life.ParentDied)
		case m.Kind == entry.Signal:
			got := signals.Received{Signal: syscall.Signal(m.Value), Sender: max(int(m.Sender), 0), Parent: int(m.Parent),
				FromKernel: m.Sender == entry.FromKernel}
			if signals.Catchable(got.Signal) && !got.Own(0) {
				woken.Signals = append(woken.Signals, k.signal(got, false, true))
			}
		}
	}
	return open
}

// signal converts a received signal, and finds out whether its sender belongs to the tree. If the sender has been
// reaped already, its parent decides.
func (k *system) signal(got signals.Received, early, relayed bool) life.Signal {
	s := life.Signal{Received: got, Early: early, Relayed: relayed}
	if k.rules.Job == life.NoJob || got.Sender <= 0 {
		return s
	}
	if !relayed {
		s.Parent = proc.ParentOf(got.Sender) // as soon as possible, because it may be reaped
	}
	s.OfTree = k.tree.Descends(s.Sender) || s.Parent > 0 && k.tree.Descends(s.Parent)
	return s
}

// RecordSignal adds a signal to the report.
func (k *system) RecordSignal(got life.Signal) { k.report.AddSignal(got.Received) }

// WarnIgnored writes a message about a signal that fini ignores. An inner fini ignores signals from any process but the
// outer fini. That is not worth a warning, because "kill -- -1", for example, signals the outer fini too. With --pause,
// PID 1 ignores signals from inside the container, and says so once.
func (k *system) WarnIgnored(got life.Signal) {
	sender := ""
	if name := proc.Name(got.Sender); got.Sender != 0 {
		sender = fmt.Sprintf(" from %d (%s)", got.Sender, report.OneLine(cmp.Or(name, "?"), 16))
	}
	if k.rules.Initial {
		k.Sayf(life.Normal, "ignored %s%s: only a process outside of this PID namespace can end the pause, as docker "+
			"stop does", signals.Name(got.Signal), sender)
		return
	}
	k.Sayf(life.Detail, "dropped %s%s: send signals to the other process of fini, %d", signals.Name(got.Signal), sender,
		k.self.Pid)
}

// blind reports whether a leftover may exit without SIGCHLD for fini. Since Linux 7.1, the kernel itself may reap it
// (see CLONE_AUTOREAP in clone3(2)). A process that has entered the PID namespace with setns(2) is not a child of fini
// at all.
func (k *system) blind() bool { return k.ended != 0 && (k.tree.Entrants || proc.Autoreap()) }

// Unread returns how many bytes of standard input the command has not read yet, if fini watches standard input.
func (k *system) Unread() int {
	if !k.watchesStdin() {
		return 0
	}
	n, _ := unix.IoctlGetInt(0, unix.TIOCINQ) // see ioctl_tty(2)
	return n
}

func (k *system) watchesStdin() bool { return k.stdin.FD >= 0 }

// Traffic returns how much has been read and written by the processes that hold standard input open.
func (k *system) Traffic() (orphans.Traffic, error) { return k.tree.Traffic() }

// Reap reaps all children that have exited. It also reports whether there are no other children.
func (k *system) Reap() (exits []reaper.Exit, none bool) {
	var name func(int) string
	if k.rules.WarnReaped {
		name = proc.Name
	}
	exits, none, _ = reaper.Reap(name) // wait4(2) is not refused: see prepare
	if len(exits) > 0 {
		k.lastExit = k.Now()
	}
	for _, x := range exits {
		if x.Ended() {
			k.tree.Reaped(x.Pid)
		}
	}
	none = none || k.tree.OnlyInherited()
	// only a pause has entrants, and only its end asks for them
	return exits, none && (k.ended == 0 || !k.tree.HasEntrants())
}

// RecordMainEnd records when the main child exited.
func (k *system) RecordMainEnd() {
	k.ended = k.Now()
	if k.terminal >= 0 {
		takeForeground() // so that fini receives the SIGINT of Ctrl-C while leftovers exit
	}
}

// Look returns the processes of the tree that are alive.
func (k *system) Look() orphans.View {
	view := k.tree.Look()
	k.owners.Remember(view.Found)
	return view
}

// Children returns the children of this process, without those that it had before it executed fini.
func (k *system) Children() ([]int, error) { return k.tree.NewChildren() }

// IncludeInherited makes Reap and Look include the children that this process had before it executed fini.
func (k *system) IncludeInherited() { k.tree.IncludeInherited() }

// Survey records what the processes of the tree are doing, for the report. If named is true, it writes messages about
// up to ten of them.
func (k *system) Survey(named bool) {
	if named = named && k.Threshold >= life.Normal; !named && !k.report.Lists() {
		return
	}
	seen, more := k.tree.Survey(report.MaxRunning, report.HintNames())
	k.report.SetRunning(seen, more, k.owners)
	if !named {
		return
	}
	room := min(cmp.Or(terminalWidth(), report.MaxLine), report.MaxLine) - len("fini: still running ")
	for _, text := range k.report.StillRunning(room) {
		k.Sayf(life.Normal, "still running %s", text)
	}
}

// SignalCommand sends a signal to the command or, if group is true, to its process group.
func (k *system) SignalCommand(main int, sig syscall.Signal, group bool) {
	k.Sayf(life.Detail, "sending %s to the command", signals.Name(sig))
	send := signals.To
	if group {
		send = signals.ToGroup
	}
	err := send(main, sig)
	if errors.Is(err, unix.EPERM) && k.mainFD >= 0 && unix.PidfdSendSignal(k.mainFD, sig, nil, 0) == nil {
		err = nil // kill(2) is refused by a seccomp filter
	}
	k.failed(err)
}

// SignalLeftover sends a signal to a leftover. It writes a message only about the first one that fini may not signal,
// because the last message of a life names all of them.
func (k *system) SignalLeftover(to orphans.Process, sig syscall.Signal) (may bool) {
	err := k.tree.Signal(to, sig)
	if may = !errors.Is(err, unix.EPERM); may || !k.saidRefused {
		k.failed(err)
	}
	k.saidRefused = k.saidRefused || !may
	return may
}

// Kill sends SIGKILL to the whole tree, or only to the children of fini.
func (k *system) Kill(own bool) (hit, refused []int) {
	if own {
		return k.tree.KillChildren()
	}
	return k.tree.Kill()
}

// Exit writes the report and the last messages, and sends the result to the outer fini.
func (k *system) Exit(end life.End) {
	done := func() {
		if k.socket.FD >= 0 {
			k.socket.Done(end.WaitStatus())
		}
	}
	// The heir must not write a report again after part of it was written to a stream, so send the result before
	// writing. A report in a file can be overwritten.
	if slices.ContainsFunc(k.report.To, report.Place.IsStream) {
		done()
		k.close(end)
	} else {
		k.close(end)
		done()
	}
	if k.socket.FD < 0 {
		return
	}
	// The outer fini may have been suspended with the job and not continued with the command. Continue it, unless it
	// was killed and this process therefore has another parent now.
	if k.rules.Job != life.NoJob && os.Getppid() == k.self.Pid {
		k.failed(signals.To(k.self.Pid, syscall.SIGCONT))
	}
}

// failed writes an error as a message, unless it is nil.
func (k *system) failed(err error) {
	if err != nil {
		k.Sayf(life.Always, "%v", err)
	}
}

// RecordExit adds an exit to the report. If killed is true, somebody other than fini killed the process with SIGKILL.
// RecordExit then warns if the kernel has run out of memory.
func (k *system) RecordExit(x reaper.Exit, killed bool) {
	k.report.AddExit(x)
	if !killed {
		return
	}
	n, err := k.memory.KilledSince()
	if err != nil {
		k.report.AddOOM(x.Pid, "unknown", err.Error())
		return
	}
	if n == 0 {
		return
	}
	k.report.AddOOM(x.Pid, "likely", fmt.Sprintf("oom_kill in %s rose by %d", k.memory.File, n))
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
