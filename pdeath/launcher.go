package pdeath

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file reads only comm and status below /proc, for which a reader never waits. See proc_pid_comm(5),
// proc_pid_status(5).

// Name returns the name of a process, "" if it can't be read.
func Name(pid int) string { return strings.TrimSuffix(read(pid, "comm"), "\n") }

// Ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func Ignores(pid int, sig unix.Signal) bool {
	set, _ := strconv.ParseUint(field(read(pid, "status"), "SigIgn"), 16, 64)
	return set&(1<<(sig-1)) != 0
}

// GroupIsOrphaned reports whether a process group of a session is orphaned: no member has a parent in another group of
// the session, such as a shell that could continue it. See setpgid(2). It returns false if this can't be read. It looks
// only at the process parent, which is the parent of a member, and at the ancestors of parent, because the other
// members of a job have the same parents.
func GroupIsOrphaned(group, session, parent int) bool {
	if group == 0 {
		return false // the group is outside of the PID namespace, as are the parents of its members
	}
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
		above, err := strconv.Atoi(field(read(at, "status"), "PPid"))
		if err != nil {
			return false
		}
		at = above
	}
	return true
}

// field returns the first word of a line of status.
func field(status, name string) string {
	_, rest, _ := strings.Cut("\n"+status, "\n"+name+":\t")
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

// read reads a file of a process, "" if it can't be read.
func read(pid int, name string) string {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 16<<10) // a status with thousands of supplementary groups is not larger
	n, _ := unix.Read(fd, text)
	return string(text[:max(n, 0)])
}
