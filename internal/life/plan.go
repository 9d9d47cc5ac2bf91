package life

import (
	"cmp"
	"fmt"
	"syscall"
)

// Wanted is what the command line asks of the processes of fini.
type Wanted struct {
	Pause      bool
	Shield     *bool // a pair; nil for the default, which is a pair too
	Foreground *bool // the command stays in fini's process group; nil for the default: at a terminal
	ToGroup    bool  // forwarded signals go to the command's process group
}

// Facts are what a process of fini finds when it starts. A process that is neither Inner nor Heir is alone.
type Facts struct {
	Initial     bool // it is PID 1
	Inner, Heir bool
	Limited     bool          // it has no entry of its own, and so could not fork: see LimitedBuild
	NoFork      syscall.Errno // why it could not fork, 0 if it could or did not try

	Pid, Group, Session int  // of the outer fini, if this is the inner fini. Group is 0 if it is outside of the PID namespace
	Terminal            bool // it has a controlling terminal
}

// LimitedBuild is the message of a build whose first instructions are the Go runtime's, which changes what fini has
// inherited.
const LimitedBuild = "a build with limits, as go install makes them: the command may see other ignored and blocked signals " +
	"than without fini, and /dev/null for a closed stream; make build has no such limits, on amd64 and arm64"

// A Plan is what a process of fini has to do, as settled before the command starts. The plan of an heir is empty, because it
// doesn't start a command.
type Plan struct {
	Identity
	BeAlone       bool             // this inner fini should not exist: it asks the outer fini to be alone, and exits
	NoShield      string           // why there is no shield, if one is asked for; "" otherwise
	Level         Level            // how much NoShield matters
	Stops         []syscall.Signal // that suspend the job: fini leaves them at their default action, to be suspended too
	Deathsig      syscall.Signal   // what the kernel sends to the command if this process is killed; 0 for none
	GivesTerminal bool             // to the command, if fini is in the foreground of its controlling terminal
}

// PlanOf settles what this process is to do, because package entry has only guessed what the command line asks for.
//
//	wanted  this process is alone  inner
//	alone   goes on                asks for it
//	pair    says why it is alone   goes on
//
// PID 1 and a fini that pauses never have an outer fini, so they don't warn.
func PlanOf(w Wanted, f Facts) (p Plan) {
	if f.Heir {
		return p
	}
	// A terminal and its shell treat a command in fini's group as if fini were not there. The first process of a container
	// has a terminal to itself, unless its group is outside of the PID namespace, where the group has no number.
	stay := (!f.Initial || f.Group == 0) && !w.Pause && f.Terminal
	if w.Foreground != nil {
		stay = *w.Foreground
	}
	if stay {
		p.Job = cmp.Or(f.Group, OutsideJob)
	}
	p.Initial = f.Initial
	if f.Inner {
		p.Outer = f.Pid
	}
	p.Group = p.Job == 0 && w.ToGroup
	p.Leader = f.Session == f.Pid
	if p.Job != 0 && !f.Inner { // an inner fini catches them
		p.Stops = suspending
	}
	switch pair := !w.Pause && (w.Shield == nil || *w.Shield); {
	case f.Initial: // the whole PID namespace dies with fini
		p.GivesTerminal = p.Job == 0
	case f.Inner:
		p.BeAlone = !pair || p.Job == OutsideJob
		p.Deathsig = syscall.SIGTERM // if both fini are killed at once, the kernel at least asks the command to end
	default:
		p.Deathsig = syscall.SIGKILL
		if pair {
			p.Level, p.NoShield = noShield(w, f, p.Job)
		}
	}
	return p
}

// noShield says why a process that should be one of a pair is alone, and how much that matters.
func noShield(w Wanted, f Facts, job int) (Level, string) {
	switch {
	case f.Limited && w.Shield != nil:
		return Always, LimitedBuild
	case f.Limited:
		return Detail, LimitedBuild
	case f.NoFork != 0:
		return Always, fmt.Sprintf("cannot fork: %v", f.NoFork)
	case job != OutsideJob: // for example a flag's value that looks like a flag
		return Always, "a word in front of the command looks like --no-shield or --pause"
	}
	return Detail, "this process group is outside of the PID namespace, and the inner fini could not leave it"
}
