package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// A whom decides which leftover processes are stopped, and with which signal. The sweep uses it for leftovers after the
// command's exit, and --orphan-timeout uses it for orphans before that. They differ only in their times. See stage and
// orphan.
type whom struct {
	Rules
	*records
}

// sparedBy returns the reason for sparing a leftover, or "" if fini must stop it.
func (w whom) sparedBy(p orphans.Process) string {
	switch {
	case p.Allowed:
		return ByName
	case w.Orphans == StopPipes && p.Holds.May() == 0:
		// Stop a process whose descriptors fini may not read, because the reader of the pipe must not wait for it.
		return StopPipes
	}
	return ""
}

// refusing returns the pids of processes that fini may not send SIGKILL to, and of their descendants. In found, parents
// must come before their children.
func (w whom) refusing(found []orphans.Process) (pids []int) {
	for _, p := range found {
		of := w.of(p)
		if _, killed := of.wasSent(syscall.SIGKILL); killed && of.refused || slices.Contains(pids, p.Parent) {
			pids = append(pids, p.Pid)
		}
	}
	return pids
}

// cleanUp returns since, the signal that asked each leftover to exit, and spared, the processes that a living leftover
// has started after that signal. Such a process inherits the leftover's signal. It is spared because it may be a
// command that the leftover runs to clean up, such as rm, and the leftover must wait for it. A process that started in
// the same tick is spared too, and so is one whose start is unknown, if trusts is true. See startUnknown. Whatever has
// been started by a process that has entered the namespace is left to that process. If it is a fini, it would relay
// SIGTERM to processes that have received it already. In found, parents must come before their children.
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

// holdersFirst moves processes to the front that keep a reader waiting and are outside of the main child's group.
func (w whom) holdersFirst(found []orphans.Process) []orphans.Process {
	var holders, others []orphans.Process
	for _, p := range found {
		if p.Holds.May() != 0 && p.PGID != w.commandGroup(w.main.Pid) {
			holders = append(holders, p)
		} else {
			others = append(others, p)
		}
	}
	return append(holders, others...)
}

// asked says how fini has asked a process to exit.
type asked int

const (
	askedBefore asked = iota // asked earlier, whether alone or with the command's group
	askedNow
	askedAgain // sent SIGTERM now, after it received SIGINT with the command's group
	askedLater // has half of --grace to react to the SIGINT that it received with the command's group
)

// askToExit returns the actions that ask a process to exit, unless it was asked before. top is the orphan that the
// process descends from, or 0 after the command's exit. See tell.
func (w whom) askToExit(now time.Duration, p orphans.Process, urgent bool, top int) (do []action, how asked) {
	of := w.of(p)
	if _, had := of.wasSent(syscall.SIGTERM); had {
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
	case w.wasSentWithGroup(p, syscall.SIGTERM):
		how = askedBefore
	case wasAsked && !urgent && now < first.At+w.Grace/2+w.givenBack:
		if of != nil {
			return do, askedLater
		}
		how = askedLater
	default:
		do = append(do, signalLeftover{process: p, sig: syscall.SIGTERM})
		if how = askedNow; wasAsked {
			how = askedAgain
		}
	}
	if p.State == 'T' {
		do = append(do, signalLeftover{process: p, sig: syscall.SIGCONT}) // a suspended process can't react to SIGTERM
	}
	return do, how
}

// killOne returns the actions that kill a process. The first time, they include a message. For top, see askToExit.
func (w whom) killOne(p orphans.Process, top int) (do []action) {
	if _, killed := w.of(p).wasSent(syscall.SIGKILL); !killed {
		do = append(do, tell{process: p, what: "killing", quietly: w.count > MaxNamed, top: top})
	}
	return append(do, signalLeftover{process: p, sig: syscall.SIGKILL})
}

// keeps returns until when a leftover that was asked with the command's group may take to exit.
func (w whom) keeps(first Sent) time.Duration { return first.At + w.Grace + w.givenBack }

// unread returns a message, but only once, that fini can't tell whether --allow-orphan matches one of these processes.
func (w whom) unread(found []orphans.Process) []action {
	i := slices.IndexFunc(found, func(p orphans.Process) bool { return p.Unread })
	if i < 0 || w.saidUnread {
		return nil
	}
	w.saidUnread = true
	return []action{say{level: Normal, text: fmt.Sprintf("cannot read the command line or environment of leftover "+
		"%d (%s), "+
		"so --allow-orphan does not match it", found[i].Pid, found[i].Name)}}
}
