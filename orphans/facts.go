package orphans

import (
	"slices"

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
	const maxSteps = 1000
	at := pid
	for range maxSteps {
		s, err := t.status(at)
		switch {
		case err != nil && at == pid:
			return isChild(pid) // it has ended
		case err != nil:
			at = pid // an ancestor has ended, and left its children to another
		case s.parent == t.self:
			return !t.isEarlier(at)
		case s.parent <= 1: // PID 1 has no parent, or one outside of the namespace
			return false
		default:
			at = s.parent
		}
	}
	return false
}

// EarlierAre notes the children that this process had before it became fini: a shell may start a process and then
// execute fini in its own place. If they are not known, the children that it has now are taken for them. They are not
// of the tree. Neither are their descendants of now, which may come to this process as orphans. Those
// that they start later and leave to this process can't be told.
func (t *Tree) EarlierAre(pids []int, known bool) error {
	if err := t.prepare(); err != nil {
		return err
	}
	if !known {
		pids = t.ownChildren()
	}
	var below []Process
	for _, pid := range pids {
		if isChild(pid) {
			below = append(below, Process{Pid: pid})
			t.noteEarlier(pid, -1)
		}
	}
	for i := 0; t.byChildren && i < len(below); i++ {
		pids, _ := t.childrenOf(below[i])
		for _, pid := range pids {
			if fd := t.openPidfd(pid); fd >= 0 && !t.isEarlier(pid) {
				t.noteEarlier(pid, fd)
				below = append(below, Process{Pid: pid})
			}
		}
	}
	return nil
}

func (t *Tree) noteEarlier(pid, pidfd int) {
	if t.earlier == nil {
		t.earlier = map[int]int{}
	}
	t.earlier[pid] = pidfd
}

// isEarlier reports whether a process is one that EarlierAre has noted.
func (t *Tree) isEarlier(pid int) bool {
	pidfd, noted := t.earlier[pid]
	return noted && (pidfd < 0 || !hasEnded(pidfd))
}

// Reaped forgets what is known of a child: its pid may become another's.
func (t *Tree) Reaped(pid int) {
	t.lastReaped = pid
	t.forget(pid)
	if pidfd, noted := t.earlier[pid]; noted {
		if pidfd >= 0 {
			_ = unix.Close(pidfd)
			t.pidfds--
		}
		delete(t.earlier, pid)
	}
}

// OnlyEarlier reports whether every child that this process has is an earlier one.
func (t *Tree) OnlyEarlier() bool {
	if len(t.earlier) == 0 {
		return false
	}
	if !t.childrenOnly {
		pids, err := t.listedChildren()
		return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !t.isEarlier(pid) })
	}
	// One that has ended since the caller reaped counts: what it has left may have come to this process behind the
	// search. And every pid is asked for before it is said that there is nobody else.
	t.pidMax = max(t.pidMax, pidMax())
	from := max(t.lastReaped, 0)
	for i := range t.pidMax {
		if pid := (from + i) % t.pidMax; isChild(pid) && !t.isEarlier(pid) {
			return false
		}
	}
	return true
}

// canRead reports whether /proc can be read now. If it can't, it may be mounted before the first
// look, for which nothing is settled here.
func (t *Tree) canRead() bool {
	return t.proc >= 0 || !t.childrenOnly && t.openProc() == nil
}
