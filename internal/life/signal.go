package life

import (
	"slices"
	"syscall"

	"github.com/seed-126c5d8a/fini/signals"
)

// A Signal is one that fini has received. What becomes of it is decided in this file, and in the method received of the ladder
// and of the sweep, which forwards nothing. A signal to the outer fini meets entry.Sleeper before:
//
//	question                                   answer
//	is it for this process?                    an inner fini takes only what the outer fini relays: see Take
//	has the command had it already?            in a job, if it was sent to the whole job: see hasHad. Then fini sends nothing
//	what is it after --rewrite?                see rewritten. From here on, only the signal that fini sends counts
//	has fini just sent it?                     the sender that killed the parent process may have sent it too: see
//	                                           expectedDuplicate
//	what does it ask for?                      see asks, the one table of that
//	who gets it?                               the command's group or the main child: see forward
type Signal struct {
	signals.Received
	OfTree  bool // a process of the tree has sent it, and the command is in the job
	Early   bool // it came before the main child was there
	Relayed bool // by the outer fini
}

// Take takes in a signal. Because an inner fini takes signals only from the outer fini, a signal for a whole cgroup or
// session, or for every process of this name, reaches the command only once.
func (l *Loop) Take(got Signal) {
	switch outer := l.rules.Outer; {
	case outer == 0, got.Relayed:
		l.Taken(got)
		l.queue = append(l.queue, got)
	case got.Early: // it was for the outer fini's group, which the inner fini has left since
	case got.Kernel, got.Sender == outer: // the outer fini continues a suspended inner fini
	case !l.hasDropped:
		l.hasDropped = true
		l.Dropped(got)
	}
}

// byKey reports whether the kernel has sent a signal to the whole job, such as the SIGINT of Ctrl-C. The key may have been
// pressed before the main child was there. So an early signal counts as sent by a process, and the main child may get
// it twice.
func (s Signal) byKey() bool { return s.Kernel && !s.Early }

// hasHad reports whether a signal has reached the command without fini, because the command is in the job to which the
// signal was sent.
func (i Identity) hasHad(got Signal) bool {
	if i.Job == 0 {
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

// rewritten is the signal that fini sends instead of one that it has received, 0 for none: see --rewrite.
func (p Policy) rewritten(sig syscall.Signal) syscall.Signal {
	if to, ok := p.Rewrite[sig]; ok {
		return to
	}
	return sig
}

// An asks is what a signal asks for, a bit for each.
type asks uint8

const (
	startsKillAfter   asks = 1 << iota // it starts the clock of --kill-after. --orphans=wait doesn't wait for what it ends
	startsStopWithin                   // it starts the clock of --stop-within while the command runs
	endsWaiting                        // after the command's exit it ends --linger and --orphans=wait, and starts --stop-within
	endsPause                          // of --pause
	asksLeftover                       // a leftover that has had it with the command's group was asked to exit, and gets no SIGTERM
	asksUnlessIgnored                  // the same, unless the leftover ignores it, and it gets SIGTERM after half of --grace
	ignoredFromInside                  // the PID 1 of --pause ignores it, if a process of its own PID namespace sends it
	terminates                         // it ends fini before the command is there (see package entry), and lets the command go on
)

// askedBy is what each signal asks for. SIGHUP and SIGQUIT from a process don't ask the command to exit: servers reload and
// dump their threads at them.
var askedBy = map[syscall.Signal]asks{
	syscall.SIGTERM: startsKillAfter | startsStopWithin | endsWaiting | endsPause | asksLeftover | ignoredFromInside | terminates,
	syscall.SIGINT:  startsKillAfter | endsWaiting | endsPause | asksUnlessIgnored | ignoredFromInside | terminates, // some go on after it
	syscall.SIGQUIT: endsWaiting | endsPause | ignoredFromInside | terminates,
	syscall.SIGHUP:  endsWaiting | endsPause | ignoredFromInside | terminates,
	rtmin3:          endsPause | ignoredFromInside, // which queues: the kernel merges the others, also with one from inside
}

const rtmin3 syscall.Signal = 37 // SIGRTMIN+3, by which systemd ends a container

const (
	ofStopSignal = startsKillAfter | startsStopWithin | endsWaiting | terminates // also
	ofHangUp     = startsKillAfter                                               // also, if the kernel sends SIGHUP for a terminal
)

// asks returns what a signal asks for, by itself or by what --rewrite makes of it. If that drops the signal, nothing. As PID
// 1 a pause is a sandbox, whose processes can't end it.
func (r Rules) asks(got Signal) (all asks) {
	sent := r.rewritten(got.Signal)
	if sent == 0 {
		return 0
	}
	if all = r.asksBy(got.Signal) | r.asksBy(sent); got.Kernel && got.Signal == syscall.SIGHUP && all != 0 {
		all |= ofHangUp
	}
	if r.Pause && r.Initial && !got.Outside {
		all &= ignoredFromInside // asks for nothing else
	}
	return all
}

// asksBy is what a signal of this number asks for. A signal that was ignored when fini started, as in the background of a
// shell, asks for nothing: the command may still ignore it, so fini only forwards it.
func (r Rules) asksBy(sig syscall.Signal) asks {
	switch {
	case slices.Contains(r.Ignored, sig):
		return 0
	case slices.Contains(r.StopSignals, sig):
		return askedBy[sig] | ofStopSignal
	}
	return askedBy[sig]
}

// suspending are the signals by which a terminal suspends a job.
var suspending = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

func (a forward) do(l *Loop) {
	if group := l.rules.Group && !a.alone; !l.main.Ended {
		l.main.note(a.sig, l.Now(), group)
		l.Forward(l.main.Pid, a.sig, group)
	}
}
