// Package orphans finds the processes that descend from this one, tells which of
// them hold its standard streams, and signals exactly those.
//
// Kernel facts it rests on:
//
//   - A process whose parent has ended is inherited by the nearest subreaper above
//     it, and /proc/PID/stat then names that one as its parent. So whoever descends
//     from a subreaper is found by walking down from it, whatever session, group or
//     user it moved to. See proc_pid_stat(5), PR_SET_CHILD_SUBREAPER in prctl(2).
//   - The pid of a child stays its own until its parent has reaped it. The caller
//     is the one that reaps, and does not while it is in here: so the direct
//     children of this process can be signalled by pid.
//   - A pidfd stays with its process for ever. If it was opened before /proc was
//     read, and the process had not been reaped after, then what was read is about
//     that process. See pidfd_open(2), pidfd_send_signal(2).
//   - waitid(2) answers ECHILD at once for a pid that is not that of a child. So the
//     children of this process can be found without /proc, by asking for every pid.
//   - /proc/PID/task/TID/children lists the children of one thread
//     (CONFIG_PROC_CHILDREN). Orphans are handed to the first thread of a subreaper.
//
// The walk is not atomic: a process that forks may slip through one, so the caller
// walks again until wait4 answers ECHILD.
package orphans

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Process is one process of the tree, as it was when it was looked at.
type Process struct {
	Pid, Parent, Group, Session int

	Name    string        // as the kernel keeps it: 15 bytes of the file's name
	State   byte          // 'Z' is a zombie; see proc_pid_stat(5). '?' where /proc does not show it
	Threads int           // a zombie with more than one is still alive
	Start   time.Duration // when it started, since boot, to the 10 ms below
	Holds   Streams       // what it has open for writing

	pidfd int // -1 for none
}

// Streams is a set of this process's standard streams.
type Streams uint8

const (
	Stdout  Streams = 1 << iota
	Stderr          // both may be the same pipe
	Unknown         // its descriptors may not be looked at
)

// Tree looks at and signals the descendants of this process.
type Tree struct {
	self       int
	proc       int  // descriptor of /proc, -1 where it is missing
	byChildren bool // the kernel lists the children of a thread
	blind      bool // there is no /proc to look at: only children are found
	pidMax     int  // pids are below; PID_MAX_LIMIT in proc_sys_kernel(5)
	gap        int  // see ownChildren
	mostOpen   int  // so many pidfds may be open
	pidfds     bool
	streams    [2]file // standard output and standard error
	open       []int   // pidfds of the last Look
	buf        []byte
}

// file identifies an open file; the zero value is none.
type file struct{ dev, ino uint64 }

// New remembers which pipes or sockets standard output and standard error are,
// before they are let go of.
func New() *Tree {
	t := &Tree{self: os.Getpid(), proc: -1, pidMax: 4 << 20, gap: 64 << 10, pidfds: true, buf: make([]byte, 16<<10)}
	for i, fd := range []int{1, 2} {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		// Nobody waits for the end of a terminal, a file or /dev/null.
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFIFO || kind == unix.S_IFSOCK {
			t.streams[i] = identity(&st)
		}
	}
	return t
}

func identity(st *unix.Stat_t) file {
	return file{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // Dev is narrower on some architectures
}

// mount opens /proc, once. It is called when the first look is due, so that a
// command that leaves nothing costs nothing. An error says that there is neither a /proc
// of this PID namespace to look at nor another way to find children.
func (t *Tree) mount() error {
	if t.proc >= 0 || t.blind {
		return nil
	}
	err := t.openProc()
	t.blind = err != nil && ownChild(t.self) == unix.ECHILD
	if t.blind {
		return nil
	}
	return err
}

func (t *Tree) openProc() error {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open /proc: %w", err)
	}
	// The /proc of another PID namespace would name other processes.
	link := make([]byte, 32)
	n, err := unix.Readlinkat(fd, "self", link)
	if err != nil || string(link[:n]) != strconv.Itoa(t.self) {
		_ = unix.Close(fd)
		return errors.New("cannot use /proc: it is not the one of this PID namespace")
	}
	t.proc = fd
	_, err = t.read(childrenFile(t.self, t.self))
	if err == unix.EMFILE || err == unix.ENFILE {
		_ = unix.Close(fd)
		t.proc = -1
		return fmt.Errorf("cannot read /proc: %w", err)
	}
	t.byChildren = err == nil
	t.mostOpen = mostOpen()
	return nil
}

// mostOpen is how many pidfds may be open at a time, so that some descriptors remain to read
// /proc with.
func mostOpen() int {
	const spare = 32
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return spare
	}
	return int(max(min(limit.Cur, 1<<20), 2*spare)/2 - spare/2)
}

// Uptime is the time since boot, in the clock of Process.Start. See
// CLOCK_BOOTTIME in clock_gettime(2).
func Uptime() time.Duration {
	var ts unix.Timespec
	// Raw, since it does not wait, and comes with every signal: see signals.Take.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// Look finds every live descendant, parents before their children. What it found
// can be signalled until the next Look or Release, as long as the caller reaps
// nothing in between.
func (t *Tree) Look() ([]Process, error) {
	if err := t.mount(); err != nil {
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

// Alive tells whether anything of the process still runs: a zombie's other threads
// may.
func (p Process) Alive() bool { return p.State != 'Z' && p.State != 'X' || p.Threads > 1 }

// Release closes what the last Look kept open.
func (t *Tree) Release() {
	for _, fd := range t.open {
		_ = unix.Close(fd)
	}
	t.open = t.open[:0]
}

// Signal sends sig to a process that the last Look found. A process that has ended
// is no error; unix.EPERM is wrapped where it may not be signalled.
func (t *Tree) Signal(p Process, sig unix.Signal) error {
	var err error
	switch {
	case p.pidfd >= 0:
		err = unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	case p.State == '?': // a child of this process, which keeps its pid
		err = unix.Kill(p.Pid, sig)
	default:
		// A child of this process keeps its pid. For one further down without a
		// pidfd a moment remains in which the pid could become another's.
		if now, statErr := t.stat(p.Pid); statErr != nil || now.Start != p.Start ||
			now.Parent != p.Parent && now.Parent != t.self {
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
	if err := t.mount(); err != nil {
		return nil, nil, err
	}
	t.Release()
	children, err := t.children(t.self, 1)
	for _, pid := range children {
		switch unix.Kill(pid, unix.SIGKILL) {
		case nil:
			hit = append(hit, pid)
		case unix.EPERM:
			refused = append(refused, pid)
		}
	}
	return hit, refused, err
}

// Kill sends SIGKILL to every descendant that it comes by, children first, and returns as
// KillChildren does.
func (t *Tree) Kill() (hit, refused []int, err error) {
	hit, refused, err = t.KillChildren()
	if err != nil || t.blind {
		return hit, refused, err
	}
	children := map[int]bool{}
	for _, pid := range slices.Concat(hit, refused) {
		children[pid] = true
	}
	err = t.walk(func(p Process) {
		if p.Parent == t.self && children[p.Pid] {
			return
		}
		switch err := t.Signal(p, unix.SIGKILL); {
		case err == nil:
			hit = append(hit, p.Pid)
		case errors.Is(err, unix.EPERM):
			refused = append(refused, p.Pid)
		}
	})
	return hit, refused, err
}

// CommandLine is the argument vector of a process, joined by spaces, or its name
// where it has none to show.
func (t *Tree) CommandLine(p Process) string {
	text, err := t.read(strconv.Itoa(p.Pid) + "/cmdline")
	if err != nil || len(text) == 0 {
		return p.Name
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte{0}, []byte{' '}))
}

// walk calls visit for each descendant, zombies included, parents before their
// children.
func (t *Tree) walk(visit func(Process)) error {
	kids := t.children
	if !t.byChildren && !t.blind {
		snapshot, err := t.snapshot()
		if err != nil {
			return err
		}
		if len(snapshot[t.self]) == 0 {
			snapshot[t.self] = t.ownChildren() // they are hidden
		}
		kids = func(pid, _ int) ([]int, error) { return snapshot[pid], nil }
	}
	seen := map[int]bool{t.self: true}
	parents := []Process{{Pid: t.self, Threads: 1, pidfd: -1}}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		pids, err := kids(parent.Pid, parent.Threads)
		if err != nil {
			// The parent has ended since; its children are this process's now.
			continue
		}
		for _, pid := range pids {
			if seen[pid] {
				continue
			}
			child, ok := t.verify(pid, parent)
			if !ok {
				continue
			}
			seen[pid] = true
			visit(child)
			parents = append(parents, child)
		}
	}
	return nil
}

// verify looks at the process that pid is now and tells whether it is a child of
// parent, or has become one of this process.
func (t *Tree) verify(pid int, parent Process) (Process, bool) {
	pidfd := -1
	if parent.Pid != t.self {
		pidfd = t.pidfd(pid)
	}
	p, err := t.stat(pid)
	if err != nil && parent.Pid == t.self && ownChild(pid) == 0 {
		// /proc hides it (hidepid in proc(5)), or is not there.
		return Process{Pid: pid, Parent: t.self, Name: "?", State: '?', Threads: 1, pidfd: -1}, true
	}
	if err != nil {
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

// reaped tells whether the pid of a process may have become another's. A child of
// this process keeps it, and has no pidfd.
func reaped(p Process) bool {
	return p.pidfd >= 0 && unix.PidfdSendSignal(p.pidfd, 0, nil, 0) == unix.ESRCH
}

// pidfd opens a pidfd that lives until Release; -1 where there is none to be had.
func (t *Tree) pidfd(pid int) int {
	if !t.pidfds || len(t.open) >= t.mostOpen {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.pidfds = err != unix.ENOSYS && err != unix.EPERM
		return -1
	}
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err == unix.ENOSYS || err == unix.EPERM {
		// EPERM comes from a process that may not be signalled, or from a
		// filter that refuses the call; kill(2) tells them apart.
		_ = unix.Close(fd)
		t.pidfds = err != unix.ENOSYS
		return -1
	}
	t.open = append(t.open, fd)
	return fd
}

// children lists the children of every thread of a process.
func (t *Tree) children(pid, threads int) ([]int, error) {
	if t.blind && pid == t.self {
		return t.ownChildren(), nil
	}
	if !t.byChildren {
		snapshot, err := t.snapshot()
		return snapshot[pid], err
	}
	if threads == 1 {
		text, err := t.read(childrenFile(pid, pid))
		return parsePids(text), err
	}
	var pids []int
	err := t.list(strconv.Itoa(pid)+"/task", func(tid int) {
		if text, err := t.read(childrenFile(pid, tid)); err == nil {
			pids = append(pids, parsePids(text)...)
		}
	})
	return pids, err
}

func childrenFile(pid, tid int) string {
	return strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// ownChildren finds children of this process that have not ended by asking for pid after
// pid. Pids are given out in order, from this one's up and around, so that children are most
// likely among the next. It goes on as long as it finds none; otherwise it stops after a
// gap, which is twice as long the next time.
func (t *Tree) ownChildren() (pids []int) {
	last := 0
	for i := 1; i < t.pidMax && (len(pids) == 0 || i-last <= t.gap); i++ {
		if pid := (t.self + i) % t.pidMax; ownChild(pid) == 0 {
			pids, last = append(pids, pid), i
		}
	}
	t.gap = min(2*t.gap, t.pidMax)
	return pids
}

// ownChild is 0 for a child of this process that has not ended, EAGAIN for one that waits to
// be reaped, ECHILD for any other pid, and otherwise why waitid(2) can't be asked.
func ownChild(pid int) unix.Errno {
	var info [128]byte // siginfo_t, of which the first word is SIGCHLD if it has ended
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
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
	err := t.list(".", func(pid int) {
		if p, err := t.stat(pid); err == nil {
			children[p.Parent] = append(children[p.Parent], pid)
		}
	})
	return children, err
}

func (t *Tree) stat(pid int) (Process, error) {
	text, err := t.read(strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	p, err := parseStat(text)
	if err == nil && p.Pid != pid {
		err = fmt.Errorf("cannot read stat of %d: it is of %d", pid, p.Pid)
	}
	return p, err
}

// holds tells which standard streams of this process another has open for writing.
func (t *Tree) holds(p Process) (held Streams) {
	switch {
	case t.streams == [2]file{}:
		return 0
	case p.State == '?':
		return Unknown
	}
	dir := strconv.Itoa(p.Pid)
	if p.State != 'Z' {
		return t.holdsIn(dir)
	}
	// The first thread has ended and has no descriptors any more; the others do.
	_ = t.list(dir+"/task", func(tid int) {
		if tid != p.Pid {
			held |= t.holdsIn(dir + "/task/" + strconv.Itoa(tid))
		}
	})
	return held
}

// holdsIn looks at the descriptors of one thread, whose directory it is given. A pipe has
// one inode for both its ends, hence the look at the open mode.
func (t *Tree) holdsIn(dir string) (held Streams) {
	err := t.list(dir+"/fd", func(fd int) {
		number := strconv.Itoa(fd)
		var st unix.Stat_t
		if unix.Fstatat(t.proc, dir+"/fd/"+number, &st, 0) != nil {
			return
		}
		for i, stream := range []Streams{Stdout, Stderr} {
			if t.streams[i] == identity(&st) && held&stream == 0 {
				info, err := t.read(dir + "/fdinfo/" + number)
				if err == nil && parseWritable(info) {
					held |= stream
				}
			}
		}
	})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return Unknown
	}
	return held
}

// read returns the contents of a file below /proc. They are valid until the next
// read.
func (t *Tree) read(name string) ([]byte, error) {
	fd, err := unix.Openat(t.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for {
		if n == len(t.buf) {
			t.buf = append(t.buf, make([]byte, len(t.buf))...)
		}
		got, err := unix.Read(fd, t.buf[n:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case got == 0:
			return t.buf[:n], nil
		default:
			n += got
		}
	}
}

// list calls visit with each entry of a directory below /proc that is a number.
func (t *Tree) list(name string, visit func(int)) error {
	fd, err := unix.Openat(t.proc, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if number, err := strconv.Atoi(name); err == nil {
				visit(number)
			}
		}
	}
}

// Name is what a process is called, "" where that can't be told. See proc_pid_comm(5).
func Name(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSuffix(string(text), "\n")
}
