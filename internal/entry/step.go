package entry

import (
	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/pdeath"
)

// A Sleeper is the state of the outer fini while it sleeps, before it has a runtime.
//
//	what the outer fini sees          what follows
//	a message                         see Message
//	a signal, before Starting         a terminating signal kills the inner fini, and then ends the outer fini; all
//	                                  others wait
//	a signal, before Started          waits: the main child may run already, and shall get the signal
//	a second since Starting           the execve(2) of the command may hang: signals are treated as before Starting
//	a signal                          is relayed; a terminating signal also continues an inner fini that is stopped
//	a signal, and the line is full    waits; each second an inner fini that is stopped is continued, to read
//	SIGCHLD                           after a terminating signal or the parent's death, an inner fini that is stopped
//	                                  is continued
//	SIGTSTP, SIGTTIN or SIGTTOU that  is relayed, and suspends the outer fini: from now on the kernel does that
//	waited for Started, in a job
//	the parent process has died       an inner fini that is stopped is continued, to act on the death
//	the line hangs up                 the outer fini waits for the end of the inner fini, with a bound
//	the inner fini has ended          after Done: the outer fini ends as Done says
//	                                  before Started, after a terminating signal: the outer fini ends by this signal, or
//	                                  is the heir if it has other children
//	                                  after BeAlone: the outer fini starts the runtime, and is the only process
//	                                  before Started, if the inner fini exited: the outer fini exits with its status
//	                                  in all other cases: the outer fini starts the runtime, and is the heir
//	the inner fini has not ended      the same as for an inner fini that SIGKILL has ended
//	within the bound
//
// Its methods decide: they are pure functions. The loop in sleep.go runs them. So do the tests of
// package life, in their model of the kernel.
type Sleeper struct {
	Ignored uint64          // signals that were ignored when fini started: bit n-1 is signal n
	Self    int             // the pid of the outer fini
	Parent  pdeath.Launcher // the process that started fini
	Role    Role            // Heir at the end, if the outer fini is the heir

	At         What    // what Next has returned
	Signal     Message // the last one that was read
	Held       bool    // it is not answered yet
	Early      bool    // Started has come, and signals from before may be unanswered
	ParentDied bool    // ParentEnded was seen
	HungUp     bool    // the inner fini exits, or was killed

	BeAlone  bool   // the inner fini has sent BeAlone
	Starting bool   // the inner fini has sent Starting: the main child may run already
	Main     uint32 // the pid of the main child, 0 before Started
	Job      uint32 // the flags of Started
	Ending   bool   // the inner fini has a reason to end, and must not stay stopped
	EndBy    uint32 // the terminating signal that came before Started, 0 for none
	Done     bool   // the inner fini has done its work
	Status   uint32 // the wait status to end with, if Done; else the inner fini's, if it has ended
}

// Seen is one event that the outer fini sees.
type Seen struct {
	What       What
	Message         // of Said; with Caught as it is relayed; the Value of Ended is the wait status of the inner fini
	ParentDied bool // with Room, for ParentSignal: the parent process has died
	Children   bool // with Ended: there are other children
}

// A What is a kind of Seen. The outer fini looks for one after the other, in this order.
//
// The meaning of a signal depends on the messages before it. So the outer fini reads the signal first and answers it
// last. If the signal has to wait, all later signals wait too.
type What uint

const (
	Nothing What = iota // the outer fini waits, or what it looked for is not there
	Caught              // a signal
	Said                // a Message
	Waited              // Started has not come within a second after Starting
	ParentEnded
	Room  // on the line, to answer the signal
	Ended // the inner fini can be reaped, or can't within the bound, which counts as if SIGKILL had ended it
	whats
)

// Act is a set of actions of the outer fini, one bit for each.
type Act uint32

const (
	Relay        Act = 1 << iota // the signal
	TellParent                   // that the parent process has died: the inner fini can't see it
	Continue                     // the inner fini by SIGCONT, if it is stopped
	Suspend                      // this process by the signal, as its job was suspended
	Kill                         // the inner fini by SIGKILL
	LetGo                        // of the inherited descriptors, and take all signals
	BeStoppable                  // with the job
	Bound                        // the wait for Started, Room or Ended, by a second from now on
	Exit                         // by Status
	StartRuntime                 // in this Role
)

// Next returns what the outer fini looks for next.
//
//go:nosplit
func (s *Sleeper) Next() What {
	for s.At = (s.At + 1) % whats; !s.Heeds(s.At); s.At = (s.At + 1) % whats {
	}
	return s.At
}

// Heeds reports whether the outer fini looks for a What now, and so whether it also waits for that.
//
//go:nosplit
func (s *Sleeper) Heeds(w What) bool {
	waits := s.Starting && s.Main == 0 && !s.HungUp // even a signal that was read
	return [whats]bool{
		Nothing:     !s.Early,
		Caught:      !s.Held,
		Said:        !s.Early && !s.HungUp,
		Waited:      waits,
		ParentEnded: !s.Early && s.Parent.FD >= 0 && !s.ParentDied,
		Room:        s.Held && !waits,
		Ended:       !s.Early && s.HungUp,
	}[w%whats]
}

// IsBounded reports whether the outer fini, when it waits, looks again a second after Bound at the latest.
//
//go:nosplit
func (s *Sleeper) IsBounded() bool { return s.Heeds(Waited) || s.Heeds(Room) || s.Heeds(Ended) }

// Takes returns the signals that the outer fini reads: few until the main child is started, and then all but those by which the
// kernel suspends this process with its job.
//
//go:nosplit
func (s *Sleeper) Takes() uint64 {
	switch {
	case s.Main == 0 && s.Parent.FD < 0:
		return childEnded | terminating&^s.Ignored | 1<<(ParentSignal-1)
	case s.Main == 0:
		return childEnded | terminating&^s.Ignored
	case s.Early || s.Job == 0:
		return ^uint64(0)
	}
	return ^uint64(suspending)
}

// Step returns the acts that answer one event.
//
//go:nosplit
func (s *Sleeper) Step(e *Seen) Act {
	act := Act(0)
	switch e.What {
	case Nothing:
		if s.Early { // no other signal has come, or it has to wait
			s.Early, act = false, BeStoppable
		}
		if s.At == Room { // the inner fini reads nothing while it is stopped, and may be stopped again
			act |= Continue | Bound
		}
	case Caught:
		s.Held, s.Signal = true, e.Message
	case Said:
		s.At = Said - 1 // perhaps there is another one
		switch e.Kind {
		case BeAlone:
			s.BeAlone = true
		case Starting:
			s.Starting, act = true, Bound
		case HungUp:
			s.HungUp, act = true, Bound
		case Started:
			s.Main, s.Job, s.Early = e.Value, e.Job, true
			act = LetGo
		case Done:
			s.Done, s.Status = true, e.Value
		}
	case Waited:
		s.Starting = false
	case ParentEnded:
		s.ParentDied, s.Ending = true, true
		act = Continue
	case Room:
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
	// The SIGINT of a Ctrl-C may have come before the main child was there to get it too. So it is relayed like a signal
	// from a process, and the main child may get it twice.
	if s.Early && sender == Kernel {
		s.Signal.Sender = 0
	}
	aboutParent := sig == ParentSignal && s.Parent.FD < 0 && (s.Parent.Pid != 0 || sender == 0)
	asks := terminating&^s.Ignored>>(sig-1)&1 != 0
	s.Ending = s.Ending || asks || aboutParent && parentDied
	switch {
	case aboutParent && parentDied: // and not only a thread of the parent process
		return TellParent | Continue
	case sig == uint32(unix.SIGCHLD) && s.Ending:
		return Continue // the inner fini may have been stopped just before it could take the relayed signal
	case s.Main == 0 && asks && !s.Starting:
		if s.EndBy == 0 {
			s.EndBy = sig
		}
		return Kill
	case s.Main == 0 || sig == uint32(unix.SIGCHLD) || aboutParent:
		return 0
	case s.Ending:
		return Relay | Continue
	case s.Job != 0 && suspending>>(sig-1)&1 != 0:
		s.Early = false
		return Relay | Suspend | BeStoppable
	}
	return Relay
}

//go:nosplit
func (s *Sleeper) ended(e *Seen) Act {
	asked := s.Main == 0 && s.EndBy != 0
	if asked {
		s.BeAlone = false // the sender of the terminating signal wants no other fini either
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

// childEnded is the set that holds only SIGCHLD.
const childEnded = 1 << (unix.SIGCHLD - 1)

// terminating are the terminating signals: bit n-1 is signal n.
const terminating = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGTERM-1)

// suspending are the signals by which a terminal suspends a job.
const suspending = 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
