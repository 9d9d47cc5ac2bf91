package orphans

import (
	"slices"
	"strconv"
	"time"

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
		p, err := t.stat(at)
		switch {
		case err != nil && at == pid:
			return isChild(pid) // it is hidden, or has ended
		case err != nil:
			at = pid // an ancestor has ended, and left its children to another
		case p.Parent == t.self:
			return !t.isEarlier(at)
		case p.Parent <= 1: // PID 1 has no parent, or one outside of the namespace
			return false
		default:
			at = p.Parent
		}
	}
	return false
}

// GroupIsOrphaned reports whether the process group of this process is orphaned: no member has a parent in
// another group of the session, such as a shell that could continue it. See setpgid(2). It is false if
// that can't be told. Only this process and those above it are asked, for the others of a job have the
// same parents.
func (t *Tree) GroupIsOrphaned() bool {
	if unix.Getpgrp() == 0 {
		return false // it is outside of the PID namespace, as are its members' parents
	}
	session, err := unix.Getsid(0)
	for at := unix.Getppid(); err == nil && at > 0; {
		if other, err := unix.Getsid(at); err != nil || other != session {
			return err == nil || err == unix.ESRCH
		}
		if group, err := unix.Getpgid(at); err != nil || group != unix.Getpgrp() {
			return false
		}
		if !t.canRead() {
			return false
		}
		p, err := t.stat(at)
		if err != nil {
			return false
		}
		at = p.Parent
	}
	return err == nil
}

// SameCredentials reports whether a process has the user and group IDs of this one (real, effective,
// saved and file system), and no capability that this one has not. The kernel clears the parent death
// signal of a process whose credentials change otherwise, see PR_SET_PDEATHSIG in prctl(2). One that
// has changed them and changed them back is not told from one that has not.
func (t *Tree) SameCredentials(pid int) (same, known bool) {
	own, ok := t.status(t.self)
	other, known := t.status(pid)
	if !ok || !known {
		return false, false
	}
	return own.uids == other.uids && own.gids == other.gids && !t.hasMore(pid), true
}

// hasMore reports whether a process has a capability that this one has not: it has executed a file
// with capabilities. See capabilities(7).
func (t *Tree) hasMore(pid int) bool {
	own, ok := permitted(0)
	other, known := permitted(pid)
	if !ok || !known || other&^own == 0 {
		return false
	}
	// In a user namespace of its own it has all of them, there: that clears no signal.
	link := func(pid int) string {
		n, err := unix.Readlinkat(t.proc, strconv.Itoa(pid)+"/ns/user", t.buf)
		if err != nil {
			return "" // it may not be seen: it does not belong to this user any more
		}
		return string(t.buf[:n])
	}
	there := link(pid)
	return there == "" || there == link(t.self)
}

// permitted are the capabilities that a process may have, bit n for capability n; 0 is this process. See
// capget(2).
func permitted(pid int) (capabilities uint64, ok bool) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(pid)}
	var data [2]unix.CapUserData
	err := unix.Capget(&head, &data[0])
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), err == nil
}

// Ignores reports whether a process ignores a signal.
func (t *Tree) Ignores(pid int, sig unix.Signal) (ignores, known bool) {
	if !t.canRead() {
		return false, false
	}
	// All of it: before this there is a line of up to 65536 supplementary groups.
	text := readFile("/proc/" + strconv.Itoa(pid) + "/status")
	mask, known := statusField(text, "SigIgn")
	set, err := strconv.ParseUint(mask, 16, 64)
	return set&(1<<(sig-1)) != 0, known && err == nil
}

// NoteEarlier notes the children that this process has now: it had them before it became what
// it is (a shell may start a process and then execute fini in its own place), and they are not
// of the tree. Neither are their descendants of now, which may come to this process as orphans. Those
// that they start later and leave to this process can't be told.
func (t *Tree) NoteEarlier() error {
	if err := t.prepare(); err != nil {
		return err
	}
	earlier := map[int]time.Duration{}
	err := t.walk(func(p Process) {
		earlier[p.Pid] = p.Start
		if p.Parent == t.self {
			earlier[p.Pid] = whileUnreaped
		}
	})
	t.Release()
	t.earlier = earlier
	return err
}

// whileUnreaped stands for the start time of a child, which has its pid until it is reaped.
const whileUnreaped = -1

// isEarlier reports whether a process is one that NoteEarlier has noted.
func (t *Tree) isEarlier(pid int) bool {
	start, noted := t.earlier[pid]
	if !noted || start == whileUnreaped {
		return noted
	}
	p, err := t.stat(pid)
	return err == nil && p.Start == start
}

// Reaped forgets an earlier child: its pid may become another's.
func (t *Tree) Reaped(pid int) { delete(t.earlier, pid) }

// OnlyEarlier reports whether every child that this process has is an earlier one.
func (t *Tree) OnlyEarlier() bool {
	if len(t.earlier) == 0 {
		return false
	}
	pids, err := t.children(t.self, 1)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !t.isEarlier(pid) })
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

func (t *Tree) status(pid int) (status, bool) {
	if !t.canRead() {
		return status{}, false
	}
	text, err := t.read(strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}, false
	}
	return parseStatus(text)
}
