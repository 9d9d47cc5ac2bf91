package life

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// An orphan is a child of fini other than the main child. Its parent has exited, so the kernel has reparented it to
// fini. With --orphan-timeout, fini stops orphans and their descendants while the command runs. Because no event
// reports a new orphan, fini lists its children twice in that time.
//
//	what fini finds                            what follows
//	a child that is not in an earlier list     fini remembers when it was first listed
//	the same child after --orphan-timeout      fini looks at the tree. It sends SIGTERM to the child and its descendants,
//	                                           as to leftovers. What whom spares is looked at again after that time
//	one that was asked, --orphans-grace later  SIGKILL, also for what it has started since to clean up
//
// After the command's exit, the sweep takes over, and asks nobody a second time.
type orphan struct {
	since time.Duration // uptime when fini first listed it
	due   time.Duration // uptime when fini looks at it
}

// partsOfGrace is how often fini lists its children while it waits for an orphan to exit. Each interval counts only for
// its intended length, so time during which fini was frozen or suspended does not count.
const partsOfGrace = 8

type (
	list struct { // lists the children of fini; replaces the previous list; listed is the result
		after time.Duration
	}
	listed struct {
		pids  []int // includes zombies
		after time.Duration
		err   error
	}
)

// lookForOrphans returns the time from one list of children to the next.
func (p Policy) lookForOrphans() time.Duration { return p.OrphanTimeout / 2 }

func (a list) do(l *Loop) { l.listAfter, l.listAt = a.after, l.Now()+a.after }

// onListed handles a list of fini's children. It asks for a look if an orphan is due.
func (w whom) onListed(now time.Duration, e listed) (do []action) {
	if e.err != nil {
		if !w.saidBlind {
			w.saidBlind = true
			do = append(do, say{level: Normal, text: fmt.Sprintf("%v; --orphan-timeout has no effect until this changes",
				e.err)})
		}
		return append(do, list{w.lookForOrphans()})
	}
	looks := false
	for pid := range w.orphans {
		if !slices.Contains(e.pids, pid) { // only a process that was made with CLONE_AUTOREAP: see collect
			delete(w.orphans, pid)
		}
	}
	for _, pid := range e.pids {
		o, known := w.orphans[pid]
		switch {
		case pid == w.main.Pid:
		case !known:
			w.orphans[pid] = orphan{since: now, due: now + w.OrphanTimeout}
		default:
			looks = looks || now >= o.due
		}
	}
	after := w.lookForOrphans()
	for _, of := range w.leftovers {
		if !of.inHand() {
			continue
		}
		of.waited += e.after
		left, asked := w.timeLeft(now, of)
		looks = looks || !asked || left <= 0
		after = min(after, max(left, tick), w.partOfGrace())
	}
	if looks {
		do = append(do, look{})
	}
	return append(do, list{after})
}

// partOfGrace returns how long fini waits before it lists the processes again, while an orphan may still exit by
// itself.
func (p Policy) partOfGrace() time.Duration { return max(p.OrphansGrace/partsOfGrace, tick) }

// inHand reports whether fini has begun to stop a process but has not sent it SIGKILL yet. The policy may have spared
// the process since then, for example because it has closed its stdout.
func (r *Record) inHand() bool {
	_, killed := r.wasSent(syscall.SIGKILL)
	return !killed && !r.spared
}

// timeLeft returns how long an orphan may still take to exit, if it was asked to.
func (w whom) timeLeft(now time.Duration, of *Record) (left time.Duration, asked bool) {
	term, asked := of.wasSent(syscall.SIGTERM)
	end := term.At + w.OrphansGrace
	if term.ToGroup {
		end = w.keeps(term)
	}
	return max(end-now, w.OrphansGrace-of.waited), asked
}

// stopOrphans returns the actions that stop the orphans whose time is up. e is the result of a look at the tree while
// the command runs.
func (w whom) stopOrphans(now time.Duration, e looked) (do []action) {
	if w.OrphanTimeout == 0 || e.Nameless {
		return nil
	}
	w.forget(e.Found)
	var mine []orphans.Process
	tops := map[int]int{} // from each process that may be stopped to the orphan from which it descends
	for _, p := range e.Found {
		o, is := w.orphans[p.Pid]
		switch {
		case is && p.Start > o.since: // another process, which has got the pid of one made with CLONE_AUTOREAP
			w.orphans[p.Pid] = orphan{since: now, due: now + w.OrphanTimeout}
			continue
		case is && now >= o.due:
			tops[p.Pid] = p.Pid
			o.due = now + max(w.OrphanTimeout, timesLook*e.took)
			w.orphans[p.Pid] = o
		case tops[p.Parent] != 0:
			tops[p.Pid] = tops[p.Parent]
		case w.of(p) != nil:
			tops[p.Pid] = p.Pid
		default:
			continue
		}
		spared := w.sparedBy(p) != ""
		if of := w.of(p); of != nil {
			of.spared = spared
		}
		if !spared {
			mine = append(mine, p)
		}
	}
	do = w.unread(mine)
	_, cleansUp := w.cleanUp(mine, true)
	refused, over, asks := w.refusing(mine), map[int]bool{}, false
	for _, p := range mine {
		of := w.of(p)
		if over[p.Pid] = over[p.Parent]; of != nil {
			left, asked := w.timeLeft(now, of)
			over[p.Pid] = asked && left <= 0
		}
		if over[p.Pid] && !slices.Contains(refused, p.Pid) {
			do = append(do, w.killOne(p, tops[p.Pid])...)
		}
	}
	for _, p := range w.holdersFirst(mine) {
		if over[p.Pid] || cleansUp[p.Pid] {
			continue
		}
		more, _ := w.askToExit(now, p, false, tops[p.Pid])
		do, asks = append(do, more...), asks || len(more) > 0
	}
	if asks {
		do = append(do, list{min(w.lookForOrphans(), w.partOfGrace())})
	}
	return do
}

// forget removes the Records of processes that two looks in a row have not found. fini is not told of their end,
// because the parent of a process below an orphan reaps it.
func (w whom) forget(found []orphans.Process) {
	for pid, of := range w.leftovers {
		if of.missed++; slices.ContainsFunc(found, func(p orphans.Process) bool { return p.Pid == pid }) {
			of.missed = 0
		}
		if of.missed > 1 {
			delete(w.leftovers, pid)
		}
	}
}
