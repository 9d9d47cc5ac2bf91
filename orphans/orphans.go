// Package orphans finds the processes that descend from this one, reports which of
// them hold its standard streams, and signals exactly those.
//
// Kernel facts it rests on:
//
//   - A process whose parent has ended is inherited by the nearest subreaper above
//     it, and /proc/PID/status then names that one as its parent. So each process that descends
//     from a subreaper is found by walking down from it, whatever session, group or
//     user it moved to. See proc_pid_status(5), PR_SET_CHILD_SUBREAPER in prctl(2).
//   - The pid of a child stays its own until its parent has reaped it. The caller
//     is the one that reaps, and does not while it is in here: so the direct
//     children of this process can be signalled by pid. From Linux 7.1 on this does
//     not hold for a process that was made with CLONE_AUTOREAP, see clone3(2).
//   - A pidfd stays with its process for ever. If it was opened before /proc was
//     read, and the process had not been reaped after, then what was read is about
//     that process. See pidfd_open(2), pidfd_send_signal(2).
//   - waitid(2) answers ECHILD at once for a pid that is not that of a child. So the
//     children of this process can be found without /proc, by asking for every pid.
//   - /proc/PID/task/TID/children lists the children of one thread
//     (CONFIG_PROC_CHILDREN). Orphans are handed to the first thread of a subreaper.
//   - A link in /proc/PID/fd is read without the file system of the file, which may
//     have a server that does not answer. To stat the file asks that server, and so
//     waits for it. No link is followed in here.
//   - A process inside execve(2) closes what is marked close-on-exec under a lock (exec_update_lock), and
//     the server of a file may leave its close unanswered. On new kernels stat, environ, exe and fd wait for
//     that lock. The list of children and status do not, nor do getpgid(2), getsid(2), pidfd_open(2),
//     waitid(2) and kill(2).
//
// So descent and signals rest on the last of these alone, on the caller's thread. All else about a process is a
// detail, which a reader tells in time or not: see reader.go.
//
// The walk is not atomic: a process that forks may slip through one, so the caller
// walks again until wait4 answers ECHILD.
package orphans

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one process of the tree, as it was when it was looked at.
type Process struct {
	Pid, Parent, Group, Session int

	Name    string        // as the kernel keeps it: 15 bytes of the file's name
	State   byte          // of its first thread that lives, 'Z' if none does; see proc_pid_status(5). '?' if /proc does not show it
	Threads int           // a zombie with more than one is still alive
	User    int           // its effective user ID, -1 if /proc does not show it
	Start   time.Duration // when it started, since boot, to the 10 ms below; 0 if that was not read
	Holds   Streams       // what it has open for writing
	Allowed bool          // it is to be left alone: see Allow

	thread int    // whose State it is
	inExec bool   // it may be inside execve(2)
	code   string // the size of its program
	kept   *kept
}

// kept is what a Tree knows of a process from one look to the next, as long as nobody else can have its pid.
type kept struct {
	pidfd    int  // -1 for none
	child    bool // of this process, which reaps it
	last     int  // the number of the last look that found it
	signaled bool // it was sent a signal
	silent   bool // the reader was held by it: it is not asked again

	name, code string // what it executed when the reader told these
	facts      *facts // nil if it was not asked
	line       string // its command line, "" if it was not asked for
	details    *Details
}

// ID identifies a process beyond its end, as its pid alone does not.
type ID struct {
	Pid   int
	Start time.Duration
}

// ID is the identity of the process.
func (p Process) ID() ID { return ID{p.Pid, p.Start} }

// Alive reports whether anything of the process still runs: a zombie's other threads
// may.
func (p Process) Alive() bool { return p.State != 'Z' && p.State != 'X' || p.Threads > 1 }

// Tree looks at and signals the descendants of this process. One goroutine uses it.
type Tree struct {
	Pipes bool // only those are stopped that hold a standard stream: each look asks anew which do

	files        // as the caller's thread reads them
	reader       *reader
	self         int
	childrenOnly bool // /proc can't be used: only children are found, by waitid(2)
	byChildren   bool // the kernel lists the children of a thread
	autoreap     bool // the kernel has CLONE_AUTOREAP: a child's pid may be free at any time
	usePidfds    bool
	pidfds       int           // so many are open
	maxPidfds    int           // so many may be
	pidMax       int           // pids are below, 0 if that was not asked for; see proc_sys_kernel(5)
	maxMisses    int           // see eachOwnChild
	lastReaped   int           // child, 0 for none; see eachOwnChild
	earlier      map[int]int   // pids of those that are not of the tree, with pidfds: see EarlierAre
	streams      [2]stream     // this process's
	known        map[int]*kept // by pid
	looks        int           // how many there were
	found        []Process     // by the last of them
	allowed      allowed
	startDir     string // where this process was started, "" if that can't be told
}

// New remembers which pipes or sockets standard output and standard error are,
// before they are let go of. It starts the reader.
func New() *Tree {
	t := &Tree{files: files{proc: -1, buf: make([]byte, 4<<10)}, self: os.Getpid(), usePidfds: true, maxMisses: 64 << 10,
		known: map[int]*kept{}, startDir: ownDir(), reader: newReader()}
	for i, fd := range []int{1, 2} {
		t.streams[i] = t.ownStream(fd)
	}
	return t
}

// prepare opens /proc, once. It is called when the first look is due, so that a
// command that leaves nothing costs nothing. An error says that there is neither a /proc
// of this PID namespace to look at nor another way to find children.
func (t *Tree) prepare() error {
	if t.proc >= 0 || t.childrenOnly {
		return nil
	}
	err := t.openProc()
	t.childrenOnly = err != nil && ownChild(unix.P_PID, t.self) == unix.ECHILD
	if t.childrenOnly {
		return nil
	}
	return err
}

func (t *Tree) openProc() error {
	t.autoreap = hasAutoreap(release())
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open /proc: %w", err)
	}
	// The /proc of another PID namespace would name other processes.
	link := make([]byte, 32)
	n, err := unix.Readlinkat(fd, "self", link)
	if err != nil || string(link[:n]) != strconv.Itoa(t.self) || hidesProcesses() {
		_ = unix.Close(fd)
		return errors.New("cannot use /proc: it is not the one of this PID namespace, or hides processes")
	}
	t.proc = fd
	_, err = t.read(childrenFile(t.self, t.self))
	if err == unix.EMFILE || err == unix.ENFILE {
		_ = unix.Close(fd)
		t.proc = -1
		return fmt.Errorf("cannot read /proc: %w", err)
	}
	t.byChildren = err == nil
	t.maxPidfds = maxPidfds()
	return nil
}

// hidesProcesses reports whether /proc is mounted with hidepid, see proc(5). Then the kernel decides by
// exec_update_lock who may see any file of a process, so that every file may have to be waited for.
var hidesProcesses = sync.OnceValue(func() (hides bool) {
	f := files{proc: unix.AT_FDCWD, buf: make([]byte, 4<<10)}
	_ = f.each("/proc/self/mountinfo", '\n', 1<<20, func(line []byte, _ bool) {
		fields := strings.Fields(string(line))
		if len(fields) > 5 && fields[4] == "/proc" { // what was mounted there last
			hides = strings.Contains(fields[len(fields)-1], "hidepid=")
		}
	})
	return hides
})

// release is the kernel's, "" if uname(2) can't tell.
func release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// hasAutoreap reports whether a kernel of this release may have CLONE_AUTOREAP, which came
// with 7.1. A release that can't be read may be that of any kernel.
func hasAutoreap(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	x, err := strconv.Atoi(major)
	y, err2 := strconv.Atoi(rest[:digits])
	return err != nil || err2 != nil || x > 7 || x == 7 && y >= 1
}
