package pdeath

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads only comm and status below /proc, for which a reader never waits. See proc_pid_comm(5),
// proc_pid_status(5).

// Ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func Ignores(pid int, sig unix.Signal) bool {
	f := proc.In(unix.AT_FDCWD)
	status, _ := f.StatusIn("/proc/" + strconv.Itoa(pid))
	return status.Ignored&(1<<(sig-1)) != 0
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
func Dying(pid int) bool {
	f := proc.In(unix.AT_FDCWD)
	status, err := f.StatusIn("/proc/" + strconv.Itoa(pid))
	return status.Descriptors == 0 || err == unix.ESRCH || err != nil && unix.Kill(pid, 0) == unix.ESRCH
}
