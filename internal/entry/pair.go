// Package entry is all of fini that runs before the Go runtime. It records what fini has inherited and makes a pair of
// this process. It then runs as the outer fini of that pair until the outer fini has to do more than sleep.
//
//	entry_*.s     where the kernel starts fini
//	entry.go      the way from there to the runtime, and the fork
//	sleep.go      the outer fini, which acts as step.go decides
//	step.go       the decisions of the outer fini: a pure function
//	line.go       the messages between the two processes
//	pair.go       the state of this process, inherited and its own, and the facts in it for the rest of fini
//
// Before the runtime starts, there is no stack that grows, no heap, and no thread that the runtime knows. So the
// functions that run before it are nosplit, keep their data in variables of the package that hold no Go pointer, and
// call only the kernel, and functions of the same kind in other packages. A test reads their machine code and refuses a
// call to anything else.
package entry

import (
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// atEntry is the state that fini inherited, before the Go runtime caught the ignored signals, and unblocked some of the
// blocked signals. If fini was linked without -E, or there is no entry for the architecture, atEntry is empty.
var atEntry struct {
	ignored, blocked   uint64  // bit n-1 is signal n
	closed             [3]bool // of the standard streams
	arguments, environ uintptr // where the kernel put them; each ends with a 0
}

// word is the word at an address from the kernel: see ByteAt in package proc.
//
//go:nosplit
func word(at uintptr) uintptr { return *(*uintptr)(unsafe.Add(nil, at)) }

// outer is the state of the outer fini of a pair, and in an inner fini a copy from the time of the fork.
var outer process

// MaxReports is how many --report flags there may be.
const MaxReports = 4

// state is what the rest of fini gets as it is: see Facts.
type state struct {
	Sleeper
	Failed         int             // the negative errno that prevented the pair
	Group, Session int             // of the outer fini
	Line           int             // this process's end
	Reports        [MaxReports]int // the descriptors of the reports' places, or -1
	KnowsEarlier   bool            // Earlier could be read
	Asked          time.Duration   // when the first SIGTERM was relayed, as uptime; 0 if none was
}

// process is the state of this process before it has a runtime. It also holds the data that the kernel writes, because
// they don't fit on the stack and there is no heap.
type process struct {
	state
	inner int // the pid of the inner fini

	signalFD int
	polled   [4]unix.PollFd // for Caught, Said, ParentEnded and Room
	signal   unix.SignalfdSiginfo
	seen     Seen
	control  struct { // see cmsg(3)
		length      uint64
		level, kind int32
		descriptors [MaxReports]int32
	}
	deadline    time.Duration // as uptime
	stderrFlags int           // see inherit
	text        [4096]byte    // of a file
	earlier     [500]int32    // the children from before the exec that have not been reaped, and zeros; as many as surely fit in text
	dir         [4096]byte    // the working directory, with a 0 at its end
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

	// Like Ignored, these are attributes that a process keeps across execve(2) and that the Go runtime changes.
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
		outer.noteSelf()
	}
	f := Facts{state: outer.state, Linked: linked, Closed: atEntry.closed, Pid: outer.Self, Dir: unix.ByteSliceToString(outer.dir[:])}
	for _, pid := range outer.earlier {
		if pid != 0 {
			f.Earlier = append(f.Earlier, int(pid))
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

// noteSelf records what this process is, and which process started it.
//
//go:nosplit
func (p *process) noteSelf() {
	p.signalFD, p.Line, p.Ignored = -1, -1, atEntry.ignored
	for i := range p.Reports {
		p.Reports[i] = -1
	}
	p.Self, p.Group, p.Session = getID(unix.SYS_GETPID), getID(unix.SYS_GETPGID), getID(unix.SYS_GETSID)
	p.Parent.Find()
}

//go:nosplit
func getID(call uintptr) int { return proc.Call(call, 0, 0, 0, 0) }

// An inner fini calls OutliveOuter once it catches signals. From then on it outlives the outer fini. If it is suspended then, the
// kernel continues it, so that it stops the tree.
func OutliveOuter() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }

// Environ returns the environment that this process got, as strings "name=value". A name may come twice. See
// environ(7).
func Environ() (environ []string) {
	if atEntry.environ == 0 {
		return os.Environ()
	}
	for at := atEntry.environ; word(at) != 0; at += 8 {
		environ = append(environ, proc.TextAt(word(at)))
	}
	return environ
}

// Getenv returns the value of a variable in the environment that this process got, "" if the variable is not set.
// os.Getenv would find nothing: see rebuild. See getenv(3).
func Getenv(name string) string {
	for _, variable := range Environ() {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
