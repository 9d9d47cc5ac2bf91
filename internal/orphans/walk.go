package orphans

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the processes, from parent to children. It verifies that each process is still the child that was
// listed.

// A View is the result of a look.
type View struct {
	Found []Process // every live descendant, parents before their children

	// Still says that this process got no new child and lost no child during the look, and that none has ended further
	// down of which nobody knows what it held. So no process can have slipped through the look from one parent to another.
	// Look sets Still only under --orphans=pipes and --allow-orphan.
	Still bool

	// Nameless says that there is no /proc to read: the look finds only children, and may miss a process that becomes a
	// child meanwhile. Nothing shows their names, or which of them hold a stream.
	Nameless bool
}

// maxWalks is how often a look walks the tree, at most.
const maxWalks = 5

// Look finds every live descendant. The caller can signal these processes until the next Look, as long as it reaps
// nothing in between.
func (t *Tree) Look() (View, error) {
	if err := t.prepare(); err != nil {
		return View{}, err
	}
	v := View{Nameless: t.childrenOnly}
	mayStay := t.Dir >= 0 && (t.Pipes || len(t.patterns) > 0)
	var before []int
	t.looks++
	// What a process leaves that ends during the walk comes to the nearest subreaper, which need not be this process, and
	// which the walk may have passed. So there is another walk at once: a process that ends soon after it was forked, as
	// most do that a busy daemon starts, is rarely in the way again.
	for range maxWalks {
		t.missed, t.lost = false, false
		if mayStay {
			before, _ = t.listedChildren()
		}
		v.Found = slices.DeleteFunc(t.walk(), func(p Process) bool { return !p.Alive() })
		t.askFacts(v.Found)
		if !mayStay || !t.lost {
			break
		}
	}
	t.markAllowed(v.Found)
	if mayStay {
		after, err := t.listedChildren()
		v.Still = err == nil && !t.missed && !t.lost && slices.Equal(before, after)
	}
	t.found = v.Found
	return v, nil
}

// walk returns each descendant, zombies included, parents before their children, and forgets all others. If its time is
// up, it returns those that it has found so far, and forgets none.
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
		// If the parent has ended since, its children are now children of this process.
		t.missed = t.missed || err != nil && !proc.IsGone(err)
		t.lost = t.lost || err != nil && at.Parent != t.self && at.kept.mayLeaveHolder()
		for _, pid := range pids {
			if err != nil || seen[pid] || t.isEarlier(pid) && !t.includesEarlier || t.late() {
				continue
			}
			known := t.known[pid]
			child, ok := t.verify(pid, at)
			if ok {
				child.Earlier = at.Earlier || t.isEarlier(pid)
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

// entrants are the processes that came in from outside, if the caller wants them and there is a /proc.
func (t *Tree) entrants() []int {
	if !t.Entrants || t.self != 1 || t.prepare() != nil || t.childrenOnly {
		return nil
	}
	snapshot, _ := t.snapshot()
	return slices.DeleteFunc(snapshot[0], func(pid int) bool { return pid == t.self })
}

// HasEntrants reports whether a process that came in from outside is alive, or has just left a child to this process. Nobody
// in this PID namespace can wait until a zombie is reaped outside, so a zombie does not count.
func (t *Tree) HasEntrants() bool {
	if !t.Entrants || t.self != 1 {
		return false
	}
	return slices.ContainsFunc(t.entrants(), func(pid int) bool {
		s, err := t.Status(pid)
		return err == nil && Process{State: s.State, Threads: s.Threads}.Alive()
	}) || ownChild(unix.P_ALL, 0) != unix.ECHILD
}

// verify looks at the process that has the pid now and reports whether the process is
// a child of parent, or has become a child of this process.
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
	case parent.Pid == t.self && ownChild(unix.P_PID, pid) == 0: // there is no /proc, or no free descriptor
		p, ok = Process{Pid: pid, Parent: t.self, Name: "?", State: '?', Threads: 1, User: -1}, true
	default:
		t.missed = t.missed || !proc.IsGone(err)
	}
	p.Group, _ = unix.Getpgid(pid)
	p.Session, _ = unix.Getsid(pid)
	// If the process was reaped meanwhile, another process may have had its pid.
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

// headless fills in the state of a process whose first thread has ended, from another thread.
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

// childrenOf lists the children of every thread of a process.
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

// childrenOfThreads lists the children of every thread of a process.
func (t *Tree) childrenOfThreads(f *files, pid int) (pids []int, err error) {
	err = f.List(strconv.Itoa(pid)+"/task", func(tid int) bool {
		if more, err := f.ReadPids(childrenFile(pid, tid)); err == nil {
			pids = append(pids, more...)
		}
		return !t.late()
	})
	return pids, err
}

// Children lists the children of this process, zombies included.
func (t *Tree) Children() ([]int, error) {
	if err := t.prepare(); err != nil {
		return nil, err
	}
	return t.listedChildren()
}

// listedChildren are the children of this process in /proc.
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

// LaterChildren lists the children of this process without those of EarlierAre, zombies included. Where the kernel lists the
// children of a thread, it reads only that file. It returns an error if /proc can't be used.
func (t *Tree) LaterChildren() ([]int, error) {
	pids, err := t.Children()
	if err == nil && t.childrenOnly {
		err = errors.New("cannot use /proc")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the children of fini: %w", err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return t.isEarlier(pid) && !t.includesEarlier }), nil
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren finds children of this process that have not ended: see eachOwnChild.
func (t *Tree) ownChildren() (pids []int) {
	t.eachOwnChild(func(pid int) { pids = append(pids, pid) })
	return pids
}

// eachOwnChild tries pid after pid, and calls visit for each child of this process that has not ended, as soon as it
// finds the child. The kernel gives out pids in order and wraps around. So the search begins at the pid of the child
// reaped last: the children that this child left behind are most likely at the pids after its own. Before any child was
// reaped, the search begins at this process's pid. The search goes on until it finds a child, and then until maxMisses
// pids in a row belong to no child. The next search doubles maxMisses.
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
	if ownChild(unix.P_ALL, 0) == unix.ECHILD {
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
		// There is a child: the limit was lowered since the child got its pid.
	}
	t.maxMisses = min(2*t.maxMisses, t.pidMax)
}

const pidMaxLimit = 4 << 20 // PID_MAX_LIMIT in proc_sys_kernel(5)

// pidMax is the limit below which all new pids are.
func pidMax() int {
	f := filesIn(unix.AT_FDCWD)
	text, _ := f.Read("/proc/sys/kernel/pid_max")
	if is, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && is > unix.Getpid() {
		return is
	}
	return pidMaxLimit
}

// ownChild is 0 for a child of this process that has not ended, EAGAIN for a zombie child, and
// ECHILD for any other process. Any other error says why waitid(2) failed. As for waitid,
// the arguments are P_PID and a pid, or P_ALL and 0 for any child.
// With __WALL a child from before the exec whose exit signal is not SIGCHLD counts too: see clone(2).
func ownChild(idtype, id int) unix.Errno {
	ended, errno := proc.WaitID(idtype, id, unix.WEXITED|unix.WNOWAIT)
	if errno == 0 && ended != 0 {
		return unix.EAGAIN
	}
	return errno
}

// isChild reports whether pid belongs to a child that was not reaped. It returns false if that is unknown.
func isChild(pid int) bool {
	errno := ownChild(unix.P_PID, pid)
	return errno == 0 || errno == unix.EAGAIN
}

// mayBeChild is isChild, but returns true if that is unknown.
func mayBeChild(pid int) bool { return ownChild(unix.P_PID, pid) != unix.ECHILD }

// snapshot reads the parent of every process in /proc, for kernels without the children file.
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
