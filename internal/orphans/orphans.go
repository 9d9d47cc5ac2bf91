// Package orphans finds the descendants of this process, reports which of them hold its standard streams open, and
// signals those that the caller chooses.
//
// It relies on these properties of the kernel:
//
//   - When a process ends, its children are reparented to the nearest subreaper above it. /proc/PID/status then shows
//     the subreaper as their parent. A walk down from a subreaper therefore finds all of its descendants, in whatever
//     session or group, and of whatever user. See proc_pid_status(5), and PR_SET_CHILD_SUBREAPER in prctl(2).
//   - A child keeps its pid until its parent has reaped it. Only the caller reaps, and not while a function of this
//     package runs, so direct children can be signalled by pid. Since Linux 7.1 this is not true of a process that was
//     created with CLONE_AUTOREAP. See clone3(2).
//   - A pidfd always refers to the same process. If /proc is read after a pidfd was opened, and the process has not
//     been reaped after that, the text is about that process. See pidfd_open(2) and pidfd_send_signal(2).
//   - waitid(2) fails with ECHILD immediately if a pid does not belong to a child. Without /proc, children can
//     therefore be found by trying every pid.
//   - /proc/PID/task/TID/children lists the children of one thread (CONFIG_PROC_CHILDREN). A subreaper's orphans become
//     children of its first thread.
//   - Reading a link in /proc/PID/fd does not access the file's file system, which may be on a server that does not
//     respond. A stat of the file would access it, so this package never follows such a link.
//   - execve(2) closes close-on-exec files while it holds a lock (exec_update_lock), and closing a file may hang. On
//     new kernels stat, environ, exe and fd wait for that lock. The list of children, status, getpgid(2), getsid(2),
//     pidfd_open(2), waitid(2) and kill(2) do not.
//
// The caller's thread therefore finds and signals processes only with what can't hang. Everything else about a process
// is read by another goroutine, and may be missing. See reader.go.
//
// A walk is not atomic and may miss a process that forks, so the caller walks again until wait4(2) fails with ECHILD.
package orphans

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// Tick is the unit of Process.Start, which is rounded down to it.
const Tick = proc.Tick

// Process is a process of the tree as a look found it.
type Process struct {
	Pid, Parent, PGID, Session int

	Name      string        // the kernel's name for it: the first 15 bytes of the file name
	State     byte          // state of its first live thread, 'Z' if there is none, '?' if unknown; see proc_pid_status(5)
	Ignored   uint64        // the signals that it ignores, if known: bit n-1 is signal n
	Threads   int           // a zombie with more than one thread is still alive
	User      int           // effective user ID, or -1 if unknown
	Start     time.Duration // time since boot when it started, rounded down to 10 ms; 0 if unknown
	Holds     Holding       // the standard streams that it has open for writing
	Allowed   bool          // fini spares it: see Allow
	Unread    bool          // a pattern of Allow may match it, but fini could not read enough to tell
	Inherited bool          // an inherited child or a descendant of one: see IncludeInherited in Tree
	Entered   bool          // its parent is outside of this PID namespace: see Entrants in Tree

	thread int    // the thread that State describes
	code   string // size of its program in memory
	kept   *kept
}

// kept is what a Tree remembers about a process between looks, as long as its pid can't have been reused.
type kept struct {
	pidfd    int    // -1 if there is none
	inode    uint64 // inode of its directory in /proc; 0 if a pidfd or its parent keeps the pid from being reused
	signaled bool   // it has been sent a signal
	silent   bool   // it has held up the reader, so it is not read again: see reader.go

	name, code  string // its program when the reader read its facts
	facts       *facts // nil if not read yet
	cmdline     string // command line, or "" if not read yet
	cmdlineLook int    // number of the look in which cmdline was read
	details     *Details

	matchedAs string // its program when a pattern of Allow matched its memory
	unread    bool   // see Process.Unread
	ended     bool   // a walk has seen it as a zombie
	elsewhere string // its program when its descriptor 0 was another file
	waitedFor bool   // a look has waited for it to become readable, or waiting would not help
	runs      bool   // one of its threads was running in the last call of quiet
}

// ID identifies a process even after its end, when its pid may have been reused.
type ID struct {
	Pid   int
	Start time.Duration
}

// ID returns the identity of the process.
func (p Process) ID() ID { return ID{p.Pid, p.Start} }

// Alive reports whether the process has a live thread. A zombie may still have other threads.
func (p Process) Alive() bool { return p.State != 'Z' && p.State != 'X' || p.Threads > 1 }

// Tree finds and signals the descendants of this process. It must be used by one goroutine.
type Tree struct {
	StartDir string // where this process was started, or "": see Details
	Pipes    bool   // each look must find out again which processes hold a standard stream

	// Shared says that other threads of this process start and reap children, as in a Go program that uses os/exec.
	// Each look then reads the children of all threads and opens a pidfd for each child.
	Shared bool

	// Entrants makes Look and Kill in PID 1 find the processes that have entered its PID namespace from outside, for
	// example with setns(2), and their descendants. They never become children of this process, so wait4(2) does not
	// show when the last of them has ended. See HasEntrants.
	Entrants bool

	files // used by the caller's thread
	surveyTime
	ownFiles     files // for a /proc that hides other processes; only the list of own children is read there
	reader       *reader
	self         int
	childrenOnly bool // /proc can't be used, so only children are found, with waitid(2)
	byChildren   bool // the kernel has a children file for each thread
	autoreap     bool // the pid of a child may be reused at any time, because of CLONE_AUTOREAP or Shared
	usePidfds    bool
	descriptors  uint64      // how many descriptors this process may have
	pidMax       int         // all pids are less than this; 0 if unknown; see proc_sys_kernel(5)
	maxMisses    int         // see eachOwnChild
	lastReaped   int         // pid of the child that was reaped last, or 0; see eachOwnChild
	inherited    map[int]int // maps the pids of processes outside of the tree to pidfds: see SetInherited

	includesInherited bool // see IncludeInherited

	streams  [2]stream     // those of this process
	known    map[int]*kept // by pid
	missed   bool          // a process may have been missed because of an error, since this was reset
	lost     bool          // or because another process ended below another subreaper before it was known what it held
	found    []Process     // the result of the last look
	looks    int           // number of looks
	patterns []string      // see Allow
	main     int           // pid of the main child, which is never spared
}

// New returns a Tree. It must be called before fini closes its standard streams, because it records which files they
// are.
func New() *Tree {
	startDir, _ := unix.Getwd() // does not access the file system
	t := &Tree{files: filesIn(-1), ownFiles: filesIn(-1), self: os.Getpid(), usePidfds: true, maxMisses: 64 << 10,
		known: map[int]*kept{}, inherited: map[int]int{}, StartDir: startDir, reader: &reader{}}
	for i, fd := range []int{1, 2} {
		t.streams[i] = ownStream(fd)
	}
	return t
}

// prepare opens /proc at the first look. A command that leaves nothing running needs no look.
func (t *Tree) prepare() {
	if t.Dir < 0 && !t.childrenOnly {
		t.childrenOnly = !t.openProc()
	}
}

// openProc reports whether it has opened a /proc of this PID namespace that hides no process and can be read.
func (t *Tree) openProc() bool {
	t.autoreap = proc.Autoreap() || t.Shared
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	t.descriptors = limit.Cur
	fd, own, err := proc.Mounted()
	if err != nil {
		return false
	}
	if !own || proc.HidesProcesses() {
		if own && t.ownFiles.Dir < 0 {
			t.ownFiles.Dir = fd
		} else {
			_ = unix.Close(fd)
		}
		return false
	}
	t.Dir = fd
	_, err = t.Read(childrenFile(t.self, t.self))
	if err == unix.EMFILE || err == unix.ENFILE {
		_ = unix.Close(fd)
		t.Dir = -1
		return false
	}
	t.byChildren = err == nil
	return true
}

// Close closes all descriptors of t.
func (t *Tree) Close() {
	for pid := range t.known {
		t.forget(pid)
	}
	calls.Close(t.Dir)
	calls.Close(t.ownFiles.Dir)
	t.Dir, t.ownFiles.Dir = -1, -1
}

// The type files reads from /proc, for either the caller's thread or the reader.
type files struct{ proc.Files }

func filesIn(dir int) files { return files{proc.In(dir)} }

// dir returns the directory of a process in /proc. If its first thread has ended, dir returns the directory of another
// thread, because the files of the process can't be read through the first thread any more.
func (p Process) dir() string {
	if p.thread == 0 || p.thread == p.Pid {
		return strconv.Itoa(p.Pid)
	}
	return strconv.Itoa(p.Pid) + "/task/" + strconv.Itoa(p.thread)
}
