package life

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A Record is what fini knows about a process that it signals, which is either the main child or a leftover to be
// stopped. The Loop updates it when it carries out an action, and removes it when the process has been reaped.
//
// Processes that fini never signals have no Record, because there may be thousands. These are processes that --orphans
// or --allow-orphan spares, and children that this process had before it executed fini. Without --orphan-timeout, they
// include orphans that exit while the command runs.
type Record struct {
	Pid   int
	Start time.Duration // see orphans.Process; tells the leftover from an earlier process with the same pid
	Sent  []Sent        // in order, each signal once
	Ended bool          // the main child has exited, even if a tracer hides that, so it must not be signalled any more

	reaped  bool          // the main child has been reaped
	refused bool          // fini may not signal the process
	waited  time.Duration // how long fini has waited for an orphan that was asked to exit: see partsOfGrace
	missed  int           // number of looks in a row that have not found the orphan
	spared  bool          // by the policy, as the last look for orphans has found, although fini has begun to stop it
}

// Sent is a signal that fini has sent to a process.
type Sent struct {
	Sig     syscall.Signal
	At      time.Duration // uptime when it was last sent
	ToGroup bool          // it was sent to the command's group
}

// Signals returns the signals that fini has sent to the process, in order.
func (r *Record) Signals() (sent []syscall.Signal) {
	if r != nil {
		for _, s := range r.Sent {
			sent = append(sent, s.Sig)
		}
	}
	return sent
}

// note records a signal that was sent.
func (r *Record) note(sig syscall.Signal, now time.Duration, group bool) {
	i := slices.IndexFunc(r.Sent, func(s Sent) bool { return s.Sig == sig })
	if i < 0 {
		i, r.Sent = len(r.Sent), append(r.Sent, Sent{Sig: sig})
	}
	r.Sent[i].At, r.Sent[i].ToGroup = now, r.Sent[i].ToGroup || group
}

// wasSent returns the signal if it was sent to the process. For a nil Record, ok is false.
func (r *Record) wasSent(sig syscall.Signal) (s Sent, ok bool) {
	if r != nil {
		for _, s := range r.Sent {
			if s.Sig == sig {
				return s, true
			}
		}
	}
	return s, false
}

// wasSentRecently reports whether fini has sent the main child the same signal less than sameEnd ago. That signal is
// part of the same stop, because whoever killed the parent process has probably signalled fini too. An older signal
// had another purpose, such as a reload.
func (r *Record) wasSentRecently(now time.Duration, sig syscall.Signal) bool {
	s, ok := r.wasSent(sig)
	return ok && now-s.At <= sameEnd
}

// records contains the Records of all processes. If the main child survives SIGKILL, fini stops it like a leftover, so
// there is a second Record for it.
type records struct {
	main      Record          // Pid is 0 if there is no main child
	leftovers map[int]*Record // by pid
	givenBack time.Duration   // sum of the excess times by which deadlines were moved: see slicesOfWait
	stopBy    time.Duration   // uptime when --stop-within is over, or 0 if it has not started
	cut       bool            // --stop-within has shortened a wait
	// any process may have been sent SIGKILL by a single call: see KillChildren in package orphans
	all     bool
	ignored int // number of signals that a pause as PID 1 has ignored

	orphans map[int]orphan // by pid: see --orphan-timeout
	// number of leftovers and orphans that fini had to stop, or that were left in the stage counting
	count      int
	unsure     int  // how many of these were stopped only because they may be holders
	saidUnread bool // a message about --allow-orphan and an unreadable process has been written
	saidBlind  bool // a message about an unreadable list of children has been written
}

// of returns the Record of a leftover, or nil. If the start of a stuck process can't be read, the same pid is enough.
func (r *records) of(p orphans.Process) *Record {
	found := r.leftovers[p.Pid]
	if found != nil && found.Start != p.Start && found.Start != 0 && p.Start != 0 {
		return nil
	}
	return found
}

// leftover returns the Record of a leftover that fini is about to stop, and creates it if necessary.
func (r *records) leftover(p orphans.Process) *Record {
	found := r.of(p)
	if found == nil {
		found = &Record{Pid: p.Pid, Start: p.Start}
		r.leftovers[p.Pid] = found
	}
	if _, had := found.wasSent(syscall.SIGTERM); !had && r.wasSentWithGroup(p, syscall.SIGTERM) {
		term, _ := r.main.wasSent(syscall.SIGTERM)
		found.note(syscall.SIGTERM, term.At, true)
	}
	return found
}

// wasSentWithGroup reports whether a leftover is known to have received a signal with the command's group, so that fini
// need not send it again. A process that started in the same tick may have missed the signal.
func (r *records) wasSentWithGroup(p orphans.Process, sig syscall.Signal) bool {
	sent, ok := r.main.wasSent(sig)
	return ok && sent.ToGroup && p.PGID == r.main.Pid && p.Start != 0 && p.Start+tick <= sent.At
}

// askedGroup reports whether the command's group was asked to exit together with the command.
func (r *records) askedGroup() bool {
	return slices.ContainsFunc(r.main.Sent,
		func(s Sent) bool { return s.ToGroup && requests[s.Sig]&(asksLeftover|asksUnlessIgnored) != 0 })
}

// askedWithGroup returns the first signal that asked a leftover to exit with the command's group. See asksLeftover.
func (r *records) askedWithGroup(p orphans.Process) (first Sent, ok bool) {
	for _, sent := range r.main.Sent {
		ignored := p.Ignored>>(sent.Sig-1)&1 != 0
		isAsked := requests[sent.Sig]&asksLeftover != 0 || requests[sent.Sig]&asksUnlessIgnored != 0 && !ignored
		if isAsked && r.wasSentWithGroup(p, sent.Sig) && (!ok || sent.At < first.At) {
			first, ok = sent, true
		}
	}
	return first, ok
}

// asked returns the signal that asked a leftover to exit, whether alone or with the command's group.
func (r *records) asked(p orphans.Process) (first Sent, ok bool) {
	if first, ok = r.askedWithGroup(p); ok {
		return first, ok
	}
	return r.of(p).wasSent(syscall.SIGTERM)
}

// noteKills records which processes were sent SIGKILL in a round, and reports whether any of them is hit for the first
// time.
func (r *records) noteKills(now time.Duration, hit []int) (fresh bool) {
	for _, pid := range hit {
		found := r.leftovers[pid]
		if found == nil {
			found = &Record{Pid: pid}
			r.leftovers[pid] = found
		}
		_, before := found.wasSent(syscall.SIGKILL)
		fresh = fresh || !before
		found.note(syscall.SIGKILL, now, false)
	}
	return fresh
}

// killedAtOnce records SIGKILL for a leftover that was killed by a single call for many processes.
func (r *records) killedAtOnce(x reaper.Exit, now time.Duration) {
	left := r.leftovers[x.Pid]
	_, had := left.wasSent(syscall.SIGKILL)
	if r.all && left != nil && !had && x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL {
		left.note(syscall.SIGKILL, now, false)
	}
}

// unreaped returns the pids of leftovers that have a Record and have not been reaped.
func (r *records) unreaped() []int {
	pids := slices.Sorted(maps.Keys(r.leftovers))
	if r.main.Pid != 0 && !r.main.reaped {
		pids = append(pids, r.main.Pid)
	}
	return pids
}

// killedByOthers reports whether a process was killed with SIGKILL, but not by fini. It may have been the kernel,
// because memory ran out. The kernel counts these processes for each cgroup, but doesn't report which they are. A main
// child that exits with 137 counts as well, because it may be a shell whose last command was killed with SIGKILL.
func (r *records) killedByOthers(x reaper.Exit) bool {
	killed := x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL
	shown := x.Pid == r.main.Pid && x.Status.Exited() && x.Status.ExitStatus() == 128+int(syscall.SIGKILL)
	main, toMain := r.main.wasSent(syscall.SIGKILL)
	_, toIt := r.leftovers[x.Pid].wasSent(syscall.SIGKILL)
	return (killed || shown) && !r.all && !main.ToGroup && !toIt && !(toMain && x.Pid == r.main.Pid)
}
