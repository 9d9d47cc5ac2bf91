package orphans

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// This file answers questions about a single process. Unless the pid belongs to an unreaped child, it may be reused at
// any time, and the answer is about the process that has the pid now.

// Descends reports whether pid is a descendant of this process. It returns false if that is unknown, or for an earlier
// child and its descendants (see SetInherited). The main child still counts after it was reaped.
func (t *Tree) Descends(pid int) bool {
	if pid == t.main && pid != 0 {
		return true
	}
	// Don't set childrenOnly here, as prepare does: /proc may still be mounted before the first look.
	if t.Dir < 0 && (t.childrenOnly || !t.openProc()) {
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
			return !t.isInherited(at)
		case s.Parent <= 1: // PID 1 has no parent, or a parent outside of the namespace
			return false
		default:
			at = s.Parent
		}
	}
	return false
}

// SetInherited records the children that this process had before it executed fini. If they are not known, it records
// all current children. These children and their current descendants don't belong to the tree, even if they are
// reparented to this process. A process that they start later can't be distinguished from the tree once it is
// reparented to this process.
func (t *Tree) SetInherited(pids []int, known bool) {
	t.prepare()
	if !known {
		pids = t.ownChildren()
	}
	var below []Process
	for _, pid := range pids {
		if mayBeChild(pid) {
			below = append(below, Process{Pid: pid})
			t.inherited[pid] = -1
		}
	}
	for i := 0; t.byChildren && i < len(below); i++ {
		pids, _ := t.childrenOf(below[i])
		for _, pid := range pids {
			if fd := t.openPidfd(pid); (fd >= 0 || unix.Kill(pid, 0) != unix.ESRCH) && !t.isInherited(pid) {
				t.inherited[pid] = fd // without a pidfd, the pid stays recorded until this process reaps it
				below = append(below, Process{Pid: pid})
			}
		}
	}
}

// IncludeInherited makes Look return inherited children and their descendants too, marked as Inherited. OnlyInherited
// then counts them like all other children.
func (t *Tree) IncludeInherited() { t.includesInherited = true }

// isInherited reports whether SetInherited has recorded the process.
func (t *Tree) isInherited(pid int) bool {
	pidfd, noted := t.inherited[pid]
	return noted && (pidfd < 0 || !hasEnded(pidfd))
}

// Reaped forgets a child that was reaped, because its pid may be reused.
func (t *Tree) Reaped(pid int) {
	t.lastReaped = pid
	t.forget(pid)
	if pidfd, noted := t.inherited[pid]; noted {
		calls.Close(pidfd)
		delete(t.inherited, pid)
	}
}

// OnlyInherited reports whether all children of this process are inherited children.
func (t *Tree) OnlyInherited() bool {
	if len(t.inherited) == 0 || t.includesInherited {
		return false
	}
	if pids, err := t.listedChildren(); err == nil {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !t.isInherited(pid) })
	}
	// Count zombies too. When a child becomes a zombie, its own children are reparented to this process, and their pids
	// may be ones that the search has passed already. Try every pid before reporting that there is no other child.
	t.pidMax = max(t.pidMax, pidMax())
	from := max(t.lastReaped, 0)
	for i := range t.pidMax {
		if pid := (from + i) % t.pidMax; pid > 0 && mayBeChild(pid) && !t.isInherited(pid) {
			return false
		}
	}
	return true
}
