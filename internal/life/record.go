package life

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A Record is what fini knows of one process that it signals: of the main child, or of a leftover that it stops. The
// Loop writes it as it carries out what the machines decide, and closes it when the process was reaped.
//
// fini never signals the processes that --orphans or --allow-orphan spares, the children from before it became fini, and,
// without --orphan-timeout, the orphans that exit while the command runs. None of them has a Record, because a command may
// have thousands.
type Record struct {
	Pid   int
	Start time.Duration // as in orphans.Process, 0 if unknown: tells a leftover from an earlier process with its pid
	Sent  []Sent        // each signal once
	Ended bool          // the main child has exited, even if its tracer hides that: fini signals it no more

	reaped  bool          // the main child was
	refused bool          // fini may not signal it
	waited  time.Duration // for an orphan to exit that was asked to: see partsOfGrace
	missed  int           // how many looks for orphans in a row have not found it
}

// Sent is a signal that fini has sent to a process.
type Sent struct {
	Sig   syscall.Signal
	At    time.Duration // the last time, as uptime
	Group bool          // with the command's group
}

// Signals are the signals that fini has sent to the process, in order.
func (r *Record) Signals() (sent []syscall.Signal) {
	if r != nil {
		for _, s := range r.Sent {
			sent = append(sent, s.Sig)
		}
	}
	return sent
}

// note records a signal.
func (r *Record) note(sig syscall.Signal, now time.Duration, group bool) {
	i := slices.IndexFunc(r.Sent, func(s Sent) bool { return s.Sig == sig })
	if i < 0 {
		i, r.Sent = len(r.Sent), append(r.Sent, Sent{Sig: sig})
	}
	r.Sent[i].At, r.Sent[i].Group = now, r.Sent[i].Group || group
}

// had returns when the process was last sent a signal, if it was. A process without a Record was not.
func (r *Record) had(sig syscall.Signal) (s Sent, ok bool) {
	if r != nil {
		for _, s := range r.Sent {
			if s.Sig == sig {
				return s, true
			}
		}
	}
	return s, false
}

// hadRecently reports whether fini has sent the main child a signal for this very stop: the sender that killed the parent
// process may have sent fini the same signal within the same second. A signal from before that second was for something
// else, such as a reload.
func (r *Record) hadRecently(now time.Duration, sig syscall.Signal) bool {
	s, ok := r.had(sig)
	return ok && now-s.At <= sameEnd
}

// records are all Records of a life. If SIGKILL doesn't end the main child, fini stops it like a leftover, and then it has
// a second Record, as such.
type records struct {
	main      Record          // its Pid is 0 if there is no main child
	leftovers map[int]*Record // by pid
	givenBack time.Duration   // by how much the waits of a stop were made longer, in all
	stopBy    time.Duration   // when --stop-within is over, as uptime; 0 as long as it does not count
	cut       bool            // it has cut a wait
	all       bool            // one call may have sent SIGKILL to any process: see KillChildren in package orphans
	ignored   int             // signals that the PID 1 of a pause has ignored

	orphans    map[int]orphan // by pid: see --orphan-timeout
	count      int            // how many leftovers and orphans fini had to stop, or in the stage counting has left
	unsure     int            // of these, how many fini had to stop only because they may be holders
	saidUnread bool           // fini has said that it can't tell whether --allow-orphan means a process
	saidBlind  bool           // fini has said that it can't list its children
}

// of returns the Record of a leftover, nil if there is none. If the start of a stuck process can't be read, its pid must
// do.
func (r *records) of(p orphans.Process) *Record {
	found := r.leftovers[p.Pid]
	if found != nil && found.Start != p.Start && found.Start != 0 && p.Start != 0 {
		return nil
	}
	return found
}

// leftover returns the Record of a leftover that fini is about to stop.
func (r *records) leftover(p orphans.Process) *Record {
	found := r.of(p)
	if found == nil {
		found = &Record{Pid: p.Pid, Start: p.Start}
		r.leftovers[p.Pid] = found
	}
	if _, had := found.had(syscall.SIGTERM); !had && r.hadWithGroup(p, syscall.SIGTERM) {
		term, _ := r.main.had(syscall.SIGTERM)
		found.note(syscall.SIGTERM, term.At, true)
	}
	return found
}

// hadWithGroup reports whether a leftover has certainly had a signal with the command's group, however long ago, so that
// fini doesn't send it again. A process that started within the same tick may have come after the signal.
func (r *records) hadWithGroup(p orphans.Process, sig syscall.Signal) bool {
	sent, ok := r.main.had(sig)
	return ok && sent.Group && p.Group == r.main.Pid && p.Start != 0 && p.Start+tick <= sent.At
}

// askedGroup reports whether the command's group was asked to exit with the command.
func (r *records) askedGroup() bool {
	return slices.ContainsFunc(r.main.Sent, func(s Sent) bool { return s.Group && askedBy[s.Sig]&(asksLeftover|asksUnlessIgnored) != 0 })
}

// askedWithGroup returns the first signal by which a leftover was asked to exit with the command's group, if it was: see
// asksLeftover.
func (r *records) askedWithGroup(p orphans.Process) (first Sent, ok bool) {
	for _, sent := range r.main.Sent {
		ignored := p.Ignored>>(sent.Sig-1)&1 != 0
		isAsked := askedBy[sent.Sig]&asksLeftover != 0 || askedBy[sent.Sig]&asksUnlessIgnored != 0 && !ignored
		if isAsked && r.hadWithGroup(p, sent.Sig) && (!ok || sent.At < first.At) {
			first, ok = sent, true
		}
	}
	return first, ok
}

// asked returns the signal by which a leftover was asked to exit, by itself or with the command's group, if it was.
func (r *records) asked(p orphans.Process) (first Sent, ok bool) {
	if first, ok = r.askedWithGroup(p); ok {
		return first, ok
	}
	return r.of(p).had(syscall.SIGTERM)
}

// killed records the processes that a round of SIGKILL has hit, and reports whether it has hit one for the first time.
func (r *records) killed(now time.Duration, hit []int) (fresh bool) {
	for _, pid := range hit {
		found := r.leftovers[pid]
		if found == nil {
			found = &Record{Pid: pid}
			r.leftovers[pid] = found
		}
		_, before := found.had(syscall.SIGKILL)
		fresh = fresh || !before
		found.note(syscall.SIGKILL, now, false)
	}
	return fresh
}

// killedAtOnce records SIGKILL for a leftover that one call for many processes has killed.
func (r *records) killedAtOnce(x reaper.Exit, now time.Duration) {
	left := r.leftovers[x.Pid]
	_, had := left.had(syscall.SIGKILL)
	if r.all && left != nil && !had && x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL {
		left.note(syscall.SIGKILL, now, false)
	}
}

// unreaped are the processes that have a Record and were not reaped.
func (r *records) unreaped() []int {
	pids := slices.Sorted(maps.Keys(r.leftovers))
	if r.main.Pid != 0 && !r.main.reaped {
		pids = append(pids, r.main.Pid)
	}
	return pids
}

// killedByOthers reports whether SIGKILL has ended a process, and fini has not sent it. The kernel may have, because
// memory ran out: it doesn't report which processes it has killed, and only counts them for the whole cgroup. A main
// child that exits with 137 counts too: it may be a shell whose last command was killed by SIGKILL.
func (r *records) killedByOthers(x reaper.Exit) bool {
	killed := x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL
	shown := x.Pid == r.main.Pid && x.Status.Exited() && x.Status.ExitStatus() == 128+int(syscall.SIGKILL)
	main, toMain := r.main.had(syscall.SIGKILL)
	_, toIt := r.leftovers[x.Pid].had(syscall.SIGKILL)
	return (killed || shown) && !r.all && !main.Group && !toIt && !(toMain && x.Pid == r.main.Pid)
}
