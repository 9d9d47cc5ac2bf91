package life

import (
	"cmp"
	"fmt"
	"syscall"
)

// Wanted contains the roles that the command line asks for.
type Wanted struct {
	Pause      bool
	Shield     *bool // whether to run as a pair; nil is like true
	Foreground *bool // whether the command remains in fini's process group; nil means only at a terminal
	ToGroup    bool  // whether signals are forwarded to the command's process group
}

// Facts are what a process of fini finds when it starts. If neither Inner nor Heir is set, it is a single process.
type Facts struct {
	Initial     bool // it is PID 1
	Inner, Heir bool
	Limited     bool          // it does not run package entry first, so it could not fork: see LimitedBuild
	NoFork      syscall.Errno // why it could not fork, or 0

	// of the outer fini, if this is the inner fini; PGID is 0 if it is outside of the PID namespace
	Pid, PGID, Session int
	Terminal           bool // it has a controlling terminal
}

// LimitedBuild is the message of a build that was linked without package entry's entry point. The Go runtime has then
// changed some of what fini has inherited.
const LimitedBuild = "this build has limits, because it is from go install: the command may find other signals " +
	"ignored or blocked " +
	"than without fini, and /dev/null instead of a closed stream; make build has no such limits on amd64 and arm64"

// A Plan is what a process of fini has to do, decided before the command starts. The plan of an heir is empty, because
// it doesn't start a command.
type Plan struct {
	Identity
	BeAlone       bool             // this inner fini has to ask for a single process, and exit
	NoShield      string           // why there is no pair although one is wanted, or ""
	Level         Level            // the level of the message NoShield
	Stops         []syscall.Signal // keep their default action, so that fini is suspended with its job
	Deathsig      syscall.Signal   // the kernel sends it to the command if this process is killed; 0 for none
	GivesTerminal bool             // put the command in the foreground of the terminal, if fini is there
}

// PlanOf decides what this process has to do. Package entry had to guess what the command line asks for, so this
// process may be a single process where a pair is wanted, or the other way round.
//
//	wanted  a single process     an inner fini
//	alone   continues            asks for a single process
//	pair    says why, continues  continues
//
// PID 1 and a pause never have an outer fini, so they don't warn about that.
func PlanOf(w Wanted, f Facts) (p Plan) {
	if f.Heir {
		return p
	}
	// In fini's own process group, a terminal and its shell treat the command as if fini weren't there. The first
	// process of a container has the terminal to itself. If its group is outside of the PID namespace, however, the
	// group has no number.
	inJob := (!f.Initial || f.PGID == 0) && !w.Pause && f.Terminal
	if w.Foreground != nil {
		inJob = *w.Foreground
	}
	if inJob {
		p.Job = cmp.Or(Job(f.PGID), OutsideJob)
	}
	p.Initial = f.Initial
	if f.Inner {
		p.Outer = f.Pid
	}
	p.ToGroup = p.Job == NoJob && w.ToGroup
	p.Leader = f.Session == f.Pid
	if p.Job != NoJob && !f.Inner { // an inner fini catches them instead
		p.Stops = suspending
	}
	switch pair := !w.Pause && (w.Shield == nil || *w.Shield); {
	case f.Initial: // the whole PID namespace ends with fini
		p.GivesTerminal = p.Job == NoJob
	case f.Inner:
		p.BeAlone = !pair || p.Job == OutsideJob
		p.Deathsig = syscall.SIGTERM // if both processes of fini are killed at once, at least ask the command to exit
	default:
		p.Deathsig = syscall.SIGKILL
		if pair {
			p.Level, p.NoShield = noShield(w, f, p.Job)
		}
	}
	return p
}

// noShield returns why there is no pair although one is wanted, and the level of the message about that.
func noShield(w Wanted, f Facts, job Job) (Level, string) {
	switch {
	case f.Limited && w.Shield != nil:
		return Always, LimitedBuild
	case f.Limited:
		return Detail, LimitedBuild
	case f.NoFork != 0:
		return Always, fmt.Sprintf("cannot fork: %v", f.NoFork)
	case job != OutsideJob: // for example because the value of a flag looks like a flag
		return Always, "a word in front of the command looks like --no-shield or --pause"
	}
	return Detail, "this process group is outside of the PID namespace, and the inner fini could not leave it"
}
