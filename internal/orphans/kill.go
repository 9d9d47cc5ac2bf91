package orphans

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file sends signals, and ensures that each reaches the process that was found.

// send sends a signal to the process with this pid and parent. It returns ESRCH if that process has ended.
//
// With a pidfd, no other process can receive the signal. There may be none, because pidfds came with Linux 5.3, a
// filter may refuse them, and the descriptor table may be full. A child then still has its pid, because only this
// process reaps, unless the kernel does, in which case waitid(2) tells whether the pid belongs to a child. For any
// other process, send reads its status again. Its parent must be the same as before, or this process. Its pid could
// only be reused in the moment between that check and the signal.
//
// If a filter refuses one of the two system calls that send signals, the error is the same as for a process that fini
// may not signal. So send tries the other one as well.
func (t *Tree) send(pid, parent, pidfd int, sig unix.Signal) error {
	switch {
	case pidfd >= 0, parent == t.self && !t.autoreap:
	case parent == t.self:
		if pidfd = t.openPidfd(pid); pidfd >= 0 {
			defer func() { _ = unix.Close(pidfd) }()
		}
		if ownChild(unix.P_PID, pid) == unix.ECHILD {
			return unix.ESRCH
		}
	default:
		s, err := t.Status(pid)
		switch {
		case err == nil && (s.Parent == parent || s.Parent == t.self), ownChild(unix.P_PID, pid) == 0:
		case err == nil || proc.IsGone(err):
			return unix.ESRCH
		default:
			return err
		}
	}
	if pidfd >= 0 {
		err := unix.PidfdSendSignal(pidfd, sig, nil, 0)
		if err != unix.ENOSYS && err != unix.EPERM || hasEnded(pidfd) {
			return err
		}
		return unix.Kill(pid, sig)
	}
	err := unix.Kill(pid, sig)
	if err == unix.EPERM && parent == t.self {
		if pidfd = t.openPidfd(pid); pidfd >= 0 {
			err = unix.PidfdSendSignal(pidfd, sig, nil, 0)
			_ = unix.Close(pidfd)
		}
	}
	return err
}

// Signal sends sig to a process that the last Look found. It returns nil if the process has ended. If fini may not
// signal the process, the error wraps unix.EPERM.
func (t *Tree) Signal(p Process, sig unix.Signal) error {
	if t.known[p.Pid] != p.kept {
		return nil // the process was reaped
	}
	p.kept.signaled = true
	err := t.send(p.Pid, p.Parent, p.kept.pidfd, sig)
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot signal %d (%s): %w", p.Pid, p.Name, err)
}

// KillChildren sends SIGKILL to all children of this process without looking at them. That is fast enough for a process
// that forks and exits in a loop. It returns the pids that it hit, including zombies, and those that it may not signal.
// If patterns were set with Allow, it kills nothing, because only a look shows which processes to spare.
//
// PID 1 first kills its whole PID namespace with a single system call, which the kernel would also do when PID 1 exits.
// No process can fork in between (see kill(2)). Any other process first kills the rest of the command's process group
// that way, because a fork bomb may be faster than a walk.
func (t *Tree) KillChildren() (hit, refused []int) {
	t.prepare()
	if len(t.patterns) > 0 && !t.childrenOnly {
		return nil, nil
	}
	switch {
	case len(t.patterns) > 0 || len(t.inherited) > 0:
	case t.self == 1:
		_ = unix.Kill(-1, unix.SIGKILL)
	case t.hasGroup():
		_ = unix.Kill(-t.main, unix.SIGKILL)
	}
	strike := func(pid int) {
		if t.isInherited(pid) {
			return
		}
		switch t.send(pid, t.self, -1, unix.SIGKILL) {
		case nil:
			hit = append(hit, pid)
		case unix.ESRCH:
		default:
			refused = append(refused, pid)
		}
	}
	if t.childrenOnly {
		// Kill each child as soon as it is found, because the search may take longer than the child lives.
		t.eachOwnChild(strike)
		return hit, refused
	}
	pids, _ := t.childrenOf(Process{Pid: t.self})
	for _, pid := range pids {
		strike(pid)
	}
	return hit, refused
}

// hasGroup reports whether the last look found a child in the main child's process group. Until that child is reaped,
// the kernel does not reuse the group's ID.
func (t *Tree) hasGroup() bool {
	return !t.autoreap && t.main > 0 && slices.ContainsFunc(t.found, func(p Process) bool {
		return p.Parent == t.self && p.PGID == t.main && t.known[p.Pid] == p.kept
	})
}

// Kill sends SIGKILL to every descendant that a walk finds. It returns the same as KillChildren.
func (t *Tree) Kill() (hit, refused []int) {
	hit, refused = t.KillChildren()
	if t.childrenOnly {
		return hit, refused
	}
	children := slices.Concat(hit, refused)
	slices.Sort(children)
	all := t.walk()
	if len(t.patterns) > 0 {
		t.askFacts(all)
		t.markAllowed(all)
	}
	for _, p := range all {
		if _, done := slices.BinarySearch(children, p.Pid); p.Allowed || p.Parent == t.self && done || p.Entered &&
			!p.Alive() {
			continue
		}
		if t.Signal(p, unix.SIGKILL) == nil {
			hit = append(hit, p.Pid)
		} else {
			refused = append(refused, p.Pid)
		}
	}
	return hit, refused
}

// openPidfd opens a pidfd, or returns -1. It leaves half of the descriptor table free for reading /proc. Because the
// kernel returns the lowest free descriptor, the number of the pidfd shows how full the table is.
func (t *Tree) openPidfd(pid int) int {
	if !t.usePidfds {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.usePidfds = err != unix.ENOSYS && err != unix.EPERM
		return -1
	}
	if uint64(fd) >= t.descriptors/2 {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// hasEnded reports whether a process has been reaped, so that its pid may have been reused. If fini may not signal the
// process, or if a filter refuses the system call, it returns true for a zombie as well.
func hasEnded(pidfd int) bool {
	err := unix.PidfdSendSignal(pidfd, 0, nil, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		return exited(pidfd)
	}
	return err == unix.ESRCH
}

// exited reports whether a process has ended, whether or not it was reaped.
func exited(pidfd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// isOver reports whether the pid of a process may have been reused. Without a pidfd it returns false, because no pid of
// such a process is expected to be reused during a look.
func (k *kept) isOver() bool { return k != nil && k.pidfd >= 0 && hasEnded(k.pidfd) }

// inode returns the inode of a process's directory in /proc, or 0 if it is unknown. If the pid is reused, the inode
// changes. This system call never hangs.
func (t *Tree) inode(pid int) uint64 {
	var st unix.Stat_t
	_ = unix.Fstatat(t.Dir, strconv.Itoa(pid), &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Ino
}

// forget removes a process from the known ones.
func (t *Tree) forget(pid int) {
	if k := t.known[pid]; k != nil && k.pidfd >= 0 {
		_ = unix.Close(k.pidfd)
		k.pidfd = -1
	}
	delete(t.known, pid)
}
