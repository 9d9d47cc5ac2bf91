package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A Machine decides what to do about events, in order, and which machine goes on: itself,
// another one, or none when the life is over. It makes no system call and reads no clock: now
// is the time since boot.
//
// A command goes through two machines: the ladder, by which it is stopped, and the sweep,
// by which its leftovers are. The heir of a pair begins with the sweep.
type Machine interface {
	step(now time.Duration, e event) (do []action, next Machine)

	// mayDelayReap reports whether ends of children other than the main child can wait.
	mayDelayReap() bool
}

// An event is what the loop has learnt.
type event interface{ isEvent() }

type (
	received struct { // somebody sent fini a signal
		sig  syscall.Signal
		from origin
	}
	stop   struct{ why Reason } // fini has a reason of its own
	unread struct{ bytes int }  // the answer to askStdin
	ended  struct {             // children were reaped
		exits  []reaper.Exit
		none   bool // no child is left: the tree is empty
		hidden bool // the main child has ended, but a tracer keeps it from being reaped
	}
	looked struct { // the answer to look
		orphans.View
		err error
	}
	swept struct { // the answer to kill
		hit, refused []int // pids: sent SIGKILL, and those that may not be
		err          error
	}
	elapsed struct{} // the time asked for with wake has come
)

func (received) isEvent() {}
func (stop) isEvent()     {}
func (unread) isEvent()   {}
func (ended) isEvent()    {}
func (looked) isEvent()   {}
func (swept) isEvent()    {}
func (elapsed) isEvent()  {}

// An origin is who sent a signal.
type origin int

const (
	fromProcess origin = iota // outside of the tree
	fromTree                  // a process of the tree
	fromKernel                // as for a key of the terminal
)

// An action is what the loop has to do. Its method do, in this package's loop.go, carries it out: an action
// without one would not compile.
type action interface{ do(l *Loop) }

type (
	forward  struct{ sig syscall.Signal } // to the command
	askStdin struct{}                     // how much is unread; answered by unread
	look     struct{}                     // at the tree, after reaping; answered by looked
	remember struct{}                     // who has started whom, as long as that is to be seen
	send     struct {                     // to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill    struct{ childrenOnly bool }   // SIGKILL to the tree; answered by ended and swept
	wake    struct{ after time.Duration } // replaces the wake before
	hurry   struct{ after time.Duration } // the same, unless that one comes sooner
	because struct {                      // says what is being done to the command or its leftovers
		level Level
		what  string
		why   Reason
	}
	tell struct { // of a leftover: what is being done about it
		process orphans.Process
		what    string
		quietly bool // it is one of many
		asked   bool // it has had SIGTERM already
	}
	leave struct { // says that this one goes on living
		process orphans.Process
		quietly bool
	}
	say struct { // anything else
		level Level
		text  string
	}
	exit struct {
		result Result
		leaks  Leaks
	}
)
