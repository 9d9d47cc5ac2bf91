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
// call only the kernel. A test reads their machine code and refuses a call to anything else.
package entry

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// outer is the state of the outer fini of a pair, and in an inner fini a copy from the time of the fork.
var outer process

// state is what the rest of fini gets as it is: see Facts.
type state struct {
	Sleeper
	Role           Role
	Parent         Launcher // the process that started fini
	Failed         int      // the negative errno that prevented the pair
	Group, Session int      // of the outer fini
	Line           int      // this process's end
	Report         int      // the descriptor of the report's place, or -1
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
	info         siginfo
	message      Message
	control      [3]uint64 // see cmsg(3)
	deadline     int64     // in nanoseconds of CLOCK_MONOTONIC, 0 for none
	hungUp       bool
	stderrFlags  int        // see inherit
	text         [4096]byte // of a file, or a path
	earlier      [4096]byte // the children from before the exec, as /proc lists them
	earliers     int        // the number of bytes in earlier; negative if the children could not be read or have no room
	dir          [4096]byte // the working directory, with a 0 at its end
}

// pollFD is a unix.PollFd that waits for input.
type pollFD struct {
	fd              int32
	events, revents int16
}

// siginfo has the kernel's layout: see sigaction(2).
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status      int32
	_                     [25]int32
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

// A Launcher holds the facts that an outer fini knew about its parent process.
type Launcher struct {
	Pid     int           // 0 if it is outside of the PID namespace
	FD      int           // a pidfd, -1 if there is none
	Session int           // negative if unknown
	Gone    bool          // it exited before fini could look
	Err     syscall.Errno // why no ParentSignal tells the outer fini of its end
	Kept    int32         // without a pidfd: the parent death signal that the process that started fini has set, 0 for none
}

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

	Pid          int   // of the outer fini, if this is the inner fini
	Earlier      []int // the children that this process had before it became fini
	KnowsEarlier bool

	// Dir is where an heir was started. It is only text, because the tree may have put something else there, and the server
	// of the file system may not answer.
	Dir string
}

// Known returns the facts.
func Known() Facts {
	f := Facts{
		state: outer.state, Linked: atEntry.environ != 0, Pid: outer.Self, KnowsEarlier: atEntry.environ != 0 && outer.earliers >= 0, Dir: unix.ByteSliceToString(outer.dir[:]),
		Closed: [3]bool{atEntry.closed&1 != 0, atEntry.closed&2 != 0, atEntry.closed&4 != 0},
	}
	if f.Role != Inner {
		f.Pid, f.Group, f.Line = os.Getpid(), unix.Getpgrp(), -1
		f.Session, _ = unix.Getsid(0)
	}
	for _, word := range strings.Fields(string(outer.earlier[:max(outer.earliers, 0)])) {
		pid, _ := strconv.Atoi(word)
		f.Earlier = append(f.Earlier, pid)
	}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if atEntry.ignored&(1<<(sig-1)) != 0 {
			f.Ignored = append(f.Ignored, sig)
		}
	}
	if f.Linked {
		f.Blocked = &atEntry.blocked
	}
	if outer.stderrFlags != 0 { // see inherit
		_, _ = unix.FcntlInt(2, unix.F_SETFL, outer.stderrFlags)
	}
	return f
}

// An inner fini calls Settled once it catches signals. From then on it outlives the outer fini. If it is suspended then, the
// kernel continues it, so that it stops the tree.
func Settled() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }
