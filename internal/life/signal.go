package life

import (
	"slices"
	"syscall"

	"github.com/seed-126c5d8a/fini/signals"
)

// A Signal is one that fini has received. What it means is decided in this file and by the machines: see onSignal of
// the ladder and the sweep, and step of parting. A signal for the outer fini is first seen by entry.Sleeper. These are
// the questions about a signal, in order:
//
//	question                                   answer
//	is it for this process?                    an inner fini accepts only what the outer fini relays: see Accept
//	has the command received it already?       yes, if it was sent to the job that fini shares with the command: see
//	                                           reachedCommand. fini then sends nothing
//	does --rewrite replace it?                 see rewritten. The questions below are about the signal that fini sends
//	has fini just sent the same signal?        whoever killed the parent process may have signalled fini as well: see
//	                                           expectedDuplicate
//	what does it ask for?                      see requests
//	who receives it?                           the command's process group or only the main child: see signalCommand
type Signal struct {
	signals.Received
	OfTree  bool // it was sent by a process of the tree, and fini shares the command's job
	Early   bool // it arrived before the main child was started
	Relayed bool // the outer fini has relayed it
}

// Accept accepts or drops a signal. The inner fini accepts signals only from the outer fini. So a signal for all
// processes of a cgroup or session, or with the same name, reaches the command only once.
func (l *Loop) Accept(got Signal) {
	switch outer := l.rules.Outer; {
	case outer == 0, got.Relayed:
		l.RecordSignal(got)
		l.queue = append(l.queue, got)
	case got.Early: // it was sent to the outer fini's group while the inner fini was still a member
	case got.FromKernel, got.Sender == outer: // the outer fini sends SIGCONT to a suspended inner fini
	case !l.hasWarned:
		l.hasWarned = true
		l.WarnIgnored(got)
	}
}

// byKey reports whether the kernel sent a signal to the whole job, such as SIGINT for Ctrl-C. For an early signal it
// returns false, because the main child may not have been there yet. It may then receive the signal twice.
func (s Signal) byKey() bool { return s.FromKernel && !s.Early }

// reachedCommand reports whether a signal has reached the command without fini, because it was sent to the job of both.
func (i Identity) reachedCommand(got Signal) bool {
	if i.Job == NoJob {
		return false
	}
	switch got.Signal {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH:
		return got.OfTree || got.byKey()
	case syscall.SIGHUP, syscall.SIGCONT:
		return got.OfTree || got.byKey() && !i.Leader
	}
	return got.OfTree
}

// rewritten returns the signal that --rewrite puts in place of sig, or 0 for none.
func (p Policy) rewritten(sig syscall.Signal) syscall.Signal {
	if to, ok := p.Rewrite[sig]; ok {
		return to
	}
	return sig
}

// request is the set of things that a signal asks for, one per bit.
type request uint8

const (
	// starts --kill-after; what exits because of it is not waited for by --orphans=wait
	startsKillAfter  request = 1 << iota
	startsStopWithin         // starts --stop-within if the command is still running
	// after the command's exit, ends --linger and --orphans=wait, and starts --stop-within
	endsWaiting
	endsPause    // ends a --pause
	asksLeftover // a leftover that received it with the command's group doesn't need SIGTERM
	// like asksLeftover, but a leftover that ignores it receives SIGTERM after half of --grace
	asksUnlessIgnored
	ignoredFromInside // with --pause, PID 1 ignores it if it was sent from its own PID namespace
	// ends fini before the command has started (see package entry), and continues a suspended command
	terminates
)

// requests says what each signal asks for. SIGHUP and SIGQUIT from a process don't ask the command to exit, because
// many servers reload on SIGHUP and dump their threads on SIGQUIT.
var requests = map[syscall.Signal]request{
	syscall.SIGTERM: startsKillAfter | startsStopWithin | endsWaiting | endsPause | asksLeftover | ignoredFromInside |
		terminates,
	// some programs survive it
	syscall.SIGINT:  startsKillAfter | endsWaiting | endsPause | asksUnlessIgnored | ignoredFromInside | terminates,
	syscall.SIGQUIT: endsWaiting | endsPause | ignoredFromInside | terminates,
	syscall.SIGHUP:  endsWaiting | endsPause | ignoredFromInside | terminates,
	// queued by the kernel, while other pending signals of one number are merged
	rtmin3: endsPause | ignoredFromInside,
}

const rtmin3 syscall.Signal = 37 // SIGRTMIN+3, with which systemd stops a container

const (
	ofStopSignal = startsKillAfter | startsStopWithin | endsWaiting | terminates // added for a --stop-signal
	// added for a SIGHUP that the kernel sends when a terminal hangs up
	ofHangUp = startsKillAfter
)

// requestOf returns what a signal asks for, both by itself and after --rewrite. A signal that --rewrite drops asks for
// nothing. A pause as PID 1 is a sandbox, so signals from inside can't end it.
func (r Rules) requestOf(got Signal) (all request) {
	sent := r.rewritten(got.Signal)
	if sent == 0 {
		return 0
	}
	all = r.requestBy(got.Signal) | r.requestBy(sent)
	if got.FromKernel && got.Signal == syscall.SIGHUP && all != 0 {
		all |= ofHangUp
	}
	if r.Pause && r.Initial && !got.Outside {
		all &= ignoredFromInside // nothing else counts
	}
	return all
}

// requestBy returns what the signal with number sig asks for. A signal that was ignored when fini started asks for
// nothing, because the command may ignore it as well. Shells start background jobs that way, for example.
func (r Rules) requestBy(sig syscall.Signal) request {
	switch {
	case slices.Contains(r.Ignored, sig):
		return 0
	case slices.Contains(r.StopSignals, sig):
		return requests[sig] | ofStopSignal
	}
	return requests[sig]
}

// suspending lists the signals with which a terminal suspends a job.
var suspending = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

func (a signalCommand) do(l *Loop) {
	if group := l.rules.ToGroup && !a.alone; !l.main.Ended {
		l.main.note(a.sig, l.Now(), group)
		l.SignalCommand(l.main.Pid, a.sig, group)
	}
}
