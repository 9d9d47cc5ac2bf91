// Package entry is all of fini that runs before the Go runtime. It records what fini has inherited and makes a pair of
// this process. It then runs as the outer fini of that pair until the outer fini has to do more than sleep.
//
//	entry_*.s     where the kernel starts fini
//	entry.go      the way from there to the runtime
//	inherited.go  the state that the runtime is about to change
//	fork.go       the fork
//	sleep.go      the outer fini, which acts as step.go decides
//	step.go       the decisions of the outer fini: a pure function
//	line.go       the messages between the two processes
//	pair.go       the state of this process, and the facts in it for the rest of fini
//
// Before the runtime starts, there is no stack that grows, no heap, and no thread that the runtime knows. So the
// functions that run before it are nosplit, keep their data in variables of the package that hold no Go pointer, and
// call only the kernel, and functions of the same kind in other packages. A test reads their machine code and refuses a
// call to anything else.
package entry

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/pdeath"
)

// outer is the state of the outer fini of a pair, and in an inner fini a copy from the time of the fork.
var outer process

// state is what the rest of fini gets as it is: see Facts.
type state struct {
	Sleeper
	Role           Role
	Parent         pdeath.Launcher // the process that started fini
	Failed         int             // the negative errno that prevented the pair
	Group, Session int             // of the outer fini
	Line           int             // this process's end
	Report         int             // the descriptor of the report's place, or -1
	KnowsEarlier   bool            // Earlier could be read
}

// process is the state of this process before it has a runtime. It also holds the data that the kernel writes, because
// they don't fit on the stack and there is no heap.
type process struct {
	state
	inner int // the pid of the inner fini

	signalFD     int
	polled       [3]pollFD
	signal       unix.SignalfdSiginfo
	senderParent int // the parent of its sender, 0 if unknown or not asked for
	message      Message
	control      [3]uint64     // see cmsg(3)
	deadline     time.Duration // as uptime, 0 for none
	hungUp       bool
	stderrFlags  int        // see inherit
	text         [4096]byte // of a file
	earlier      [500]int32 // the children from before the exec that have not been reaped, and zeros; as many as surely fit in text
	dir          [4096]byte // the working directory, with a 0 at its end
}

// pollFD is a unix.PollFd that waits for input.
type pollFD struct {
	fd              int32
	events, revents int16
}

// Without pidfds, ParentSignal tells the outer fini that its parent process may have died. It is the last real-time
// signal, which is the least likely signal to be sent for another reason.
const ParentSignal = 64

// A Role is the part that this process plays.
type Role int

const (
	Alone Role = iota // fini is this single process
	Inner             // the inner fini of a pair
	Heir              // the outer fini, after the end of the inner fini has woken it
)

// InnerName is what the kernel calls an inner fini, in /proc/PID/comm and ps -o comm: "pkill fini" and "killall fini" then
// hit one process of a pair. The command line stays. See PR_SET_NAME in prctl(2).
const InnerName = "reaper"

// Facts are all that this process knew before its runtime started.
type Facts struct {
	state

	// Linked reports whether this program was linked with its own entry. Without the entry fini does not know what the Go
	// runtime has changed, and runs as a single process. The runtime then obeys variables that are meant for the main
	// child, such as GODEBUG and GOMEMLIMIT.
	Linked bool

	// The attributes that a process keeps across execve(2) and that the Go runtime changes, as far as known.
	Ignored []syscall.Signal
	Blocked *uint64 // bit n-1 is signal n; nil if not known
	Closed  [3]bool // of the standard streams

	Pid     int   // of the outer fini, if this is the inner fini
	Earlier []int // the children that this process had before it became fini

	// Dir is where an heir was started. It is only text, because the tree may have put something else there, and the server
	// of the file system may not answer.
	Dir string
}

// Known returns the facts.
func Known() Facts {
	linked := atEntry.environ != 0
	if !linked {
		outer.Parent.Find()
	}
	f := Facts{state: outer.state, Linked: linked, Closed: atEntry.closed, Pid: outer.Self, Dir: unix.ByteSliceToString(outer.dir[:])}
	if f.Role != Inner {
		f.Pid, f.Group, f.Line = os.Getpid(), unix.Getpgrp(), -1
		f.Session, _ = unix.Getsid(0)
	}
	for _, pid := range outer.earlier {
		if pid != 0 {
			f.Earlier = append(f.Earlier, int(pid))
		}
	}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if atEntry.ignored&(1<<(sig-1)) != 0 {
			f.Ignored = append(f.Ignored, sig)
		}
	}
	if linked {
		f.Blocked = &atEntry.blocked
	}
	if outer.stderrFlags != 0 { // see inherit
		_, _ = unix.FcntlInt(2, unix.F_SETFL, outer.stderrFlags)
	}
	return f
}

// An inner fini calls OutliveOuter once it catches signals. From then on it outlives the outer fini. If it is suspended then, the
// kernel continues it, so that it stops the tree.
func OutliveOuter() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }
