package orphans

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// This file signals: through a pidfd if the pid may become another's, and otherwise by pid.

// Signal sends sig to a process that the last Look found. A process that has ended
// is no error; unix.EPERM is wrapped if it may not be signalled.
func (t *Tree) Signal(p Process, sig unix.Signal) error {
	var err error
	switch {
	case p.pidfd >= 0:
		err = unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	case p.State == '?' && p.Parent != t.self:
		// It is stuck, and there is no pidfd: is it still listed as that one's child?
		if !ask(t, func(s *sight) bool {
			listed, _ := s.children(p.Parent, 0)
			return slices.Contains(listed, p.Pid)
		}) {
			return nil
		}
		err = unix.Kill(p.Pid, sig)
	case p.State == '?': // a child of this process
		if t.autoreap && ownChild(unix.P_PID, p.Pid) == unix.ECHILD {
			return nil
		}
		err = unix.Kill(p.Pid, sig)
	default:
		// A child of this process keeps its pid. For any other without a pidfd a
		// moment remains in which the pid could become another's.
		now, statErr := ask2(t, func(s *sight) (Process, error) { return s.stat(p.Pid) })
		isChild := statErr != nil && ownChild(unix.P_PID, p.Pid) == 0 // there may be no descriptor to look with
		if !isChild && (statErr != nil || now.Start != p.Start || now.Parent != p.Parent && now.Parent != t.self) {
			return nil
		}
		err = unix.Kill(p.Pid, sig)
	}
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot signal %d (%s): %w", p.Pid, p.Name, err)
}

// KillChildren sends SIGKILL to the children of this process, unseen, for speed: a process
// that forks and ends in a loop is gone before it could be looked at. It returns the pids
// that it hit, zombies among them, and those it may not signal.
func (t *Tree) KillChildren() (hit, refused []int, err error) {
	if err := t.prepare(); err != nil {
		return nil, nil, err
	}
	t.Release()
	strike := func(pid int) {
		switch t.killChild(pid) {
		case nil:
			hit = append(hit, pid)
		case unix.EPERM:
			refused = append(refused, pid)
		}
	}
	if t.childrenOnly {
		// Each as soon as it is found, for the search takes longer than it may live.
		t.eachOwnChild(func(pid int) {
			if !t.isEarlier(pid) {
				strike(pid)
			}
		})
		return hit, refused, nil
	}
	children := ask(t, func(s *sight) []int {
		pids, _ := s.children(s.self, 1)
		return slices.DeleteFunc(pids, func(pid int) bool { return s.isEarlier(pid) || s.spares(pid) })
	})
	for _, pid := range children {
		strike(pid)
	}
	return hit, refused, nil
}

// killChild sends SIGKILL to pid, which was that of a child a moment ago, and still is, since
// the caller reaps nothing, unless the kernel reaps children by itself. It returns ESRCH if pid
// is no child's any more.
func (t *Tree) killChild(pid int) error {
	if !t.autoreap {
		return unix.Kill(pid, unix.SIGKILL)
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == unix.ESRCH {
		return err
	} else if err == nil {
		defer func() { _ = unix.Close(fd) }()
		if ownChild(unix.P_PIDFD, fd) == unix.ECHILD {
			return unix.ESRCH
		}
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err != unix.EPERM && err != unix.ENOSYS { // which a filter answers too
			return err
		}
	}
	if ownChild(unix.P_PID, pid) == unix.ECHILD {
		return unix.ESRCH
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// Kill sends SIGKILL to every descendant that the walk finds, children first, and returns as
// KillChildren does.
func (t *Tree) Kill() (hit, refused []int, err error) {
	hit, refused, err = t.KillChildren()
	if err != nil || t.childrenOnly {
		return hit, refused, err
	}
	children := map[int]bool{}
	for _, pid := range slices.Concat(hit, refused) {
		children[pid] = true
	}
	// First the whole walk, then the signals, for a reader sends none.
	all := ask(t, func(s *sight) (all []Process) {
		s.walk(func(p Process) { all = append(all, p) })
		return all
	})
	for _, p := range all {
		if p.Allowed || p.Parent == t.self && children[p.Pid] {
			continue
		}
		switch err := t.Signal(p, unix.SIGKILL); {
		case err == nil:
			hit = append(hit, p.Pid)
		case errors.Is(err, unix.EPERM):
			refused = append(refused, p.Pid)
		}
	}
	return hit, refused, nil
}

// maxPidfds is how many pidfds may be open at a time, so that some descriptors remain to read
// /proc with.
func maxPidfds() int {
	const spare = 32
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return spare
	}
	return int(max(min(limit.Cur, 1<<20), 2*spare)/2 - spare/2)
}

// keepPidfd opens a pidfd that lives until Release; -1 if there is none to be had.
func (s *sight) keepPidfd(pid int) int {
	if !s.usePidfds || len(s.pidfds) >= s.maxPidfds {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		s.usePidfds = err != unix.ENOSYS && err != unix.EPERM
		return -1
	}
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err == unix.ENOSYS || err == unix.EPERM {
		// EPERM comes from a process that may not be signalled, or from a
		// filter that refuses the call; kill(2) tells them apart.
		_ = unix.Close(fd)
		s.usePidfds = err != unix.ENOSYS
		return -1
	}
	s.pidfds = append(s.pidfds, fd)
	return fd
}

// reaped reports whether the pid of a process may have become another's. A process without a
// pidfd is taken for one that keeps it.
func reaped(p Process) bool {
	return p.pidfd >= 0 && unix.PidfdSendSignal(p.pidfd, 0, nil, 0) == unix.ESRCH
}
