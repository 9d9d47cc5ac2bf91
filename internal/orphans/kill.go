package orphans

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file signals the process that was found, and no other.

// send sends a signal to the process that has the pid and was found with that parent.
//
// A pidfd makes that certain. There is no pidfd before Linux 5.3, if a filter refuses it, or while the table of
// descriptors is full. Then a child of this process still has its pid, because only this process reaps, and it does not
// reap now. If the kernel itself reaps, waitid(2) tells whether the pid is a child's. For any other process, send reads
// status once more: the process must still be the child of that parent, or have been reparented to this process. Only
// in the moment after this check could another process get the pid. If the process has ended, send returns ESRCH.
//
// A filter may refuse one of the two calls that send a signal, with the same error as for a process that fini may not
// signal. So send tries the other call too.
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

// Signal sends sig to a process that the last Look found. A process that has ended
// is no error. If fini may not signal the process, the error wraps unix.EPERM.
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

// KillChildren sends SIGKILL to the children of this process without a look at them, for speed: a process that forks
// and exits in a loop is gone before a look at it. KillChildren returns the pids that it hit, including zombies, and
// the pids that it may not signal. If Allow may spare a child, KillChildren kills none: only a look tells which.
//
// PID 1 first kills the whole PID namespace by a single call. The call is too fast for a process to fork, and the
// kernel would kill these processes anyway when PID 1 ends. See kill(2). Any other process first kills what is left of
// the command's process group so, because a fork bomb outruns a walk.
func (t *Tree) KillChildren() (hit, refused []int, err error) {
	if err := t.prepare(); err != nil {
		return nil, nil, err
	}
	if len(t.patterns) > 0 && !t.childrenOnly {
		return nil, nil, nil
	}
	switch {
	case len(t.patterns) > 0 || len(t.earlier) > 0:
	case t.self == 1:
		_ = unix.Kill(-1, unix.SIGKILL)
	case t.hasGroup():
		_ = unix.Kill(-t.main, unix.SIGKILL)
	}
	strike := func(pid int) {
		if t.isEarlier(pid) {
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
		// Kill each child as soon as it is found, because the search takes longer than the child may live.
		t.eachOwnChild(strike)
		return hit, refused, nil
	}
	pids, _ := t.childrenOf(Process{Pid: t.self})
	for _, pid := range pids {
		strike(pid)
	}
	return hit, refused, nil
}

// hasGroup reports whether the last look found a child in the process group that the main child led. As long as the
// child is not reaped, the kernel gives the group's ID to no other group.
func (t *Tree) hasGroup() bool {
	return !t.autoreap && t.main > 0 && slices.ContainsFunc(t.found, func(p Process) bool {
		return p.Parent == t.self && p.Group == t.main && t.known[p.Pid] == p.kept
	})
}

// Kill sends SIGKILL to every descendant that the walk finds, and returns as KillChildren does.
func (t *Tree) Kill() (hit, refused []int, err error) {
	hit, refused, err = t.KillChildren()
	if err != nil || t.childrenOnly {
		return hit, refused, err
	}
	children := slices.Concat(hit, refused)
	slices.Sort(children)
	all := t.walk()
	if len(t.patterns) > 0 {
		t.askFacts(all)
		t.markAllowed(all)
	}
	for _, p := range all {
		if _, done := slices.BinarySearch(children, p.Pid); p.Allowed || p.Parent == t.self && done || p.Entered && !p.Alive() {
			continue
		}
		if t.Signal(p, unix.SIGKILL) == nil {
			hit = append(hit, p.Pid)
		} else {
			refused = append(refused, p.Pid)
		}
	}
	return hit, refused, nil
}

// openPidfd opens a pidfd, and returns -1 if it can't. It leaves half of the table of descriptors for reading /proc: the
// kernel gives out the lowest free descriptor.
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

// hasEnded reports whether a process has ended and was reaped, so that another process may have its pid. If fini may not
// signal the process, or a filter refuses the call, a zombie counts too.
func hasEnded(pidfd int) bool {
	err := unix.PidfdSendSignal(pidfd, 0, nil, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		return exited(pidfd)
	}
	return err == unix.ESRCH
}

// exited reports whether a process has ended, reaped or not.
func exited(pidfd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// isOver reports whether another process may have got the pid of a process. During a look, a process without a pidfd is
// assumed to keep its pid.
func (k *kept) isOver() bool { return k != nil && k.pidfd >= 0 && hasEnded(k.pidfd) }

// inode is the inode of a process's directory below /proc, 0 if it is unknown. As long as the inode stays the same, so
// does the process. This call waits for nobody.
func (t *Tree) inode(pid int) uint64 {
	var st unix.Stat_t
	_ = unix.Fstatat(t.Dir, strconv.Itoa(pid), &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Ino
}

// forget forgets a process.
func (t *Tree) forget(pid int) {
	if k := t.known[pid]; k != nil && k.pidfd >= 0 {
		_ = unix.Close(k.pidfd)
		k.pidfd = -1
	}
	delete(t.known, pid)
}
