package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// whom is the policy about processes that the command has left running: whom fini stops, and by which signal. The sweep
// asks it about leftovers after the command's exit, and --orphan-timeout about orphans before that. Only their clocks
// differ: see stage and orphan.
type whom struct {
	Rules
	*records
}

// spares is why the policy or --allow-orphan spares a leftover, "" if neither does.
func (w whom) spares(p orphans.Process) string {
	switch {
	case p.Allowed:
		return ByName
	case w.Orphans == StopPipes && p.Holds.May() == 0:
		// A process whose descriptors fini may not see may be a holder: the policy promises the reader its EOF.
		return StopPipes
	}
	return ""
}

// refusing returns the pids of those that fini may not send SIGKILL, and of their descendants. Parents come before their
// children in found.
func (w whom) refusing(found []orphans.Process) (pids []int) {
	for _, p := range found {
		of := w.of(p)
		if _, killed := of.had(syscall.SIGKILL); killed && of.refused || slices.Contains(pids, p.Parent) {
			pids = append(pids, p.Pid)
		}
	}
	return pids
}

// cleanUp returns the signal by which each leftover was asked to exit, by fini or with its group. It spares the processes
// that a living leftover has started since then, and returns its signal for them too. The leftover has to finish them
// itself: its clean-up may need a sleep or an rm. A process that started within the tick of the request counts too. So
// does a process whose start is unknown, if trusts says so: see startUnknown. Parents come before their children in found.
// A process that came in from outside finishes all that it has started: one that is a fini would pass on SIGTERM to
// processes that have had it.
func (w whom) cleanUp(found []orphans.Process, trusts bool) (since map[int]Sent, spared map[int]bool) {
	since, spared = map[int]Sent{}, map[int]bool{}
	for _, p := range found {
		parent, ok := since[p.Parent]
		first, asked := w.asked(p)
		switch {
		case p.Entered:
			since[p.Pid] = Sent{}
		case ok && (p.Start+tick > parent.At || p.Start == 0 && trusts):
			since[p.Pid], spared[p.Pid] = parent, true
		case asked:
			since[p.Pid] = first
		}
	}
	return since, spared
}

// holdersFirst sorts the processes outside of the main child's group that keep a reader waiting before all others.
func (w whom) holdersFirst(found []orphans.Process) []orphans.Process {
	var holders, others []orphans.Process
	for _, p := range found {
		if p.Holds.May() != 0 && p.Group != w.commandGroup(w.main.Pid) {
			holders = append(holders, p)
		} else {
			others = append(others, p)
		}
	}
	return append(holders, others...)
}

// An asked is how fini has asked a process to exit.
type asked int

const (
	askedBefore asked = iota // it was, by itself or with the command's group
	askedNow
	askedAgain // it had SIGINT with the command's group, and has SIGTERM now
	askedLater // it had SIGINT with the command's group, and half of --grace to act on that
)

// question names a process, and sends it SIGTERM if it has not had it. top is the orphan from which it descends, 0 after
// the command's exit: see tell.
func (w whom) question(now time.Duration, p orphans.Process, urgent bool, top int) (do []action, how asked) {
	of := w.of(p)
	if _, had := of.had(syscall.SIGTERM); had {
		return nil, askedBefore
	}
	if of == nil {
		w.count++
		if held, _ := p.Holds.Held(); w.Orphans == StopPipes && held == 0 {
			w.unsure++
		}
		do = append(do, tell{process: p, what: "stopping", quietly: w.count > MaxNamed, top: top})
	}
	first, wasAsked := w.askedWithGroup(p)
	switch {
	case w.hadWithGroup(p, syscall.SIGTERM):
		how = askedBefore
	case wasAsked && !urgent && now < first.At+w.Grace/2+w.givenBack:
		if of != nil {
			return do, askedLater
		}
		how = askedLater
	default:
		do = append(do, send{process: p, sig: syscall.SIGTERM})
		if how = askedNow; wasAsked {
			how = askedAgain
		}
	}
	if p.State == 'T' {
		do = append(do, send{process: p, sig: syscall.SIGCONT}) // a suspended process can't act on SIGTERM
	}
	return do, how
}

// strike sends SIGKILL to a process, and names it the first time. top is as in question.
func (w whom) strike(p orphans.Process, top int) (do []action) {
	if _, killed := w.of(p).had(syscall.SIGKILL); !killed {
		do = append(do, tell{process: p, what: "killing", quietly: w.count > MaxNamed, top: top})
	}
	return append(do, send{process: p, sig: syscall.SIGKILL})
}

// keeps is until when a leftover has time that was asked with the command's group.
func (w whom) keeps(first Sent) time.Duration { return first.At + w.Grace + w.givenBack }

// unread says, once, that fini can't tell whether --allow-orphan means one of these processes.
func (w whom) unread(found []orphans.Process) []action {
	i := slices.IndexFunc(found, func(p orphans.Process) bool { return p.Unread })
	if i < 0 || w.saidUnread {
		return nil
	}
	w.saidUnread = true
	return []action{say{level: Normal, text: fmt.Sprintf("cannot read the command line or environment of leftover %d (%s), "+
		"so --allow-orphan does not match it", found[i].Pid, found[i].Name)}}
}
