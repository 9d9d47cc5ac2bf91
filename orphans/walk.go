package orphans

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file finds the processes: from parent to children, each verified to be what it was
// listed as.

// Look finds every live descendant, parents before their children. What it found
// can be signalled until the next Look or Release, as long as the caller reaps
// nothing in between.
func (t *Tree) Look() ([]Process, error) {
	if err := t.prepare(); err != nil {
		return nil, err
	}
	t.Release()
	var alive []Process
	err := t.walk(func(p Process) {
		if p.Alive() {
			p.Holds = t.holds(p)
			alive = append(alive, p)
		}
	})
	return alive, err
}

// Release closes what the last Look kept open.
func (t *Tree) Release() {
	for _, fd := range t.pidfds {
		_ = unix.Close(fd)
	}
	t.pidfds = t.pidfds[:0]
}

// walk calls visit for each descendant, zombies included, parents before their
// children.
func (t *Tree) walk(visit func(Process)) error {
	children := t.children
	if !t.byChildren && !t.childrenOnly {
		snapshot, err := t.snapshot()
		if err != nil || len(snapshot[t.self]) == 0 {
			snapshot[t.self] = t.ownChildren() // they are hidden, or there is no descriptor
		}
		children = func(pid, _ int) ([]int, error) { return snapshot[pid], nil }
	}
	seen := map[int]bool{t.self: true}
	parents := []Process{{Pid: t.self, Threads: 1, pidfd: -1}}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		pids, err := children(parent.Pid, parent.Threads)
		if err != nil {
			// The parent has ended since; its children are this process's now.
			continue
		}
		for _, pid := range pids {
			if seen[pid] || t.isEarlier(pid) {
				continue
			}
			child, ok := t.verify(pid, parent)
			if !ok {
				continue
			}
			seen[pid] = true
			child.Allowed = parent.Allowed && child.Parent == parent.Pid || t.allows(child)
			visit(child)
			parents = append(parents, child)
		}
	}
	return nil
}

// verify looks at the process that pid is now and reports whether it is a child of
// parent, or has become one of this process.
func (t *Tree) verify(pid int, parent Process) (Process, bool) {
	pidfd := -1
	if parent.Pid != t.self || t.autoreap {
		pidfd = t.keepPidfd(pid)
	}
	p, err := t.stat(pid)
	if err != nil && parent.Pid == t.self && ownChild(unix.P_PID, pid) == 0 {
		// /proc hides it (hidepid in proc(5)), or is not there.
		p = Process{Pid: pid, Parent: t.self, Name: "?", State: '?', Threads: 1, pidfd: pidfd}
		return p, !reaped(p)
	}
	if err != nil {
		return Process{}, false
	}
	if t.listsThreads && p.Threads > 1 && !t.leads(pid) {
		return Process{}, false
	}
	p.pidfd = pidfd
	switch {
	case p.Parent == t.self:
		return p, !reaped(p)
	case p.Parent == parent.Pid:
		// If either was reaped meanwhile, its pid may have been another's.
		return p, !reaped(p) && !reaped(parent)
	}
	return Process{}, false
}

// leads reports whether a thread is the first of its process.
func (t *Tree) leads(tid int) bool {
	text, err := t.read(strconv.Itoa(tid) + "/status")
	group, known := statusField(text, "Tgid")
	return err != nil || !known || group == strconv.Itoa(tid)
}

// children lists the children of every thread of a process.
func (t *Tree) children(pid, threads int) ([]int, error) {
	if t.childrenOnly && pid == t.self {
		return t.ownChildren(), nil
	}
	if pid == t.self {
		pids, err := t.listedChildren()
		if err != nil {
			return t.ownChildren(), nil // for which no descriptor is needed
		}
		return pids, nil
	}
	if threads == 1 {
		return t.readPids(childrenFile(pid, pid))
	}
	var pids []int
	err := t.list(strconv.Itoa(pid)+"/task", func(tid int) bool {
		if more, err := t.readPids(childrenFile(pid, tid)); err == nil {
			pids = append(pids, more...)
		}
		return true
	})
	return pids, err
}

// listedChildren are those of this process as /proc has them.
func (t *Tree) listedChildren() ([]int, error) {
	if !t.byChildren {
		snapshot, err := t.snapshot()
		return snapshot[t.self], err
	}
	return t.readPids(childrenFile(t.self, t.self))
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren finds children of this process that have not ended by asking for pid after
// pid. Pids are given out in order, from this one's up and around, so that children are most
// likely among the next. It goes on as long as it finds none; otherwise it stops after
// maxMisses pids in a row that are no child's, which are twice as many the next time.
func (t *Tree) ownChildren() (pids []int) {
	last := 0
	for i := 1; i < t.pidMax && (len(pids) == 0 || i-last <= t.maxMisses); i++ {
		if pid := (t.self + i) % t.pidMax; ownChild(unix.P_PID, pid) == 0 {
			pids, last = append(pids, pid), i
		}
	}
	t.maxMisses = min(2*t.maxMisses, t.pidMax)
	return pids
}

// ownChild is 0 for a child of this process that has not ended, EAGAIN for one that waits to
// be reaped, ECHILD for any other process, and otherwise why waitid(2) can't be asked. The
// process is named as waitid names it: P_PID and its pid, or P_PIDFD and a descriptor.
func ownChild(idtype, id int) unix.Errno {
	var info [128]byte // siginfo_t, of which the first word is SIGCHLD if it has ended
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, uintptr(idtype), uintptr(id), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if errno == 0 && info != [128]byte{} {
		return unix.EAGAIN
	}
	return errno
}

// snapshot reads who is whose child from every process there is, for kernels
// without the children file.
func (t *Tree) snapshot() (map[int][]int, error) {
	children := map[int][]int{}
	err := t.list(".", func(pid int) bool {
		if p, err := t.stat(pid); err == nil {
			children[p.Parent] = append(children[p.Parent], pid)
		}
		return true
	})
	return children, err
}
