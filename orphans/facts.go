package orphans

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// This file answers what the caller asks of one process. A pid may become another's at any
// time unless it is that of a child that was not reaped, so each answer is of the process that
// has it now.

// Descends reports whether pid is a descendant of this process, and false if that can't be told.
func (t *Tree) Descends(pid int) bool {
	if !t.canRead() {
		return isChild(pid)
	}
	return ask(t, func(s *sight) bool { return s.descends(pid) })
}

func (s *sight) descends(pid int) bool {
	const maxSteps = 1000
	at := pid
	for range maxSteps {
		p, err := s.stat(at)
		switch {
		case err != nil && at == pid:
			return isChild(pid) // it is hidden, or has ended
		case err == errStuck:
			return isChild(at)
		case err != nil:
			at = pid // an ancestor has ended, and left its children to another
		case p.Parent == s.self:
			return !s.isEarlier(at)
		case p.Parent <= 1: // PID 1 has no parent, or one outside of the namespace
			return false
		default:
			at = p.Parent
		}
	}
	return false
}

// SameCredentials reports whether a process has the user and group IDs of this one (real, effective,
// saved and file system), and no capability that this one has not. The kernel clears the parent death
// signal of a process whose credentials change otherwise, see PR_SET_PDEATHSIG in prctl(2). One that
// has changed them and changed them back is not told from one that has not.
func (t *Tree) SameCredentials(pid int) (same, known bool) {
	if !t.canRead() {
		return false, false
	}
	return ask2(t, func(s *sight) (same, known bool) {
		own, ok := s.status(s.self)
		other, known := s.status(pid)
		known = known && ok
		return known && own == other && !s.hasMore(pid), known
	})
}

// hasMore reports whether a process has a capability that this one has not: it has executed a file
// with capabilities. See capabilities(7).
func (s *sight) hasMore(pid int) bool {
	own, ok := permitted(0)
	other, known := permitted(pid)
	if !ok || !known || other&^own == 0 {
		return false
	}
	// In a user namespace of its own it has all of them, there: that clears no signal.
	there := s.link(strconv.Itoa(pid) + "/ns/user") // "" if the process does not belong to this user any more
	return there == "" || there == s.link(strconv.Itoa(s.self)+"/ns/user")
}

// permitted are the capabilities that a process may have, bit n for capability n; 0 is this process. See
// capget(2).
func permitted(pid int) (capabilities uint64, ok bool) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(pid)}
	var data [2]unix.CapUserData
	err := unix.Capget(&head, &data[0])
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), err == nil
}

// Ignores reports whether a process ignores a signal. It is false if that can't be told.
func (t *Tree) Ignores(pid int, sig unix.Signal) bool {
	return t.signalSet(pid, "SigIgn")&(1<<(sig-1)) != 0
}

// Catches reports whether a process has a handler for a signal. It is false if that can't be told.
func (t *Tree) Catches(pid int, sig unix.Signal) bool {
	return t.signalSet(pid, "SigCgt")&(1<<(sig-1)) != 0
}

// Pending is the set of the signals that a process has got and not taken, as it blocks them: bit n-1 is signal n.
// It is 0 if that can't be told.
func (t *Tree) Pending(pid int) uint64 { return t.signalSet(pid, "SigPnd", "ShdPnd") }

// signalSet is the union of the sets in some lines of /proc/PID/status: see proc_pid_status(5).
func (t *Tree) signalSet(pid int, lines ...string) uint64 {
	if !t.canRead() {
		return 0
	}
	return ask(t, func(s *sight) (set uint64) {
		// All of it: before this there is a line of up to 65536 supplementary groups.
		const enough = len("\nSigIgn:\t0123456789abcdef\n")
		_ = s.scan(strconv.Itoa(pid)+"/status", func(text []byte, _ bool) int {
			for _, name := range lines {
				if mask, ok := statusField(text, name); ok {
					part, _ := strconv.ParseUint(mask, 16, 64)
					set |= part
				}
			}
			return min(len(text), enough)
		})
		return set
	})
}

// EarlierAre says which children this process had before it became what it is: a shell may start a process and then
// execute fini in its own place. They are not of the tree, nor is what descends from them while they live. If they are not
// known, all children of now are.
func (t *Tree) EarlierAre(pids []int, known bool) error {
	if !known {
		if err := t.prepare(); err != nil {
			return err
		}
		pids = ask(t, func(s *sight) (pids []int) {
			s.walk(func(p Process) {
				if p.Parent == s.self {
					pids = append(pids, p.Pid)
				}
			})
			return pids
		})
		t.Release()
	}
	t.earlier = map[int]bool{}
	for _, pid := range pids {
		t.earlier[pid] = true
	}
	return nil
}

// isEarlier reports whether a process is one of EarlierAre. A child has its pid until it is reaped.
func (s *sight) isEarlier(pid int) bool { return s.earlier[pid] }

// Reaped forgets what is known of a child: its pid may become another's.
func (t *Tree) Reaped(pid int) {
	t.lastReaped = pid
	// Not in place: a reader that was left behind has them too.
	if _, noted := t.earlier[pid]; noted {
		t.earlier = maps.Clone(t.earlier)
		delete(t.earlier, pid)
	}
	if _, noted := t.stuck[pid]; noted {
		t.stuck = maps.Clone(t.stuck)
		delete(t.stuck, pid)
	}
}

// OnlyEarlier reports whether every child that this process has is an earlier one.
func (t *Tree) OnlyEarlier() bool {
	if len(t.earlier) == 0 {
		return false
	}
	return ask(t, func(s *sight) bool {
		if s.childrenOnly {
			return s.ownAreEarlier()
		}
		pids, err := s.children(s.self, 1)
		return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !s.isEarlier(pid) })
	})
}

// ownAreEarlier is OnlyEarlier by waitid(2). One that has ended since the caller reaped counts: what it has left
// may have come to this process behind the search. And every pid is asked for before it is said that there is
// nobody else.
func (s *sight) ownAreEarlier() bool {
	s.pidMax = cmp.Or(s.pidMax, pidMax())
	from := cmp.Or(s.lastReaped, s.self)
	for i := range s.pidMax {
		if pid := (from + i) % s.pidMax; isChild(pid) && !s.isEarlier(pid) {
			return false
		}
	}
	return true
}

// isChild reports whether pid is a child's that was not reaped.
func isChild(pid int) bool {
	errno := ownChild(unix.P_PID, pid)
	return errno == 0 || errno == unix.EAGAIN
}

// canRead reports whether /proc can be read now. If it can't, it may be mounted before the first
// look, for which nothing is settled here.
func (t *Tree) canRead() bool {
	return t.proc >= 0 || !t.childrenOnly && t.openProc() == nil
}

func (s *sight) status(pid int) (status, bool) {
	text, err := s.read(strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}, false
	}
	return parseStatus(text)
}
