// Package entry is all of fini that runs before the Go runtime: it notes what fini has inherited, makes a pair of this
// process, and is the outer fini of that pair until the outer fini is needed for more than sleep.
//
//	entry_*.s     where the kernel starts fini
//	entry.go      the way from there to the runtime
//	inherited.go  what the runtime is about to change
//	fork.go       the fork
//	isolate.go    what an inner fini does in a user namespace of its own
//	sleep.go      the outer fini, which does as step.go decides
//	step.go       the decisions of the outer fini: a pure function
//	line.go       the messages between the two processes
//	pair.go       the state of this process, and what the rest of fini learns from all this
//
// Before the runtime there is no stack that grows, no heap, and no thread that the runtime knows. So these functions are
// nosplit, keep what they need in variables of the package that hold no Go pointer, and call nothing but the kernel. A
// test reads their machine code and refuses a call to anything else.
package entry

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// outer is the outer fini of a pair, and in an inner fini what that knew when it forked.
var outer process

// process is the state of this process before it has a runtime. There is no room on the stack for what the kernel
// writes, and there is no heap.
type process struct {
	Sleeper
	role    Role
	failed  int                          // the negative errno that hindered the pair, 0 if none did
	refused struct{ call, errno uint32 } // of an isolation

	parent, parentFD int // of the outer fini: the pid, 0 if it is outside of the PID namespace, and its pidfd or -1
	group, session   int // of the outer fini
	parentSession    int // negative if that can't be told
	parentGone       bool
	parentErr        int    // the negative errno for which ParentSignal does not tell of the parent's death
	inner            int    // the pid of the inner fini
	line             int    // this process's end
	proc             int    // in an isolated inner fini: /proc as the outer fini sees it
	user             bool   // an isolation has a user namespace
	uid, gid         int    // effective ones
	bounding         uint64 // the capability bounding set: bit n is capability n
	bound            [MaxBound]boundProcess
	bounds           int // how many of them there are
	reportFD         int

	signalFD int
	polled   [3]pollFD
	signal   unix.SignalfdSiginfo
	info     siginfo
	message  Message
	control  [3]uint64 // see cmsg(3)
	deadline int64     // in nanoseconds of CLOCK_MONOTONIC, 0 for none
	hungUp   bool
	probes   [64]int32
	text     [4096]byte // of a file, or a path
	earlier  [4096]byte // the children from before the exec, as /proc lists them
	earliers int        // how many bytes that are; -1 if there are more
	dir      [4096]byte // the working directory, with a 0 behind it
}

// boundProcess is a process of --bind, for an isolated inner fini, which can't open its pidfd.
type boundProcess struct{ pid, fd int32 }

// MaxBound is how many processes of --bind an isolated inner fini can have.
const MaxBound = 64

// pollFD is a unix.PollFd that waits for input.
type pollFD struct {
	fd              int32
	events, revents int16
}

// siginfo is as the kernel has it: see sigaction(2).
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status      int32
	_                     [25]int32
}

// ParentSignal tells the outer fini that its parent process may have died, if the kernel has no pidfds. The last real-time
// signal is the one least likely to be sent for another reason.
const ParentSignal = 64

// A Role is the part of this process.
type Role int

const (
	Alone Role = iota // fini is this one process
	Inner             // the inner fini of a pair
	Heir              // the outer fini, which the end of the inner fini has woken
)

// ThisRole returns the part that this process has since the fork.
func ThisRole() Role { return outer.role }

// Failed returns why the kernel let fini make no pair, nil if nothing hindered that.
func Failed() error {
	if outer.failed == 0 {
		return nil
	}
	return syscall.Errno(-outer.failed)
}

// Refused returns which call of an isolation was refused, and why; errno is 0 if none was.
func Refused() (call int, errno syscall.Errno) {
	return int(outer.refused.call), syscall.Errno(outer.refused.errno)
}

// Isolated reports whether this process is, or was the outer fini of, an isolated inner fini, and whether that has a user
// namespace.
func Isolated() (is, user bool) { return outer.Isolated, outer.user }

// A Launcher is what an outer fini knew about the process that started it. In an inner fini these facts are the outer
// fini's; pids are those of the outer fini's PID namespace.
type Launcher struct {
	Pid     int   // 0 if it is outside of the PID namespace
	FD      int   // a pidfd, -1 if there is none
	Session int   // negative if that can't be told
	Gone    bool  // it exited before fini could look
	Err     error // why the outer fini does not learn of its end
	Proc    int   // a descriptor of /proc in which these pids are found; -1 for that of this process
}

// ParentProcess returns the process that started fini.
func ParentProcess() Launcher {
	launcher := Launcher{Pid: outer.parent, FD: outer.parentFD, Session: outer.parentSession, Gone: outer.parentGone, Proc: outer.proc}
	if outer.parentErr != 0 {
		launcher.Err = syscall.Errno(-outer.parentErr)
	}
	return launcher
}

// Outer returns the pid, process group and session of the outer fini.
func Outer() (pid, group, session int) { return outer.Self, outer.group, outer.session }

// Bound returns the pidfd that the outer fini has opened for the process pid, a negative errno if the kernel refused it, or
// ok false if it was not asked to.
func Bound(pid int) (fd int, ok bool) {
	for _, b := range outer.bound[:outer.bounds] {
		if int(b.pid) == pid {
			return int(b.fd), true
		}
	}
	return -1, false
}

// Earlier returns the children that this process had before it became fini. ok is false if they are not known.
func Earlier() (pids []int, ok bool) {
	for _, word := range strings.Fields(string(outer.earlier[:max(outer.earliers, 0)])) {
		pid, _ := strconv.Atoi(word)
		pids = append(pids, pid)
	}
	return pids, Linked() && outer.earliers >= 0
}

// LineFD is the inner fini's end of the line.
func LineFD() int { return outer.line }

// Settled is called by an inner fini that catches signals: it outlives the outer fini from then on.
func Settled() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) }

// An Inheritance is what an heir has to go by.
type Inheritance struct {
	Main     int                // the pid of the command, 0 if it was not started
	Status   syscall.WaitStatus // to end by: that of the inner fini, or if Done that of the command
	Done     bool               // the inner fini had done its work
	GaveUp   bool               // it does not end: it is the init of a PID namespace in which a process does not
	EndBy    syscall.Signal     // the signal that asked fini to end before the command was started, 0 for none
	ReportFD int                // the place of the report, -1 for none
}

// Inherit returns the inheritance of an heir, and takes this process back to the directory in which it was started.
func Inherit() Inheritance {
	if outer.dir[0] != 0 {
		_ = os.Chdir(unix.ByteSliceToString(outer.dir[:]))
	}
	return Inheritance{int(outer.Main), syscall.WaitStatus(outer.Status), outer.Done, outer.GaveUp, syscall.Signal(outer.EndBy), outer.reportFD}
}
