package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A Machine decides what to do about each event, in order, and which machine goes on: itself, another machine, or none
// when the life is over. A Machine makes no system call and reads no clock: now is the time since boot.
//
// A command goes through two machines: the ladder stops the main child, and the sweep stops the leftovers. The heir of
// a pair begins with the sweep.
type Machine interface {
	step(now time.Duration, e event) (do []action, next Machine)

	// mayDelayReap reports whether fini may reap children other than the main child later. watched is true if a pidfd
	// reports the main child's exit, so that fini sees that exit without SIGCHLD.
	mayDelayReap(watched bool) bool
}

// An event is what the loop has learnt.
type event interface{ isEvent() }

type (
	received struct { // a process or the kernel sent fini a signal
		sig  syscall.Signal
		from origin
	}
	stop   struct{ why Reason } // fini itself has a reason to stop the command
	unread struct{ bytes int }  // the answer to askStdin
	ended  struct {             // children were reaped
		exits  []reaper.Exit
		none   bool // no child is left: the tree is empty
		hidden bool // the main child has exited, but a tracer keeps it from being reaped
	}
	looked struct { // the answer to look
		orphans.View
		err error
	}
	swept struct { // the answer to kill
		hit, refused []int // pids: sent SIGKILL, and not allowed to be signalled
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

// An origin is the kind of sender of a signal.
type origin int

const (
	fromProcess origin = iota // outside of the tree
	fromTree                  // a process of the tree
	fromKernel                // such as the SIGINT of Ctrl-C
)

// An action is what the loop has to do. Its method do, in this package's loop.go, carries the action out: an action
// without this method does not compile.
type action interface{ do(l *Loop) }

type (
	forward  struct{ sig syscall.Signal } // to the command
	askStdin struct{}                     // how much is unread; answered by unread
	look     struct{}                     // at the tree, after reaping; answered by looked
	remember struct{}                     // which process started which, while the kernel still shows this
	send     struct {                     // to one leftover
		process orphans.Process
		sig     syscall.Signal
	}
	kill    struct{ childrenOnly bool }   // SIGKILL to the tree; answered by ended and swept
	wake    struct{ after time.Duration } // replaces the wake before
	hurry   struct{ after time.Duration } // the same, unless the wake before comes sooner
	because struct {                      // says what fini does to the command or its leftovers
		level Level
		what  string
		why   Reason
	}
	tell struct { // says what fini does about a leftover: one that is allowed is left alone
		process orphans.Process
		what    string
		quietly bool // without a line: see MaxNamed
		hadTerm bool // the leftover has had SIGTERM already
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
