package pdeath

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads only comm and status below /proc, for which a reader never waits. See proc_pid_comm(5),
// proc_pid_status(5).

// Name returns the name of a process, "" if it can't be read.
func Name(pid int) string {
	f := proc.In(unix.AT_FDCWD)
	name, _ := f.Read("/proc/" + strconv.Itoa(pid) + "/comm")
	return string(bytes.TrimSuffix(name, []byte("\n")))
}

// Ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func Ignores(pid int, sig unix.Signal) (ignores bool) {
	f := proc.In(unix.AT_FDCWD)
	_ = f.Each("/proc/"+strconv.Itoa(pid)+"/status", '\n', proc.MaxText, func(line []byte, _ bool) (more bool) {
		text, found := bytes.CutPrefix(line, []byte("SigIgn:\t"))
		set, _ := strconv.ParseUint(string(text), 16, 64)
		ignores = found && set&(1<<(sig-1)) != 0
		return !found
	})
	return ignores
}

// GroupIsOrphaned reports whether a process group of a session is orphaned: no member has a parent in another group of
// the session, such as a shell that could continue it. See setpgid(2). It returns false if this can't be read. It looks
// only at the process parent, which is the parent of a member, and at the ancestors of parent, because the other
// members of a job have the same parents.
func GroupIsOrphaned(group, session, parent int) bool {
	if group == 0 {
		return false // the group is outside of the PID namespace, as are the parents of its members
	}
	f := proc.In(unix.AT_FDCWD)
	for at := parent; at > 0; {
		theirGroup, err := unix.Getpgid(at)
		theirSession, err2 := unix.Getsid(at)
		switch {
		case err != nil || err2 != nil:
			return false
		case theirSession != session:
			return true
		case theirGroup != group:
			return false
		}
		status, err := f.StatusIn("/proc/" + strconv.Itoa(at))
		if err != nil {
			return false
		}
		at = status.Parent
	}
	return true
}

// Dying reports whether a process has begun to exit: it has let go of its descriptors, or is gone.
func Dying(pid int) (dying bool) {
	f := proc.In(unix.AT_FDCWD)
	err := f.Each("/proc/"+strconv.Itoa(pid)+"/status", '\n', proc.MaxText, func(line []byte, _ bool) (more bool) {
		dying = string(line) == "FDSize:\t0"
		return !dying
	})
	return dying || err == unix.ESRCH || err != nil && unix.Kill(pid, 0) == unix.ESRCH
}
