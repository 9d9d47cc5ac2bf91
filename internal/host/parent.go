package host

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads only status files in /proc, which never hang. See proc_pid_status(5).

// parent returns the parent process of fini. For the inner fini, this is the parent of the outer fini.
func (k *system) parent() entry.Parent {
	p := k.self.Parent
	if p.Pid != 0 {
		adopted := p.Session >= 0 && proc.Adopted(k.self.Pid, k.self.Session, p.Pid, p.Session)
		p.Gone = p.Gone || adopted || k.socket.FD < 0 && p.Died()
	}
	return p
}

// ignores reports whether a process ignores a signal. It returns false if the status can't be read.
func ignores(pid int, sig unix.Signal) bool {
	f := proc.In(unix.AT_FDCWD)
	status, _ := f.StatusIn("/proc/" + strconv.Itoa(pid))
	return status.Ignored&(1<<(sig-1)) != 0
}

// groupIsOrphaned reports whether a process group is orphaned. No member then has a parent in another group of the
// session, such as a shell that could continue it. See setpgid(2). It returns false if this can't be read. It checks
// only the ancestors of one member, because all members of a job have the same parents.
func groupIsOrphaned(group, session, member int) bool {
	if group == 0 {
		return false // the group is outside of the PID namespace, as are the parents of its members
	}
	f := proc.In(unix.AT_FDCWD)
	for at := member; ; {
		status, err := f.StatusIn("/proc/" + strconv.Itoa(at))
		if at = status.Parent; err != nil || at <= 0 {
			return err == nil
		}
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
	}
}
