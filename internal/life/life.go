// Package life decides what happens to a command and its leftovers. It never makes a system call or reads a clock. A
// Kernel tells it what happens and carries out what it decides.
//
//	PlanOf   decides, before the command starts, what this process has to do
//	Loop     receives events from the Kernel, asks a machine, and carries out its actions
//	Signal   is a signal that fini has received; signal.go answers every question about it
//	Record   is what fini has sent to the main child or a leftover, and when
//	ladder   is the machine that stops a command
//	sweep    is the machine that stops a command's leftovers
//	whom     decides whom fini stops of them, and of orphans while the command runs
//	paused   is the machine of --pause
//	parting  is the machine that stops inherited children when PID 1 ends
//
// For the states of the ladder and the sweep, see the tables over the types rung and stage. The tests run the same loop
// and machines in a model of the kernel, try every order of events, and compare the tables with what happens.
package life

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/reaper"
)

// Level says when a message is written.
type Level int

const (
	Always Level = iota // even with -q
	Normal
	Detail // only with -v
)

// A Result is the way in which a process ended. If Sig is 0, it exited with Code, and otherwise the signal killed it.
type Result struct {
	Sig  syscall.Signal
	Code int
}

// ResultOf converts a wait status to a Result.
func ResultOf(s syscall.WaitStatus) Result {
	if s.Signaled() {
		return Result{Sig: s.Signal()}
	}
	return Result{Code: s.ExitStatus()}
}

// Status returns the exit status that a shell would report.
func (r Result) Status() int {
	if r.Sig != 0 {
		return 128 + int(r.Sig)
	}
	return r.Code
}

// WaitStatus converts a Result to a wait status.
func (r Result) WaitStatus() syscall.WaitStatus { return syscall.WaitStatus(int(r.Sig) | r.Code<<8) }

// These exit statuses are from fini itself, not from the command.
const (
	exitTimedOut = 124
	ExitFailed   = reaper.NoProcess // fini can't do what it was asked to, and the command has not run or was stopped
)

// A Reason says why fini itself stops a command.
type Reason int

const (
	NoReason Reason = iota
	ParentDied
	FiniDied   // the outer fini of a pair was killed
	BoundEnded // --bind
	StdinClosed
	TimedOut
	WentIdle
	NotEnded  // --kill-after
	OutOfTime // --stop-within

	Reasons // number of reasons
)

// overrules reports whether the reason overrides --orphans, because whoever wanted to keep leftovers is gone.
func (r Reason) overrules() bool { return r == ParentDied || r == FiniDied || r == BoundEnded }

// String returns the word for the reason in a report, or "" for NoReason.
func (r Reason) String() string {
	return [Reasons]string{
		ParentDied:  "launcher",
		FiniDied:    "fini",
		BoundEnded:  "bind",
		StdinClosed: "stdin",
		TimedOut:    "timeout",
		WentIdle:    "idle",
		NotEnded:    "killAfter",
		OutOfTime:   "stopWithin",
	}[r]
}

// Rules combines all rules for a life.
type Rules struct {
	Policy
	Identity
}

// A Policy contains what the command line asks for. Each machine has its own copy, in which some reasons change
// Orphans. In comments, "the policy" is the value of Orphans in that copy.
type Policy struct {
	Grace, Linger time.Duration
	OrphansGrace  time.Duration // time for leftovers to exit after SIGTERM
	KillAfter     time.Duration // 0 for never
	StopWithin    time.Duration // from the first wait for a stop to the end of fini; 0 for no limit
	Timeout       time.Duration // 0 for no limit
	Idle          time.Duration // 0 for no limit
	OrphanTimeout time.Duration // 0 for never: see orphan
	// sent one after another, with Grace for each; StopOnDeath is used for reasons that overrule
	StopSignals []syscall.Signal
	StopOnDeath syscall.Signal // stop signal after the death of the parent, a --bind process, or a process of fini
	Orphans     string
	Allow       bool // --allow-orphan is set
	OrphansExit int  // -1 if not set
	Remap       []int
	WarnReaped  bool
	Reports     bool // --report is set
	Rewrite     map[syscall.Signal]syscall.Signal
	Pause       bool // there is no command
}

// An Identity describes how this process and the command are related to other processes.
type Identity struct {
	Initial      bool // this process is PID 1
	HasInherited bool // it may have children from before it executed fini: see parting
	ToGroup      bool // signals are forwarded to the main child's group rather than only to the main child
	Leader       bool // it leads the session, so only fini receives SIGHUP when the terminal hangs up
	Job          Job
	Outer        int // pid of the outer fini, if this is the inner fini

	Ignored []syscall.Signal // signals that were ignored when fini started, and so in the command: see requestBy
}

// A Job is the PGID of the job that fini and the command share, or one of these.
type Job int

const (
	NoJob      Job = 0  // the command has a process group of its own
	OutsideJob Job = -1 // the process group is outside of the PID namespace, so it has no number here
)

// commandGroup returns the command's process group as in proc_pid_stat(5), which is 0 for OutsideJob.
func (i Identity) commandGroup(main int) int {
	if i.Job == NoJob {
		return main
	}
	return max(int(i.Job), 0)
}

// These are the policies of --orphans.
const (
	StopAll   = "stop"
	StopPipes = "pipes"
	WaitAll   = "wait"
	LeaveAll  = "leave"
)

// ByName is the reason that a report gives for sparing a leftover that --allow-orphan names. For other spared
// leftovers, the reason is the policy, which is StopPipes or LeaveAll.
const ByName = "allow-orphan"

const (
	// These limit the wait after SIGKILL. A killed process may have to free much memory, or be in uninterruptible
	// sleep. A process that fini may not signal can only exit by itself. Both times are guesses.
	killedLimit  = 10 * time.Second
	refusedLimit = 2 * time.Second

	// A supervisor may send a signal to the parent process or to one process of the pair, and then the same signal to
	// the others. fini takes equal signals within this time as one stop. It is a guess.
	sameEnd = time.Second
)
