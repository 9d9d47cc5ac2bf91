package orphans

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file finds the processes: from parent to children, each verified to be what it was
// listed as.

// A View is what a look has found.
type View struct {
	Found []Process // every live descendant, parents before their children

	// Still says that no process came to be a child of this one, or ceased to be one, while the look lasted: so none
	// can have slipped through it from one parent to another. Where nothing may stay it is not asked for.
	Still bool

	// Blind says that nobody can tell who holds a standard stream that somebody may wait for the end of: only
	// children are found then, and one that comes to be a child meanwhile may be missed.
	Blind bool

	Nameless bool // there is no /proc that tells names
}

// Look finds every live descendant. What it found can be signalled until the next Look, as long as the caller reaps
// nothing in between.
func (t *Tree) Look() (View, error) {
	if err := t.prepare(); err != nil {
		return View{}, err
	}
	v := View{Nameless: t.childrenOnly, Blind: t.childrenOnly && t.streams != [2]stream{}}
	mayStay := t.proc >= 0 && (t.Pipes || len(t.allowed.patterns) > 0)
	var before []int
	if mayStay {
		before, _ = t.listedChildren()
	}
	v.Found = slices.DeleteFunc(t.walk(), func(p Process) bool { return !p.Alive() })
	t.askFacts(v.Found)
	t.markAllowed(v.Found)
	if mayStay {
		after, err := t.listedChildren()
		v.Still = err == nil && slices.Equal(before, after)
	}
	t.found = v.Found
	return v, nil
}

// walk returns each descendant, zombies included, parents before their children, and forgets all others.
func (t *Tree) walk() (all []Process) {
	t.looks++
	children := t.childrenOf
	if !t.byChildren && !t.childrenOnly {
		snapshot, err := t.snapshot()
		if err != nil || len(snapshot[t.self]) == 0 {
			snapshot[t.self] = t.ownChildren() // there is no descriptor
		}
		children = func(p Process) ([]int, error) { return snapshot[p.Pid], nil }
	}
	seen := map[int]bool{t.self: true}
	at := Process{Pid: t.self, Threads: 1}
	for next := 0; ; next++ {
		pids, err := children(at)
		// An error says that it has ended since; its children are this process's now.
		for _, pid := range pids {
			if err != nil || seen[pid] || t.isEarlier(pid) {
				continue
			}
			if child, ok := t.verify(pid, at); ok {
				seen[pid] = true
				all = append(all, child)
			}
		}
		if next == len(all) {
			break
		}
		at = all[next]
	}
	for pid, k := range t.known {
		if k.last != t.looks {
			t.forget(pid)
		}
	}
	return all
}

// verify looks at the process that pid is now and reports whether it is a child of
// parent, or has become one of this process.
func (t *Tree) verify(pid int, parent Process) (p Process, ok bool) {
	k := t.known[pid]
	if k != nil && k.isOver() {
		t.forget(pid)
		k = nil
	}
	certain := k != nil && (k.pidfd >= 0 || k.child && !t.autoreap)
	fresh := &kept{pidfd: -1}
	if !certain && (parent.Pid != t.self || t.autoreap) {
		fresh.pidfd = t.openPidfd(pid)
	}
	s, err := t.status(pid)
	switch {
	case err == nil:
		p = Process{Pid: pid, Parent: s.parent, Name: s.name, State: s.state, Threads: s.threads, User: s.user,
			thread: pid, code: s.code, inExec: s.inExec()}
		p.Group, _ = unix.Getpgid(pid)
		p.Session, _ = unix.Getsid(pid)
		ok = p.Parent == t.self || p.Parent == parent.Pid && !parent.kept.isOver()
	case parent.Pid == t.self && ownChild(unix.P_PID, pid) == 0: // there is no /proc, or no descriptor
		p, ok = Process{Pid: pid, Parent: t.self, Name: "?", State: '?', Threads: 1, User: -1}, true
	}
	if !certain {
		// Without a pidfd it is taken for the one of the last look if nothing tells otherwise.
		if k != nil && k.pidfd < 0 && k.name == p.Name && ok {
			k.pidfd, fresh = fresh.pidfd, k
		}
		k = fresh
	}
	// If it was reaped meanwhile, its pid may have been another's.
	if !ok || k.isOver() {
		t.drop(fresh)
		return Process{}, false
	}
	k.child, k.last, p.kept = p.Parent == t.self, t.looks, k
	t.known[pid] = k
	if p.State == 'Z' && p.Threads > 1 {
		t.headless(&p)
	}
	return p, true
}

// headless fills in what a thread shows of a process whose first thread has ended.
func (t *Tree) headless(p *Process) {
	tasks := strconv.Itoa(p.Pid) + "/task"
	_ = t.list(tasks, func(tid int) bool {
		s, err := t.statusIn(tasks + "/" + strconv.Itoa(tid))
		if err != nil || s.state == 'Z' || s.state == 'X' {
			return true
		}
		p.thread, p.State, p.code, p.inExec = tid, s.state, s.code, s.inExec()
		return false
	})
}

// childrenOf lists the children of every thread of a process.
func (t *Tree) childrenOf(p Process) ([]int, error) {
	if p.Pid == t.self {
		pids, err := t.listedChildren()
		if t.childrenOnly || err != nil {
			return t.ownChildren(), nil // for which no descriptor is needed
		}
		return pids, nil
	}
	if p.Threads == 1 {
		return t.readPids(childrenFile(p.Pid, p.Pid))
	}
	var pids []int
	err := t.list(strconv.Itoa(p.Pid)+"/task", func(tid int) bool {
		if more, err := t.readPids(childrenFile(p.Pid, tid)); err == nil {
			pids = append(pids, more...)
		}
		return true
	})
	return pids, err
}

// listedChildren are those of this process as /proc has them.
func (t *Tree) listedChildren() ([]int, error) {
	switch {
	case t.childrenOnly:
		return nil, unix.ENOENT
	case !t.byChildren:
		snapshot, err := t.snapshot()
		return snapshot[t.self], err
	}
	return t.readPids(childrenFile(t.self, t.self))
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren finds children of this process that have not ended: see eachOwnChild.
func (t *Tree) ownChildren() (pids []int) {
	t.eachOwnChild(func(pid int) { pids = append(pids, pid) })
	return pids
}

// eachOwnChild calls visit for children of this process that have not ended, each as soon as it is found by
// asking for pid after pid. Pids are given out in order and around, so that children are most likely among the
// next after the one that was reaped last, which may have left them; at first after this one's. It goes on as
// long as it finds none; otherwise it stops after maxMisses pids in a row that are no child's, which are twice
// as many the next time.
func (t *Tree) eachOwnChild(visit func(pid int)) {
	if ownChild(unix.P_ALL, 0) == unix.ECHILD {
		return
	}
	t.pidMax = cmp.Or(t.pidMax, pidMax())
	from, found := cmp.Or(t.lastReaped, t.self), false
	for last := 0; ; t.pidMax = pidMaxLimit {
		for i := 0; i < t.pidMax && (!found || i-last <= t.maxMisses); i++ {
			if pid := (from + i) % t.pidMax; ownChild(unix.P_PID, pid) == 0 {
				visit(pid)
				found, last = true, i
			}
		}
		if found || t.pidMax == pidMaxLimit || ownChild(unix.P_ALL, 0) != 0 {
			break
		}
		// There is one: the limit was lowered since it got its pid.
	}
	t.maxMisses = min(2*t.maxMisses, t.pidMax)
}

const pidMaxLimit = 4 << 20 // PID_MAX_LIMIT in proc_sys_kernel(5)

// pidMax is what new pids are below.
func pidMax() int {
	text := readAtOnce("/proc/sys/kernel/pid_max")
	if is, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && is > unix.Getpid() {
		return is
	}
	return pidMaxLimit
}

// ownChild is 0 for a child of this process that has not ended, EAGAIN for one that waits to
// be reaped, ECHILD for any other process, and otherwise why waitid(2) can't be asked. The
// process is named as waitid names it: P_PID and its pid, or P_PIDFD and a descriptor.
// With __WALL a child from before the exec counts, too, whose exit signal is not SIGCHLD: see clone(2).
func ownChild(idtype, id int) unix.Errno {
	var info [128]byte // siginfo_t, of which the first word is SIGCHLD if it has ended
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, uintptr(idtype), uintptr(id), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0, 0)
	if errno == 0 && info != [128]byte{} {
		return unix.EAGAIN
	}
	return errno
}

// isChild reports whether pid is a child's that was not reaped.
func isChild(pid int) bool {
	errno := ownChild(unix.P_PID, pid)
	return errno == 0 || errno == unix.EAGAIN
}

// snapshot reads who is whose child from every process there is, for kernels without the children file.
func (t *Tree) snapshot() (map[int][]int, error) {
	children := map[int][]int{}
	err := t.list(".", func(pid int) bool {
		if s, err := t.status(pid); err == nil {
			children[s.parent] = append(children[s.parent], pid)
		}
		return true
	})
	return children, err
}
