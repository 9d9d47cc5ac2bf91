package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// A Machine decides what to do about each event, in order, and which machine goes on: itself, another machine, or none
// when the life is over. A Machine never makes a system call or reads a clock: now is the time since boot.
//
// A command goes through two machines: the ladder stops the main child, and the sweep stops the leftovers. The heir of
// a pair begins with the sweep.
type Machine interface {
	step(now time.Duration, e event) (do []action, next Machine)

	stops() bool // whether a wait of a stop is under way: see slice

	// bounded returns when the wait that is under way ends, if --stop-within counts, else nil; what has to be left of the
	// reserve then; and how many waits like this one may come in all before the reserve.
	bounded() (end *time.Duration, keeps time.Duration, waits time.Duration)
}

// An event is what the loop has learnt: a Signal, measured in idle.go, or one of the types below.
type event any

type (
	stop struct { // fini itself has a reason to stop the command
		why    Reason
		unread int // bytes of standard input
	}
	reaped struct { // children were reaped, or were suspended or continued
		main   []syscall.WaitStatus // of the main child, if it is one of them
		none   bool                 // no child is left: the tree is empty
		hidden bool                 // the main child has exited, but a tracer keeps it from being reaped
	}
	looked struct { // the answer to look
		orphans.View
		took time.Duration
		err  error
	}
	swept struct { // the answer to kill
		hit, refused []int // pids: sent SIGKILL, and not allowed to be signalled
		fresh        bool  // one was hit for the first time
		err          error
	}
	elapsed struct{ unread int }       // the time asked for with wake has come
	late    struct{ by time.Duration } // fini did not run for that time, so the wait of a stop becomes longer by it
)

// exit returns how the main child has ended, nil if it has not.
func (e reaped) exit() *syscall.WaitStatus {
	if last := len(e.main) - 1; last >= 0 && (e.main[last].Exited() || e.main[last].Signaled()) {
		return &e.main[last]
	}
	return nil
}

// An action is what the loop has to do. Its method do carries the action out: an action without it does not compile.
type action interface{ do(l *Loop) }

type (
	forward struct { // to the command
		sig   syscall.Signal
		alone bool // to the main child alone, whatever its group
	}
	look   struct{} // at the tree, after reaping; answered by looked
	survey struct { // what the tree is doing: for the report and, if named, in lines
		why   Reason // NoReason for a signal
		named bool
	}
	send struct { // to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill  struct{ childrenOnly bool }   // SIGKILL to the tree; answered by reaped and swept
	wake  struct{ after time.Duration } // replaces the wake before
	hurry struct{ after time.Duration } // the same, unless the wake before comes sooner
	tell  struct {                      // says what fini does about a leftover
		process orphans.Process
		what    string
		spared  string // why fini leaves it alone: see ByName; "" if it does not
		quietly bool   // without a line: see MaxNamed
	}
	say struct { // anything else
		level Level
		text  string
		why   Reason // why fini stops or kills the command or its leftovers
	}
	ignore struct{ Signal } // says that a pause ignores it
	noMain struct{}         // there is no main child, and every child is a leftover now
	exit   struct{ End }
)
