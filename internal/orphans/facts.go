package orphans

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// This file answers questions about a single process. Unless the pid belongs to an unreaped child, it may be reused at
// any time, and the answer is about the process that has the pid now.

// Descends reports whether pid is a descendant of this process. It returns false if that is unknown, or for an earlier
// child and its descendants (see EarlierAre). The main child still counts after it was reaped.
func (t *Tree) Descends(pid int) bool {
	if pid == t.main && pid != 0 {
		return true
	}
	// Don't set childrenOnly here, as prepare does: /proc may still be mounted before the first look.
	if t.Dir < 0 && (t.childrenOnly || t.openProc() != nil) {
		return isChild(pid)
	}
	const maxSteps = 1000
	at := pid
	for range maxSteps {
		s, err := t.Status(at)
		switch {
		case err != nil && at == pid:
			return isChild(pid) // the process has ended
		case err != nil:
			at = pid // an ancestor has ended, so start again with the new parent
		case s.Parent == t.self:
			return !t.isEarlier(at)
		case s.Parent <= 1: // PID 1 has no parent, or a parent outside of the namespace
			return false
		default:
			at = s.Parent
		}
	}
	return false
}

// EarlierAre records the children that this process had before it executed fini. If they are not known, it records all
// current children. These children and their current descendants don't belong to the tree, even if they are reparented
// to this process. A process that they start later can't be distinguished from the tree once it is reparented to this
// process.
func (t *Tree) EarlierAre(pids []int, known bool) error {
	if err := t.prepare(); err != nil {
		return err
	}
	if !known {
		pids = t.ownChildren()
	}
	var below []Process
	for _, pid := range pids {
		if mayBeChild(pid) {
			below = append(below, Process{Pid: pid})
			t.earlier[pid] = -1
		}
	}
	for i := 0; t.byChildren && i < len(below); i++ {
		pids, _ := t.childrenOf(below[i])
		for _, pid := range pids {
			if fd := t.openPidfd(pid); (fd >= 0 || unix.Kill(pid, 0) != unix.ESRCH) && !t.isEarlier(pid) {
				t.earlier[pid] = fd // without a pidfd, the pid stays recorded until this process reaps it
				below = append(below, Process{Pid: pid})
			}
		}
	}
	return nil
}

// IncludeEarlier makes Look return earlier children and their descendants too, marked as Earlier. OnlyEarlier then
// counts them like all other children.
func (t *Tree) IncludeEarlier() { t.includesEarlier = true }

// isEarlier reports whether EarlierAre has recorded the process.
func (t *Tree) isEarlier(pid int) bool {
	pidfd, noted := t.earlier[pid]
	return noted && (pidfd < 0 || !hasEnded(pidfd))
}

// Reaped forgets a child that was reaped, because its pid may be reused.
func (t *Tree) Reaped(pid int) {
	t.lastReaped = pid
	t.forget(pid)
	if pidfd, noted := t.earlier[pid]; noted {
		calls.Close(pidfd)
		delete(t.earlier, pid)
	}
}

// OnlyEarlier reports whether all children of this process are earlier children.
func (t *Tree) OnlyEarlier() bool {
	if len(t.earlier) == 0 || t.includesEarlier {
		return false
	}
	if pids, err := t.listedChildren(); err == nil {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !t.isEarlier(pid) })
	}
	// Count zombies too, because their own children may have been reparented to this process with pids that the search
	// has passed already. Try every pid before reporting that there is no other child.
	t.pidMax = max(t.pidMax, pidMax())
	from := max(t.lastReaped, 0)
	for i := range t.pidMax {
		if pid := (from + i) % t.pidMax; pid > 0 && mayBeChild(pid) && !t.isEarlier(pid) {
			return false
		}
	}
	return true
}
