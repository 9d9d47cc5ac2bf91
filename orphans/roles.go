package orphans

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// This file answers what the roles of a pair ask.

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
		s, err := t.status(at)
		if err != nil {
			return false
		}
		at = s.parent
	}
	return err == nil
}

// SameCredentials reports whether a process has the user and group IDs of this one (real, effective,
// saved and file system), and no capability that this one has not. The kernel clears the parent death
// signal of a process whose credentials change otherwise, see PR_SET_PDEATHSIG in prctl(2). One that
// has changed them and changed them back is not told from one that has not.
func (t *Tree) SameCredentials(pid int) (same, known bool) {
	if !t.canRead() {
		return false, false
	}
	own, err := t.status(t.self)
	other, err2 := t.status(pid)
	if err != nil || err2 != nil {
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
	inOther := ask(t, []Process{{Pid: pid}}, func(f *files, p Process) bool {
		there := f.link(p.dir() + "/ns/user") // "" if the process does not belong to this user any more
		return there != "" && there != f.link("self/ns/user")
	})
	return !slices.Contains(inOther, true)
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

// signalSet is the union of the sets in some fields of the status of a process: see proc_pid_status(5).
func (t *Tree) signalSet(pid int, names ...string) (set uint64) {
	if !t.canRead() {
		return 0
	}
	_ = t.fields(strconv.Itoa(pid), func(name, value []byte) (more bool) {
		if slices.Contains(names, string(name)) {
			part, _ := strconv.ParseUint(string(value), 16, 64)
			set |= part
		}
		return true
	})
	return set
}
