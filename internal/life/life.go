// Package life decides what becomes of a command and of its leftovers. It never makes a system call or reads a clock: a
// Kernel reports what happens, and carries out what the package decides.
//
//	PlanOf   settles, before the command starts, what this process has to do
//	Loop     takes in what the Kernel reports, asks a machine, and carries out its actions
//	Signal   is one that fini has received: signal.go has every question about it
//	Record   is what fini has sent to the main child or to a leftover, and when
//	ladder   the machine that stops a command
//	sweep    the machine that stops a command's leftovers
//	paused   the machine of --pause
//
// The tables of the ladder and of the sweep are in the comments over the types rung and stage. The tests run the same
// Loop and the same machines in a model of the kernel, try every order of events, and compare the tables with that.
package life

import (
	"syscall"
	"time"
)

// Level says when a line is written.
type Level int

const (
	Always Level = iota // even with -q
	Normal
	Detail // only with -v
)

// A Result is how a process has ended: by the signal Sig, or with an exit code if Sig is 0.
type Result struct {
	Sig  syscall.Signal
	Code int
}

// ResultOf is the Result that wait(2) gives as a status.
func ResultOf(s syscall.WaitStatus) Result {
	if s.Signaled() {
		return Result{Sig: s.Signal()}
	}
	return Result{Code: s.ExitStatus()}
}

// Status is the result as a shell gives it.
func (r Result) Status() int {
	if r.Sig != 0 {
		return 128 + int(r.Sig)
	}
	return r.Code
}

// WaitStatus is the result as wait(2) gives it.
func (r Result) WaitStatus() syscall.WaitStatus { return syscall.WaitStatus(int(r.Sig) | r.Code<<8) }

// Exit statuses of fini's own.
const (
	exitTimedOut = 124
	ExitFailed   = 125 // fini can't do what it was asked for, and the command has not run or was stopped
)

// A Reason is why fini itself stops a command.
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

	Reasons // how many there are
)

// overrules reports whether the reason overrides --orphans: the process that could want leftovers is gone.
func (r Reason) overrules() bool { return r == ParentDied || r == FiniDied || r == BoundEnded }

// String is the reason in a report, as its schema has it; "" for none.
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

// Rules are all that a life obeys.
type Rules struct {
	Policy
	Identity
}

// A Policy is everything that the command line asks of a life. Each machine has a copy, and some reasons overrule
// Orphans in it. Where a comment says "the policy", it means Orphans in this copy.
type Policy struct {
	Grace, Linger time.Duration
	OrphansGrace  time.Duration    // how long leftovers that the sweep asks may take to exit
	KillAfter     time.Duration    // 0 for off
	StopWithin    time.Duration    // from the first wait of a stop to the end of fini; 0 for off
	Timeout       time.Duration    // 0 for none
	Idle          time.Duration    // 0 for none
	StopSignals   []syscall.Signal // what a stop for another reason sends, one after the other, each with Grace
	Deathsig      syscall.Signal   // the stop signal when the parent process has died
	Orphans       string
	Allow         bool // some leftovers are left alone: --allow-orphan
	OrphansExit   int  // -1 for none
	Remap         []int
	WarnReaped    bool
	Reports       bool // there is a --report
	Rewrite       map[syscall.Signal]syscall.Signal
	Pause         bool // there is no command
}

// An Identity is the place of this process and of the command among other processes.
type Identity struct {
	Initial bool // this process is PID 1
	Before  bool // it may have children from before it became fini, to be asked last: see parting
	Group   bool // forwarded signals go to the main child's group, and not to the main child alone
	Leader  bool // of the session: a hang-up reaches fini alone
	Job     int  // the job's process group, if the command is in the job; 0 if the command has a group of its own
	Outer   int  // the pid of the outer fini, if this is the inner fini

	Ignored []syscall.Signal // signals ignored when fini started, and when the command started: see asksBy
}

// OutsideJob, as Identity.Job, is a process group without a number, because it is outside of the PID namespace.
const OutsideJob = -1

// commandGroup is the process group of the command, as proc_pid_stat(5) has it: 0 for OutsideJob.
func (i Identity) commandGroup(main int) int {
	if i.Job == 0 {
		return main
	}
	return max(i.Job, 0)
}

// The policies of --orphans.
const (
	StopAll   = "stop"
	StopPipes = "pipes"
	WaitAll   = "wait"
	LeaveAll  = "leave"
)

// ByName is the word of a report for a leftover that --allow-orphan spares. The policies StopPipes and LeaveAll are the
// words for others that fini spares.
const ByName = "allow-orphan"

const (
	// How long fini waits once SIGKILL doesn't reach new processes any more. A killed process may have much memory to
	// give back, or be in uninterruptible sleep. A process that fini may not signal can only exit by itself. Both times
	// are guesses.
	killedBound  = 10 * time.Second
	refusedBound = 2 * time.Second

	// A sender that kills the parent process, or both processes of a pair, sends the same signal within this time. The
	// time is a guess.
	sameEnd = time.Second

	// If the parent process dies within this time of the end of standard input, its death was the cause of that end. The
	// time is a guess.
	crash = 100 * time.Millisecond
)
