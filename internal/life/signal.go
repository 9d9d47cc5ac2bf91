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
//	does it ask the command to exit?           see asksForEnd. The ladder acts on that under --kill-after, the sweep always
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

// asksForEnd reports whether sig is a terminating signal: its sender wants the command to exit.
func asksForEnd(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// asksForEnd is the same for a signal that fini sends on. It is false for a signal that was ignored when fini started,
// as in the background of a shell: the command may still ignore this signal, so fini forwards it, and does nothing
// more.
func (i Identity) asksForEnd(sig syscall.Signal) bool {
	return asksForEnd(sig) && !slices.Contains(i.Ignored, sig)
}

func (a forward) do(l *Loop) {
	if group := l.rules.Group && !a.alone; !l.main.Ended {
		l.main.note(a.sig, l.Now(), group)
		l.Forward(l.main.Pid, a.sig, group)
	}
}
