package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// A Machine decides what to do about each event. step returns actions and the next machine, which is often the same
// one, or nil if the life is over. A Machine never makes a system call or reads a clock. now is the time since boot.
//
// For a command, the ladder stops the main child, and then the sweep stops the leftovers. An heir begins with the
// sweep.
type Machine interface {
	step(now time.Duration, e event) (do []action, next Machine)

	stops() bool // reports whether the machine waits for a stop: see slicesOfWait

	// waitEnd returns the end of the current wait, or nil if --stop-within does not limit it. keeps is how many parts
	// of the reserve must remain then. waits is how many waits like this one, itself included, may precede the reserve.
	waitEnd() (end *time.Duration, keeps time.Duration, waits time.Duration)
}

// An event is something that the loop has learned. It is a Signal, a measured, a listed, or one of the types below.
type event any

type (
	stop struct { // there is a reason to stop the command
		why    Reason
		unread int // bytes of stdin that the command has not read
	}
	reaped struct { // children were reaped, or have stopped or continued
		main   []syscall.WaitStatus // statuses of the main child, if any
		none   bool                 // no child is left, so the tree is empty
		hidden bool                 // the main child has exited, but its tracer keeps it from being reaped
	}
	looked struct { // the result of look
		orphans.View
		took time.Duration
	}
	swept struct { // the result of kill
		hit, refused []int // pids that were sent SIGKILL, and pids that fini may not signal
		fresh        bool  // at least one pid was hit for the first time
	}
	elapsed struct{ unread int }       // the time of the last wake is over
	late    struct{ by time.Duration } // fini did not run during that time, so deadlines are moved by it
)

// exit returns the status with which the main child ended, or nil if it has not ended.
func (e reaped) exit() *syscall.WaitStatus {
	if last := len(e.main) - 1; last >= 0 && (e.main[last].Exited() || e.main[last].Signaled()) {
		return &e.main[last]
	}
	return nil
}

// An action is something that the loop has to do. Without a method do, which carries it out, it does not compile.
type action interface{ do(l *Loop) }

type (
	signalCommand struct { // sends a signal to the command
		sig   syscall.Signal
		alone bool // only to the main child, not to its group
	}
	look           struct{}             // reaps and finds the processes of the tree; looked is the result
	survey         struct{ named bool } // records what the tree is doing, and also writes messages if named
	signalLeftover struct {             // sends a signal to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill  struct{ own bool }            // sends SIGKILL to the tree, or only to children of fini; then reaped and swept
	wake  struct{ after time.Duration } // replaces the previous wake
	hurry struct{ after time.Duration } // like wake, unless the previous wake is sooner
	tell  struct {                      // writes a message about a leftover
		process orphans.Process
		what    string
		spared  string // why fini spares it, or "": see ByName
		quietly bool   // only for the report: see MaxNamed
		top     int    // the orphan that the process is, or from which it descends; 0 after the command's exit
	}
	say struct { // writes any other message
		level Level
		text  string
		why   Reason // why fini stops or kills the command or its leftovers
	}
	ignore struct{ Signal } // warns about a signal that a pause ignores
	noMain struct{}         // there is no main child, so every child is a leftover
	exit   struct{ End }
)
