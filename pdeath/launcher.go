package pdeath

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Proc is a /proc that shows the processes above fini, as a descriptor of the directory. This file reads only comm
// and status there, for which a reader never waits. See proc_pid_comm(5), proc_pid_status(5).
type Proc int

// Own is the /proc of this process.
const Own Proc = -1

// Name returns the name of a process, "" if it can't be read.
func (p Proc) Name(pid int) string {
	return strings.TrimSuffix(p.read(pid, "comm"), "\n")
}

// Ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func (p Proc) Ignores(pid int, sig unix.Signal) bool {
	set, _ := strconv.ParseUint(field(p.read(pid, "status"), "SigIgn"), 16, 64)
	return set&(1<<(sig-1)) != 0
}

// GroupIsOrphaned reports whether a process group of a session is orphaned: no member has a parent in another group of
// the session, such as a shell that could continue it. See setpgid(2). It returns false if this can't be read. It looks
// only at the process parent, which is the parent of a member, and at the ancestors of parent, because the other
// members of a job have the same parents.
func (p Proc) GroupIsOrphaned(group, session, parent int) bool {
	if group == 0 {
		return false // the group is outside of the PID namespace, as are the parents of its members
	}
	for at := parent; at > 0; {
		theirGroup, theirSession, ok := p.groupOf(at)
		switch {
		case !ok:
			return false
		case theirSession != session:
			return true
		case theirGroup != group:
			return false
		}
		above, err := strconv.Atoi(field(p.read(at, "status"), "PPid"))
		if err != nil {
			return false
		}
		at = above
	}
	return true
}

// groupOf returns the process group and the session of a process. No system call knows them in another PID namespace.
func (p Proc) groupOf(pid int) (group, session int, ok bool) {
	if p == Own {
		group, err := unix.Getpgid(pid)
		session, err2 := unix.Getsid(pid)
		return group, session, err == nil && err2 == nil
	}
	text := p.read(pid, "status")
	group, err := strconv.Atoi(field(text, "NSpgid"))
	session, err2 := strconv.Atoi(field(text, "NSsid"))
	return group, session, err == nil && err2 == nil
}

// field returns the first word of a line of status: of several numbers, the number in the PID namespace of that /proc.
func field(status, name string) string {
	_, rest, _ := strings.Cut("\n"+status, "\n"+name+":\t")
	rest, _, _ = strings.Cut(rest, "\n")
	rest, _, _ = strings.Cut(rest, "\t")
	return rest
}

// read reads a file of a process, "" if it can't be read.
func (p Proc) read(pid int, name string) string {
	path := strconv.Itoa(pid) + "/" + name
	if p == Own {
		path = "/proc/" + path
	}
	fd, err := unix.Openat(int(p), path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 16<<10) // a status with thousands of supplementary groups is not larger
	n, _ := unix.Read(fd, text)
	return string(text[:max(n, 0)])
}
