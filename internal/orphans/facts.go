package orphans

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file answers the caller's questions about one process. Another process may get the pid at any time, unless the
// pid belongs to a child that was not reaped. So each answer is about the process that has the pid now.

// Descends reports whether pid is a descendant of this process. It returns false if that is unknown, and for an earlier
// child and its descendants: see EarlierAre. The main child counts even after it was reaped: see Allow.
func (t *Tree) Descends(pid int) bool {
	if pid == t.main && pid != 0 {
		return true
	}
	// If /proc can't be read now, it may be mounted later, before the first look. So only prepare sets childrenOnly.
	if t.Dir < 0 && (t.childrenOnly || t.openProc() != nil) {
		return isChild(pid)
	}
	const maxSteps = 1000
	at := pid
	for range maxSteps {
		s, err := t.Status(at)
		switch {
		case err != nil && at == pid:
			return isChild(pid) // pid has ended
		case err != nil:
			at = pid // an ancestor has ended, and its children were reparented
		case s.Parent == t.self:
			return !t.isEarlier(at)
		case s.Parent <= 1: // PID 1 has no parent, or its parent is outside of the namespace
			return false
		default:
			at = s.Parent
		}
	}
	return false
}

// EarlierAre records the children that this process had before it became fini: a shell may start a process and then
// execute fini itself. If these children are not known, EarlierAre takes the present children for them. They do not
// belong to the tree. Neither do their present descendants, which may be reparented to this process. If an earlier
// child starts a process later and leaves it to this process, fini can't tell that process from the tree.
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

// IncludeEarlier makes each Look find the earlier children and what descends from them, too: see Process.Earlier. From
// then on they count for OnlyEarlier as any other child.
func (t *Tree) IncludeEarlier() { t.includesEarlier = true }

// isEarlier reports whether EarlierAre has recorded a process.
func (t *Tree) isEarlier(pid int) bool {
	pidfd, noted := t.earlier[pid]
	return noted && (pidfd < 0 || !hasEnded(pidfd))
}

// Reaped forgets a child, because another process may get its pid.
func (t *Tree) Reaped(pid int) {
	t.lastReaped = pid
	t.forget(pid)
	if pidfd, noted := t.earlier[pid]; noted {
		proc.Close(pidfd)
		delete(t.earlier, pid)
	}
}

// OnlyEarlier reports whether every child of this process is an earlier child.
func (t *Tree) OnlyEarlier() bool {
	if len(t.earlier) == 0 || t.includesEarlier {
		return false
	}
	if pids, err := t.listedChildren(); err == nil {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !t.isEarlier(pid) })
	}
	// Here a zombie counts as a child: its own children may have been reparented to this process, at pids that the
	// search has passed. OnlyEarlier tries every pid before it says that there is no other child.
	t.pidMax = max(t.pidMax, pidMax())
	from := max(t.lastReaped, 0)
	for i := range t.pidMax {
		if pid := (from + i) % t.pidMax; pid > 0 && mayBeChild(pid) && !t.isEarlier(pid) {
			return false
		}
	}
	return true
}
