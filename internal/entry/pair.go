// Package entry contains the code that runs before the Go runtime. It records what fini has inherited, forks this
// process into a pair, and then runs the outer fini until there is more to do than sleep.
//
//	entry_*.s     where the kernel starts fini
//	entry.go      everything between that point and the runtime, including the fork
//	sleep.go      the outer fini, which carries out what step.go decides
//	step.go       the decisions of the outer fini, as pure functions
//	message.go    the messages that the two processes exchange
//	pair.go       the state of this process, and what the rest of fini learns from it
//	parent.go     the parent process: who it is, and how its death is noticed
//	streams.go    closes this process's copies of what the command inherits
//
// Before the runtime starts, the stack can't grow, there is no heap, and the runtime doesn't know any thread. Code that
// runs then must be nosplit, keep its data in package variables without Go pointers, and call only the kernel or other
// functions of this kind. A test reads the compiled code and fails if it calls anything else.
package entry

import (
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// atEntry is the state that fini inherited, recorded before the Go runtime changes signal dispositions and the signal
// mask. It is empty if fini was linked without -E or if there is no assembly for this architecture.
var atEntry struct {
	ignored, blocked   uint64  // bit n-1 is signal n
	closed             [3]bool // whether each standard stream was closed
	arguments, environ uintptr // addresses of argv and envp, which end with a 0
}

// word returns the word at an address that the kernel provided. See also calls.ByteAt.
//
//go:nosplit
func word(at uintptr) uintptr { return *(*uintptr)(unsafe.Add(nil, at)) }

// current is the state of this process. The fork copies it to the inner fini.
var current process

// MaxReports is the maximum number of --report flags.
const MaxReports = 4

// state is the part of a process that Origin passes on unchanged.
type state struct {
	Sleeper
	Failed         int             // the negative errno that prevented a pair
	PGID, Session  int             // the process group and session of the outer fini
	Socket         int             // this process's end of the socket pair
	Reports        [MaxReports]int // descriptors for the reports, or -1
	KnowsInherited bool            // whether inherited is complete
	Asked          time.Duration   // uptime when the first SIGTERM was relayed, or 0
}

// process is the state of this process before the runtime starts. It includes the buffers that the kernel writes to,
// because they don't fit on the stack and there is no heap.
type process struct {
	state
	inner int // pid of the inner fini

	signalFD int
	polled   [4]unix.PollFd // for SignalRead, MessageRead, PidfdReadable and Writable
	signal   unix.SignalfdSiginfo
	seen     Event
	control  struct { // see cmsg(3)
		length      uint64
		level, kind int32
		descriptors [MaxReports]int32
	}
	deadline    time.Duration // as an uptime
	stderrFlags int           // see inherit
	text        [4096]byte    // contents of a file in /proc
	// pids of the unreaped children from before the exec, or 0; a list of that many surely fits in text
	inherited [500]int32
	dir       [4096]byte // the working directory, terminated by a 0
}

// ParentSignal tells the outer fini that its parent process may have died, if the kernel has no pidfds. It is the last
// real-time signal, because that is the one least likely to be used for anything else.
const ParentSignal = 64

// A Role is the part that this process plays.
type Role int

const (
	Alone Role = iota // fini runs as a single process
	Inner             // the inner fini of a pair
	Heir              // the outer fini after the inner fini was killed
)

// InnerName is the command name of an inner fini (see PR_SET_NAME in prctl(2)). Because it differs from "fini",
// commands such as "pkill fini" signal only the outer fini. The arguments in /proc/PID/cmdline are not changed.
const InnerName = "reaper"

// An Origin is what this process knew before its runtime started.
type Origin struct {
	state

	// Linked reports whether the linker used the entry point of this package. If not, fini can't undo what the Go
	// runtime has changed and runs as a single process. The runtime then also obeys variables that are meant for the
	// main child, such as GODEBUG and GOMEMLIMIT.
	Linked bool

	// Like Ignored, these attributes survive execve(2), but the Go runtime changes them.
	Blocked *uint64 // bit n-1 is signal n; nil if unknown
	Closed  [3]bool // whether each standard stream was closed

	Pid       int   // pid of the outer fini, also in the inner fini; of this process if there is only one
	Inherited []int // children that this process had before it executed fini

	// Dir is the directory that an heir was started in. It is only a name and must not be opened, because the tree may
	// have replaced the directory, and a network file system may not respond.
	Dir string
}

// Known returns what this process recorded before its runtime started.
func Known() Origin {
	linked := atEntry.environ != 0
	if !linked {
		current.noteSelf()
	}
	o := Origin{state: current.state, Linked: linked, Closed: atEntry.closed, Pid: current.Self,
		Dir: unix.ByteSliceToString(current.dir[:])}
	for _, pid := range current.inherited {
		if pid != 0 {
			o.Inherited = append(o.Inherited, int(pid))
		}
	}
	if linked {
		o.Blocked = &atEntry.blocked
	}
	if current.stderrFlags != 0 { // see inherit
		_, _ = unix.FcntlInt(2, unix.F_SETFL, current.stderrFlags)
	}
	return o
}

// noteSelf records the pid, process group and session of this process, and who its parent is.
//
//go:nosplit
func (p *process) noteSelf() {
	p.signalFD, p.Socket, p.Ignored = -1, -1, atEntry.ignored
	for i := range p.Reports {
		p.Reports[i] = -1
	}
	p.Self, p.PGID, p.Session = getID(unix.SYS_GETPID), getID(unix.SYS_GETPGID), getID(unix.SYS_GETSID)
	p.Parent.Find()
}

//go:nosplit
func getID(call uintptr) int { return calls.Call(call, 0, 0, 0, 0) }

// OutliveOuter allows the inner fini to outlive the outer fini. The inner fini calls it as soon as it catches signals.
// If the outer fini dies while the inner fini is suspended, the kernel then continues the inner fini to stop the tree.
func OutliveOuter() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }

// Environ returns the environment that this process inherited, as strings of the form "name=value". A name may occur
// more than once. See environ(7).
func Environ() (environ []string) {
	if atEntry.environ == 0 {
		return os.Environ()
	}
	for at := atEntry.environ; word(at) != 0; at += 8 {
		environ = append(environ, calls.TextAt(word(at)))
	}
	return environ
}

// Getenv returns the value of a variable in the inherited environment, or "" if it is not set. os.Getenv wouldn't find
// it, because rebuild hides the environment from the Go runtime.
func Getenv(name string) string {
	for _, variable := range Environ() {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
