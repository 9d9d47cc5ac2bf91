package entry

import (
	"golang.org/x/sys/unix"
)

// A Sleeper is the state of the outer fini while it sleeps, before the Go runtime starts.
//
//	what the outer fini sees          what it does
//	a message                         see Message
//	a signal, before Starting         if it is a terminating signal, kills the inner fini, and ends with that signal
//	                                  itself; keeps any other signal pending
//	a signal, before Started          keeps it pending for the main child, which may be running already
//	a second passes after Starting    treats signals as before Starting, because the execve(2) of the command may hang
//	a signal                          relays it; after a terminating signal it also continues the inner fini, which may
//	                                  be stopped
//	a signal, and the socket is full  keeps it pending; continues the inner fini every second, so that it can read
//	SIGCHLD                           continues the inner fini, after a terminating signal or the parent's death
//	SIGTSTP, SIGTTIN or SIGTTOU that  relays it and suspends itself; the kernel suspends the outer fini on the next one
//	was pending at Started, in a job
//	the parent process has died       continues the inner fini, which watches the same pidfd; without one, tells it
//	the socket hangs up               waits up to a second for the inner fini to end
//	the inner fini has ended          after Done: ends with the status in Done
//	                                  before Started, after a terminating signal: ends with that signal, or becomes the
//	                                  heir if it has other children
//	                                  after BeAlone: starts the runtime as a single process
//	                                  before Started, if the inner fini exited: exits with the same status
//	                                  otherwise: starts the runtime as the heir
//	the inner fini has not ended      does the same as if the inner fini had been killed
//	in time
//
// The methods of a Sleeper decide what to do but make no system calls. The loop in sleep.go carries out their
// decisions. The tests of package life call the same methods in a model of the kernel.
type Sleeper struct {
	Ignored uint64 // signals that were ignored when fini started; bit n-1 is signal n
	Self    int    // the pid of the outer fini
	Parent  Parent // the process that started fini
	Role    Role   // Heir if the outer fini becomes the heir

	Last       EventKind // the last result of Next
	Signal     Message   // the last signal that was read
	Held       bool      // whether Signal is still to be answered
	Early      bool      // Started has arrived, but earlier signals may still be unanswered
	ParentDied bool      // the death of the parent process has been seen
	HungUp     bool      // the socket has hung up: the inner fini is exiting or was killed

	BeAlone  bool   // the inner fini has sent BeAlone
	Starting bool   // the inner fini has sent Starting, so the main child may be running
	Main     uint32 // pid of the main child, or 0 before Started
	InJob    bool   // InJob of the Started message
	Ending   bool   // the inner fini must not stay stopped, because it has a reason to end
	EndBy    uint32 // the terminating signal that arrived before Started, or 0
	Done     bool   // the inner fini has sent Done
	Status   uint32 // the wait status to end with: from Done, or else that of the inner fini
}

// Event is an event that the outer fini has seen.
type Event struct {
	Event      EventKind
	Message         // set for MessageRead and SignalRead; for Ended, Value is the wait status of the inner fini
	ParentDied bool // set with Writable if Signal is ParentSignal and the parent process has died
	Children   bool // set with Ended if there are other children
}

// An EventKind is a kind of event. The outer fini checks for each kind in the order below.
//
// A signal's meaning depends on the messages sent before it. Therefore the outer fini reads a signal first, then the
// messages, and only then answers the signal. While it can't be answered yet, no other signal is read.
type EventKind uint

const (
	Nothing       EventKind = iota // there is nothing to do, or what was looked for has not happened
	SignalRead                     // a signal was read
	MessageRead                    // a Message arrived
	WaitOver                       // Started has not arrived within a second of Starting
	PidfdReadable                  // the parent process has ended
	Writable                       // the socket has room, so the signal can be answered
	Ended                          // the inner fini was reaped, or was not in time, as if it had been killed
	whats
)

// Act is a set of actions of the outer fini, one per bit.
type Act uint32

const (
	Relay          Act = 1 << iota // send the signal to the inner fini
	TellParentDied                 // tell the inner fini that the parent process has died, which it can't see
	Continue                       // send SIGCONT to the inner fini
	Suspend                        // suspend this process with the signal, because its job was suspended
	Kill                           // send SIGKILL to the inner fini
	LetGo                          // close inherited descriptors, leave the working directory, and take all signals
	BeStoppable                    // let the kernel suspend this process with its job
	Bound                          // wait at most another second for Started, Writable or Ended
	Exit                           // exit with Status
	StartRuntime                   // start the Go runtime in this Role
)

// Next returns the kind of event that the outer fini checks for next.
//
//go:nosplit
func (s *Sleeper) Next() EventKind {
	for s.Last = (s.Last + 1) % whats; !s.Heeds(s.Last); s.Last = (s.Last + 1) % whats {
	}
	return s.Last
}

// Heeds reports whether the outer fini currently checks and waits for events of kind w.
//
//go:nosplit
func (s *Sleeper) Heeds(w EventKind) bool {
	waits := s.Starting && s.Main == 0 && !s.HungUp // even a signal that was read has to wait
	return [whats]bool{
		Nothing:       !s.Early,
		SignalRead:    !s.Held,
		MessageRead:   !s.Early && !s.HungUp,
		WaitOver:      waits,
		PidfdReadable: !s.Early && s.Parent.FD >= 0 && !s.ParentDied,
		Writable:      s.Held && !waits,
		Ended:         !s.Early && s.HungUp,
	}[w%whats]
}

// IsBounded reports whether the current wait must end a second after the last Bound.
//
//go:nosplit
func (s *Sleeper) IsBounded() bool { return s.Heeds(WaitOver) || s.Heeds(Writable) || s.Heeds(Ended) }

// Takes returns the set of signals that the outer fini reads. Before the main child starts, it contains only a few.
// Afterwards it contains all signals, except that in a job it leaves out those that suspend this process.
//
//go:nosplit
func (s *Sleeper) Takes() uint64 {
	switch {
	case s.Main == 0 && s.Parent.FD < 0:
		return childEnded | terminating&^s.Ignored | 1<<(ParentSignal-1)
	case s.Main == 0:
		return childEnded | terminating&^s.Ignored
	case s.Early || !s.InJob:
		return ^uint64(0)
	}
	return ^uint64(suspending)
}

// Step updates the state after an event and returns the actions to carry out.
//
//go:nosplit
func (s *Sleeper) Step(e *Event) Act {
	act := Act(0)
	switch e.Event {
	case Nothing:
		if s.Early { // no signal is pending, or the one that was read has to wait
			s.Early, act = false, BeStoppable
		}
		if s.Last == Writable { // a stopped inner fini doesn't read, and it may be stopped again
			act |= Continue | Bound
		}
	case SignalRead:
		s.Held, s.Signal = true, e.Message
	case MessageRead:
		s.Last = MessageRead - 1 // check for another message
		switch e.Kind {
		case BeAlone:
			s.BeAlone = true
		case Starting:
			s.Starting, act = true, Bound
		case HungUp:
			s.HungUp, act = true, Bound
		case Started:
			s.Main, s.InJob, s.Early = e.Value, e.InJob, true
			act = LetGo
		case Done:
			s.Done, s.Status = true, e.Value
		}
	case WaitOver:
		s.Starting = false
	case PidfdReadable:
		s.ParentDied, s.Ending = true, true
		act = Continue
	case Writable:
		s.Held = false
		act = s.signalled(e.ParentDied)
	case Ended:
		act = s.ended(e)
	}
	return act
}

//go:nosplit
func (s *Sleeper) signalled(parentDied bool) Act {
	sig, sender := s.Signal.Value, int(s.Signal.Sender)
	// The terminal may have sent SIGINT before the main child was in the group to receive it. In that case, relay it
	// like a signal from a process, although the main child may receive it twice.
	if s.Early && sender == FromKernel {
		s.Signal.Sender = 0
	}
	aboutParent := s.Parent.MayTell(sig, sender)
	asks := terminating&^s.Ignored>>(sig-1)&1 != 0
	s.Ending = s.Ending || asks || aboutParent && parentDied
	switch {
	case aboutParent && parentDied: // rather than only one of its threads
		return TellParentDied | Continue
	case sig == uint32(unix.SIGCHLD) && s.Ending:
		return Continue // it may have been stopped just before it could read the relayed signal
	case s.Main == 0 && asks && !s.Starting:
		if s.EndBy == 0 {
			s.EndBy = sig
		}
		return Kill
	case s.Main == 0 || sig == uint32(unix.SIGCHLD) || aboutParent:
		return 0
	case s.Ending:
		return Relay | Continue
	case s.InJob && suspending>>(sig-1)&1 != 0:
		s.Early = false
		return Relay | Suspend | BeStoppable
	}
	return Relay
}

//go:nosplit
func (s *Sleeper) ended(e *Event) Act {
	asked := s.Main == 0 && s.EndBy != 0
	if asked {
		s.BeAlone = false // whoever sent the terminating signal wants fini to end, not to start over
	}
	switch {
	case s.BeAlone:
		return StartRuntime
	case s.Done:
		return Exit
	case asked && !e.Children:
		s.Status = s.EndBy
		return Exit
	}
	s.Status = e.Value
	if exited := e.Value&0x7f == 0; s.Main == 0 && exited && !asked {
		return Exit
	}
	s.Role = Heir
	return StartRuntime
}

// childEnded is the signal set that contains only SIGCHLD.
const childEnded = 1 << (unix.SIGCHLD - 1)

// terminating is the set of terminating signals. Bit n-1 is signal n.
const terminating = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGTERM-1)

// suspending is the set of signals with which a terminal suspends a job.
const suspending = 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
