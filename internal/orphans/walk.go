package orphans

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the processes of the tree, parents before children. It verifies that each process is still the child
// that was listed.

// A View is the result of a look.
type View struct {
	Found []Process // all live descendants, parents before their children

	// Complete is true if no process can have moved unseen from one parent to another. During the look, this process has
	// neither got nor lost a child, and no process further down has ended that may have held a stream. Look only sets
	// Complete if Pipes is set or there are patterns.
	Complete bool

	// Nameless is true if there is no /proc, and so no names. The look has found only children, without their names and
	// without the streams that they hold, and may have missed new ones.
	Nameless bool
}

// maxWalks limits how often a single look walks the tree.
const maxWalks = 5

// Look finds all live descendants. The caller may signal them until the next Look, provided that it reaps nothing in
// between.
func (t *Tree) Look() View {
	t.prepare()
	v := View{Nameless: t.childrenOnly}
	wantsComplete := t.Dir >= 0 && (t.Pipes || len(t.patterns) > 0)
	var before []int
	t.looks++
	// If a process ends during the walk, its children may be reparented to another subreaper that was visited already.
	// Walk again if that happens. Most processes that exit during a walk were forked moments ago and have no children,
	// so the next walk usually works.
	for range maxWalks {
		t.missed, t.lost = false, false
		if wantsComplete {
			before, _ = t.listedChildren()
		}
		v.Found = slices.DeleteFunc(t.walk(), func(p Process) bool { return !p.Alive() })
		t.askFacts(v.Found)
		if !wantsComplete || !t.lost {
			break
		}
	}
	t.markAllowed(v.Found)
	if wantsComplete {
		after, err := t.listedChildren()
		v.Complete = err == nil && !t.missed && !t.lost && slices.Equal(before, after)
	}
	t.found = v.Found
	return v
}

// walk returns all descendants including zombies, parents before their children, and forgets all other processes. If
// its time is up, it returns what it has found so far, and forgets nothing.
func (t *Tree) walk() (all []Process) {
	children := t.childrenOf
	if !t.byChildren && !t.childrenOnly {
		snapshot, err := t.snapshot()
		t.missed = t.missed || err != nil
		if err != nil || len(snapshot[t.self]) == 0 {
			snapshot[t.self] = t.ownChildren() // no descriptor is free
		}
		children = func(p Process) ([]int, error) { return snapshot[p.Pid], nil }
	}
	seen := map[int]bool{t.self: true}
	for _, pid := range t.entrants() {
		if p, ok := t.verify(pid, Process{}); ok {
			seen[pid], p.Entered = true, true
			all = append(all, p)
		}
	}
	at := Process{Pid: t.self, Threads: 1}
	for next := 0; !t.late(); next++ {
		pids, err := children(at)
		// If the parent has ended, its children are children of this process now.
		t.missed = t.missed || err != nil && !proc.IsGone(err)
		t.lost = t.lost || err != nil && at.Parent != t.self && at.kept.mayLeaveHolder()
		for _, pid := range pids {
			if err != nil || seen[pid] || t.isInherited(pid) && !t.includesInherited || t.late() {
				continue
			}
			known := t.known[pid]
			child, ok := t.verify(pid, at)
			if ok {
				child.Inherited = at.Inherited || t.isInherited(pid)
				seen[pid] = true
				all = append(all, child)
				known = child.kept
			}
			if ended := !ok || !child.Alive(); ended && at.Pid != t.self && known.mayLeaveHolder() {
				t.lost = t.lost || !ok || !known.ended
				if ok {
					known.ended = true
				}
			}
		}
		if next == len(all) {
			break
		}
		at = all[next]
	}
	for pid := range t.known {
		if !seen[pid] && !t.late() {
			t.forget(pid)
		}
	}
	return all
}

// entrants returns the processes that have entered this PID namespace, if the caller wants them and /proc can be read.
func (t *Tree) entrants() []int {
	if !t.Entrants || t.self != 1 {
		return nil
	}
	if t.prepare(); t.childrenOnly {
		return nil
	}
	snapshot, _ := t.snapshot()
	return slices.DeleteFunc(snapshot[0], func(pid int) bool { return pid == t.self })
}

// HasEntrants reports whether a process that has entered this PID namespace is alive, or has just left a child to this
// process. Zombies don't count, because nobody in this PID namespace can wait until they are reaped outside.
func (t *Tree) HasEntrants() bool {
	if !t.Entrants || t.self != 1 {
		return false
	}
	return slices.ContainsFunc(t.entrants(), func(pid int) bool {
		s, err := t.Status(pid)
		return err == nil && Process{State: s.State, Threads: s.Threads}.Alive()
	}) || ownChild(unix.P_ALL, 0) != unix.ECHILD
}

// verify looks at the process that has the pid now. ok is true if it is a child of parent, or has been reparented to
// this process.
func (t *Tree) verify(pid int, parent Process) (p Process, ok bool) {
	k := t.known[pid]
	if k == nil || k.isOver() || k.inode != 0 && k.inode != t.inode(pid) {
		t.forget(pid)
		k = &kept{pidfd: -1}
		t.known[pid] = k
	}
	if k.pidfd < 0 && (parent.Pid != t.self || t.autoreap) {
		if k.pidfd = t.openPidfd(pid); k.pidfd < 0 {
			k.inode = t.inode(pid)
		}
	}
	s, err := t.Status(pid)
	switch {
	case err == nil:
		p = Process{Pid: pid, Parent: s.Parent, Name: s.Name, State: s.State, Threads: s.Threads, User: s.User,
			Ignored: s.Ignored, thread: pid, code: s.Code}
		ok = p.Parent == t.self || p.Parent == parent.Pid && !parent.kept.isOver()
	case parent.Pid == t.self && ownChild(unix.P_PID, pid) == 0: // no /proc or no free descriptor
		p, ok = Process{Pid: pid, Parent: t.self, Name: "?", State: '?', Threads: 1, User: -1}, true
	default:
		t.missed = t.missed || !proc.IsGone(err)
	}
	p.PGID, _ = unix.Getpgid(pid)
	p.Session, _ = unix.Getsid(pid)
	// If the process was reaped in the meantime, the pid may have been reused.
	if !ok || k.isOver() {
		t.forget(pid)
		return Process{}, false
	}
	p.kept = k
	if p.State == 'Z' && p.Threads > 1 {
		t.headless(&p)
	}
	return p, true
}

// headless fills in the state of a process whose first thread has ended. It uses another thread.
func (t *Tree) headless(p *Process) {
	tasks := strconv.Itoa(p.Pid) + "/task"
	_ = t.List(tasks, func(tid int) bool {
		s, err := t.StatusIn(tasks + "/" + strconv.Itoa(tid))
		if err != nil || s.State == 'Z' || s.State == 'X' {
			return true
		}
		p.thread, p.State, p.code = tid, s.State, s.Code
		return false
	})
}

// childrenOf returns the children of all threads of a process.
func (t *Tree) childrenOf(p Process) ([]int, error) {
	if p.Pid == t.self {
		pids, err := t.listedChildren()
		if err != nil {
			return t.ownChildren(), nil // this search needs no descriptor
		}
		return pids, nil
	}
	if p.Threads == 1 {
		return t.ReadPids(childrenFile(p.Pid, p.Pid))
	}
	return t.childrenOfThreads(&t.files, p.Pid)
}

// childrenOfThreads reads the children files of all threads of a process.
func (t *Tree) childrenOfThreads(f *files, pid int) (pids []int, err error) {
	err = f.List(strconv.Itoa(pid)+"/task", func(tid int) bool {
		if more, err := f.ReadPids(childrenFile(pid, tid)); err == nil {
			pids = append(pids, more...)
		}
		return !t.late()
	})
	return pids, err
}

// Children returns the children of this process, including zombies.
func (t *Tree) Children() ([]int, error) {
	t.prepare()
	return t.listedChildren()
}

// listedChildren returns the children of this process as listed in /proc.
func (t *Tree) listedChildren() ([]int, error) {
	f := &t.files
	switch {
	case t.childrenOnly && t.ownFiles.Dir < 0:
		return nil, unix.ENOENT
	case t.childrenOnly:
		f = &t.ownFiles
	case !t.byChildren:
		snapshot, err := t.snapshot()
		return snapshot[t.self], err
	}
	if t.Shared {
		return t.childrenOfThreads(f, t.self)
	}
	return f.ReadPids(childrenFile(t.self, t.self))
}

// NewChildren returns the children of this process, including zombies, but without those of SetInherited. It reads a
// single file if the kernel has children files, and fails if /proc can't be used.
func (t *Tree) NewChildren() ([]int, error) {
	pids, err := t.Children()
	if err == nil && t.childrenOnly {
		err = errors.New("cannot use /proc")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the children of fini: %w", err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return t.isInherited(pid) && !t.includesInherited }), nil
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren returns the children of this process that have not ended. See eachOwnChild.
func (t *Tree) ownChildren() (pids []int) {
	t.eachOwnChild(func(pid int) { pids = append(pids, pid) })
	return pids
}

// eachOwnChild calls visit for each child of this process that has not ended, as soon as it finds the child. It tries
// one pid after another. The kernel assigns pids in order and then starts again. So the search starts at the child that
// was reaped last, whose own children are probably at the pids that follow, or at this process. It stops when maxMisses
// pids in a row after the last hit don't belong to a child. The next search doubles maxMisses.
func (t *Tree) eachOwnChild(visit func(pid int)) {
	if t.ownFiles.Dir >= 0 {
		if pids, err := t.listedChildren(); err == nil {
			for _, pid := range pids {
				if ownChild(unix.P_PID, pid) == 0 {
					visit(pid)
				}
			}
			return
		}
	}
	if errno := ownChild(unix.P_ALL, 0); errno != 0 && errno != unix.EAGAIN {
		return
	}
	t.pidMax = cmp.Or(t.pidMax, pidMax())
	from, found := cmp.Or(t.lastReaped, t.self), false
	for last := 0; ; t.pidMax = pidMaxLimit {
		for i := 0; i < t.pidMax && (!found || i-last <= t.maxMisses); i++ {
			if i%1024 == 0 && t.late() {
				return
			}
			if pid := (from + i) % t.pidMax; pid > 0 && ownChild(unix.P_PID, pid) == 0 {
				visit(pid)
				found, last = true, i
			}
		}
		if found || t.pidMax == pidMaxLimit || ownChild(unix.P_ALL, 0) != 0 {
			break
		}
		// There is a child that was not found, because the limit was lowered after its pid was assigned.
	}
	t.maxMisses = min(2*t.maxMisses, t.pidMax)
}

const pidMaxLimit = 4 << 20 // PID_MAX_LIMIT in proc_sys_kernel(5)

// pidMax returns the limit that all new pids are below.
func pidMax() int {
	f := filesIn(unix.AT_FDCWD)
	text, _ := f.Read("/proc/sys/kernel/pid_max")
	if is, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && is > unix.Getpid() {
		return is
	}
	return pidMaxLimit
}

// ownChild returns 0 if the process is a child that has not ended, EAGAIN for a zombie child, and ECHILD for any other
// process. Other errors are why waitid(2) failed. idtype and id are P_PID and a pid, or P_ALL and 0 for any child.
// Because of __WALL, it also finds inherited children whose exit signal is not SIGCHLD. See clone(2).
func ownChild(idtype, id int) unix.Errno {
	ended, errno := calls.WaitID(idtype, id, unix.WEXITED|unix.WNOWAIT)
	if errno == 0 && ended != 0 {
		return unix.EAGAIN
	}
	return errno
}

// isChild reports whether pid belongs to an unreaped child. It returns false if that is unknown.
func isChild(pid int) bool {
	errno := ownChild(unix.P_PID, pid)
	return errno == 0 || errno == unix.EAGAIN
}

// mayBeChild is like isChild, but returns true if the answer is unknown.
func mayBeChild(pid int) bool { return ownChild(unix.P_PID, pid) != unix.ECHILD }

// snapshot maps every process in /proc to its children, for kernels without children files.
func (t *Tree) snapshot() (map[int][]int, error) {
	children := map[int][]int{}
	var missed error
	err := t.List(".", func(pid int) bool {
		s, failed := t.Status(pid)
		switch {
		case failed == nil:
			children[s.Parent] = append(children[s.Parent], pid)
		case !proc.IsGone(failed):
			missed = failed
		}
		return !t.late()
	})
	return children, cmp.Or(err, missed)
}
