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

// Look finds every live descendant, parents before their children. What it found
// can be signalled until the next Look or Release, as long as the caller reaps
// nothing in between.
//
// A look is blind if nobody can tell who holds a standard stream that somebody may wait for the end of: only
// children are found then, and one that comes to be a child meanwhile may be missed.
func (t *Tree) Look() (found []Process, blind bool, err error) {
	if err := t.prepare(); err != nil {
		return nil, false, err
	}
	t.Release()
	t.listening = nil
	type answer struct {
		alive []Process
		blind bool
	}
	a := ask(t, func(s *sight) (a answer) {
		a.blind = s.childrenOnly && s.streams != [2]stream{}
		s.walk(func(p Process) {
			if p.Alive() {
				p.Holds = s.holds(p)
				a.alive = append(a.alive, p)
			}
		})
		return a
	})
	return a.alive, a.blind, nil
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
func (s *sight) walk(visit func(Process)) {
	children := s.children
	if !s.byChildren && !s.childrenOnly {
		snapshot, err := s.snapshot()
		if err != nil || len(snapshot[s.self]) == 0 {
			snapshot[s.self] = s.ownChildren() // they are hidden, or there is no descriptor
		}
		children = func(pid, _ int) ([]int, error) { return snapshot[pid], nil }
	}
	seen := map[int]bool{s.self: true}
	parents := []Process{{Pid: s.self, Threads: 1, pidfd: -1}}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		pids, err := children(parent.Pid, parent.Threads)
		if err != nil {
			// The parent has ended since; its children are this process's now.
			continue
		}
		for _, pid := range pids {
			if seen[pid] || s.isEarlier(pid) {
				continue
			}
			child, ok := s.verify(pid, parent)
			if !ok {
				continue
			}
			seen[pid] = true
			child.Allowed = parent.Allowed && child.Parent == parent.Pid || s.allows(child)
			visit(child)
			parents = append(parents, child)
		}
	}
}

// verify looks at the process that pid is now and reports whether it is a child of
// parent, or has become one of this process.
func (s *sight) verify(pid int, parent Process) (Process, bool) {
	pidfd := -1
	if parent.Pid != s.self || s.autoreap {
		pidfd = s.keepPidfd(pid)
	}
	p, err := s.stat(pid)
	if err != nil && parent.Pid == s.self && ownChild(unix.P_PID, pid) == 0 {
		// It is stuck, /proc hides it (hidepid in proc(5)), or is not there.
		p = Process{Pid: pid, Parent: s.self, Name: "?", State: '?', Threads: 1, pidfd: pidfd}
		if err == errStuck {
			p.Name, p.Threads = s.nameOfStuck(pid), 0
		}
		return p, !reaped(p)
	}
	if err == errStuck && parent.Pid != s.self {
		// Nothing tells whose child it is but the list that it is on, and that is of the parent as
		// long as nobody has reaped that.
		listed, err := s.children(parent.Pid, parent.Threads)
		p = Process{Pid: pid, Parent: parent.Pid, Name: s.nameOfStuck(pid), State: '?', pidfd: pidfd}
		return p, err == nil && slices.Contains(listed, pid) && !reaped(p) && !reaped(parent)
	}
	if err != nil {
		return Process{}, false
	}
	if s.listsThreads && p.Threads > 1 && !s.leads(pid) {
		return Process{}, false
	}
	p.pidfd = pidfd
	switch {
	case p.Parent == s.self:
		return p, !reaped(p)
	case p.Parent == parent.Pid:
		// If either was reaped meanwhile, its pid may have been another's.
		return p, !reaped(p) && !reaped(parent)
	}
	return Process{}, false
}

// leads reports whether a thread is the first of its process.
func (s *sight) leads(tid int) bool {
	text, err := s.read(strconv.Itoa(tid) + "/status")
	group, known := statusField(text, "Tgid")
	return err != nil || !known || group == strconv.Itoa(tid)
}

// nameOfStuck is what a stuck process is called, "?" if that can't be told either.
func (s *sight) nameOfStuck(pid int) string { return cmp.Or(s.name(pid), "?") }

// children lists the children of every thread of a process, of which there may be 0 if that is not known.
func (s *sight) children(pid, threads int) ([]int, error) {
	if s.childrenOnly && pid == s.self {
		return s.ownChildren(), nil
	}
	if pid == s.self {
		pids, err := s.listedChildren()
		if err != nil {
			return s.ownChildren(), nil // for which no descriptor is needed
		}
		return pids, nil
	}
	if threads == 1 {
		return s.readPids(childrenFile(pid, pid))
	}
	var pids []int
	err := s.list(strconv.Itoa(pid)+"/task", func(tid int) bool {
		if more, err := s.readPids(childrenFile(pid, tid)); err == nil {
			pids = append(pids, more...)
		}
		return true
	})
	return pids, err
}

// listedChildren are those of this process as /proc has them.
func (s *sight) listedChildren() ([]int, error) {
	if !s.byChildren {
		snapshot, err := s.snapshot()
		return snapshot[s.self], err
	}
	return s.readPids(childrenFile(s.self, s.self))
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren finds children of this process that have not ended: see eachOwnChild.
func (s *sight) ownChildren() (pids []int) {
	s.eachOwnChild(func(pid int) { pids = append(pids, pid) })
	return pids
}

// eachOwnChild calls visit for children of this process that have not ended, each as soon as it is found by
// asking for pid after pid. Pids are given out in order and around, so that children are most likely among the
// next after the one that was reaped last, which may have left them; at first after this one's. It goes on as
// long as it finds none; otherwise it stops after maxMisses pids in a row that are no child's, which are twice
// as many the next time.
func (s *sight) eachOwnChild(visit func(pid int)) {
	if ownChild(unix.P_ALL, 0) == unix.ECHILD {
		return
	}
	s.pidMax = cmp.Or(s.pidMax, pidMax())
	from, found := cmp.Or(s.lastReaped, s.self), false
	for last := 0; ; s.pidMax = pidMaxLimit {
		for i := 0; i < s.pidMax && (!found || i-last <= s.maxMisses); i++ {
			if pid := (from + i) % s.pidMax; ownChild(unix.P_PID, pid) == 0 {
				visit(pid)
				found, last = true, i
			}
		}
		if found || s.pidMax == pidMaxLimit || ownChild(unix.P_ALL, 0) != 0 {
			break
		}
		// There is one: the limit was lowered since it got its pid.
	}
	s.maxMisses = min(2*s.maxMisses, s.pidMax)
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
func ownChild(idtype, id int) unix.Errno {
	var info [128]byte // siginfo_t, of which the first word is SIGCHLD if it has ended
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, uintptr(idtype), uintptr(id), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if errno == 0 && info != [128]byte{} {
		return unix.EAGAIN
	}
	return errno
}

// snapshot reads who is whose child from every process there is, for kernels without the children file. It reads
// status, for which it waits for nobody: a stranger that is stuck costs no reader.
func (s *sight) snapshot() (map[int][]int, error) {
	children := map[int][]int{}
	err := s.list(".", func(pid int) bool {
		text, err := s.read(strconv.Itoa(pid) + "/status")
		field, ok := statusField(text, "PPid")
		parent, notNumber := strconv.Atoi(field)
		if err == errStuck && isChild(pid) {
			parent, ok, notNumber = s.self, true, nil
		}
		if ok && notNumber == nil {
			children[parent] = append(children[parent], pid)
		}
		return true
	})
	return children, err
}
