package entry

import "golang.org/x/sys/unix"

// A Sleeper is the state of the outer fini while it sleeps, before it has a runtime.
//
//	what the outer fini sees          what follows
//	a message                         see Message
//	a signal, before Starting         a terminating signal kills the inner fini, and then ends the outer fini; all
//	                                  others wait
//	a signal, before Started          waits: the main child may run already, and shall get the signal
//	a second since Starting           the execve(2) of the command may hang: signals are treated as before Starting
//	a signal                          is relayed; a terminating signal also continues an inner fini that is stopped
//	SIGCHLD                           after a terminating signal or the parent's death, an inner fini that is stopped
//	                                  is continued
//	SIGTSTP, SIGTTIN or SIGTTOU that  is relayed, and suspends the outer fini: from now on the kernel does that
//	waited for Started, in a job
//	SIGTSTP in a job that would be    the job is continued: without fini the kernel would have stopped no process of it
//	orphaned without the inner fini
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
// Step is a pure function of the Sleeper and a Seen. The loop in sleep.go runs Step. So do the tests of package life,
// in their model of the kernel.
type Sleeper struct {
	Ignored uint64 // signals that were ignored when fini started: bit n-1 is signal n
	Self    int    // the pid of the outer fini

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
	What     What
	Message  Message
	Signal   uint32
	Sender   int    // of the signal, as in a Message
	Status   uint32 // the wait status of the inner fini
	Children bool   // with Ended: there are other children
}

// A What is a kind of Seen.
type What int

const (
	Said What = iota // a Message
	Signalled
	ParentEnded
	Waited // Started has not come within a second after Starting
	HungUp // the inner fini exits, or was killed
	Ended  // the inner fini can be reaped
	TimeUp // the inner fini can't be reaped within the bound
)

// Act is a set of actions of the outer fini, one bit for each.
type Act uint32

const (
	Relay        Act = 1 << iota // the signal
	TellParent                   // that the parent process has died, if the inner fini can't see it
	Continue                     // the inner fini by SIGCONT, if it is stopped
	ContinueJob                  // by SIGCONT
	Suspend                      // this process by the signal, as its job was suspended
	Kill                         // the inner fini by SIGKILL
	Hold                         // terminating signals until LetGo
	Listen                       // to terminating signals again
	LetGo                        // of the inherited descriptors, and take all signals
	AwaitEnd                     // of the inner fini, with a bound
	Exit                         // by Status
	StartRuntime                 // as a single process if BeAlone is set, else as the heir
)

// Step returns the acts that answer one event.
//
//go:nosplit
func (s *Sleeper) Step(e Seen) Act {
	switch e.What {
	case Said:
		return s.said(e.Message)
	case Signalled:
		return s.signalled(e.Signal, e.Sender)
	case ParentEnded:
		s.Ending = true
		return TellParent | Continue
	case Waited:
		s.Starting = false
		return Listen
	case HungUp:
		return AwaitEnd
	}
	return s.ended(e)
}

//go:nosplit
func (s *Sleeper) said(m Message) Act {
	switch m.Kind {
	case BeAlone:
		s.BeAlone = true
	case Starting:
		s.Starting = true
		return Hold
	case Started:
		s.Main, s.Job = m.Value, m.Job
		return LetGo
	case Done:
		s.Done, s.Status = true, m.Value
	}
	return 0
}

//go:nosplit
func (s *Sleeper) signalled(sig uint32, sender int) Act {
	asks := terminating&^s.Ignored>>(sig-1)&1 != 0
	s.Ending = s.Ending || asks
	orphaned := s.Job&Orphaned != 0
	switch {
	case sig == uint32(unix.SIGCHLD) && s.Ending:
		return Continue // the inner fini may have been stopped just before it could take the relayed signal
	case sig == uint32(unix.SIGCHLD):
		return 0
	case s.Main == 0 && asks && !s.Starting:
		if s.EndBy == 0 {
			s.EndBy = sig
		}
		return Kill
	case s.Main == 0:
		return 0
	case orphaned && sig == uint32(unix.SIGTSTP):
		return ContinueJob
	case orphaned && sig == uint32(unix.SIGCONT) && sender == s.Self:
		return 0 // the SIGCONT of ContinueJob
	case s.Ending:
		return Relay | Continue
	case s.Job&InJob != 0 && suspending>>(sig-1)&1 != 0:
		return Relay | Suspend
	}
	return Relay
}

//go:nosplit
func (s *Sleeper) ended(e Seen) Act {
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
	s.Status = e.Status
	if exited := e.Status&0x7f == 0; s.Main == 0 && exited && !asked {
		return Exit
	}
	return StartRuntime
}

// terminating are the terminating signals: bit n-1 is signal n.
const terminating = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGTERM-1)

// suspending are the signals by which a terminal suspends a job.
const suspending = 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
