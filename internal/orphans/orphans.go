// Package orphans finds the descendants of this process, reports which of them hold its standard streams, and signals
// the descendants that the caller chooses.
//
// Kernel facts it rests on:
//
//   - When the parent of a process ends, the kernel reparents the process to the nearest subreaper above, which
//     /proc/PID/status then names as the parent. So a walk down from a subreaper finds each of its descendants,
//     whatever session, group or user they moved to. See proc_pid_status(5), PR_SET_CHILD_SUBREAPER in prctl(2).
//   - A child keeps its pid until its parent has reaped it. Only the caller reaps, and it does not reap while a
//     function of this package runs: so the direct children of this process can be signalled by pid. From Linux 7.1 on
//     this does not hold for a process that was made with CLONE_AUTOREAP, see clone3(2).
//   - A pidfd refers to the same process for ever. If a pidfd was opened before /proc was read, and the process has not
//     been reaped by the end of the read, the text is about that process. See pidfd_open(2), pidfd_send_signal(2).
//   - waitid(2) answers ECHILD at once for a pid that belongs to no child. So the
//     children of this process can be found without /proc, by trying every pid.
//   - /proc/PID/task/TID/children lists the children of one thread
//     (CONFIG_PROC_CHILDREN). Orphans become children of a subreaper's first thread.
//   - Reading a link in /proc/PID/fd does not involve the file system of the file, which
//     may have a server that does not answer. A stat of the file asks that server, and so
//     waits for it. This package never follows a link.
//   - A process inside execve(2) closes its close-on-exec files under a lock (exec_update_lock), and
//     the server of a file may leave the close unanswered. On new kernels stat, environ, exe and fd wait for
//     that lock. The list of children and status do not, nor do getpgid(2), getsid(2), pidfd_open(2),
//     waitid(2) and kill(2).
//
// So the caller's thread finds and signals descendants only by the files and calls that do not wait for that lock.
// All else about a process is a detail, which a reader delivers in time or not: see reader.go.
//
// The walk is not atomic: a process that forks may slip through a walk, so the caller
// walks again until wait4 answers ECHILD.
package orphans

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// Process is one process of the tree, as a look found it.
type Process struct {
	Pid, Parent, Group, Session int

	Name    string        // as the kernel keeps the name: 15 bytes of the file's name
	State   byte          // of its first live thread, 'Z' if no thread lives; see proc_pid_status(5). '?' if /proc does not show it
	Ignored uint64        // the signals that it ignores: bit n-1 is signal n; none if /proc does not show them
	Threads int           // a zombie with more than one thread is still alive
	User    int           // its effective user ID, -1 if /proc does not show it
	Start   time.Duration // when it started, since boot, rounded down to 10 ms; 0 if it was not read
	Holds   Holding       // the streams that it has open for writing
	Allowed bool          // fini leaves it alone: see Allow
	Unread  bool          // a pattern of Allow may match it, but fini could not read what the pattern asks for
	Earlier bool          // it was there before, or descends from an earlier child: see IncludeEarlier in Tree
	Entered bool          // its parent is outside of this PID namespace: see Entrants in Tree

	thread int    // the thread that State describes
	code   string // the size of its program
	kept   *kept
}

// kept is what a Tree knows of a process from one look to the next, as long as no other process can have its pid.
type kept struct {
	pidfd    int    // -1 for none
	inode    uint64 // of its directory below /proc; 0 if it has a pidfd, or its pid is reserved
	signaled bool   // it was sent a signal
	silent   bool   // reading about it held up the reader, so it is not read again: see reader.go

	name, code string // of the program that it executed when the reader read its facts
	facts      *facts // nil if they were not read
	line       string // its command line, "" if it was not read
	lineOf     int    // the number of the look that found the process when the line was read
	details    *Details

	matchedAs string // the program as which its memory matched a pattern of Allow
	unread    bool   // see Unread
	ended     bool   // a walk has found it to be a zombie
	elsewhere string // the program as which its descriptor 0 was not this process's standard input
	waitedFor bool   // a look has waited for it to become readable, or no wait would help
	runs      bool   // one of its threads was running when quiet last looked
}

// ID identifies a process even after its end, when another process may have its pid.
type ID struct {
	Pid   int
	Start time.Duration
}

// ID is the identity of the process.
func (p Process) ID() ID { return ID{p.Pid, p.Start} }

// Alive reports whether a thread of the process still runs: the other threads of a zombie may.
func (p Process) Alive() bool { return p.State != 'Z' && p.State != 'X' || p.Threads > 1 }

// Tree looks at and signals the descendants of this process. One goroutine uses it.
type Tree struct {
	StartDir string // where this process was started, "" if unknown: see Details
	Pipes    bool   // fini stops only processes that hold a standard stream: each look finds out anew which do

	// Shared says that other threads of this process start children and reap them, as in a Go program that uses os/exec. Then
	// each look reads the children of every thread, and pins each child with a pidfd.
	Shared bool

	// Entrants makes each look, and Kill, of a PID 1 also find the processes that came into its PID namespace from outside,
	// as by setns(2), with their descendants. They never become children of this process, so wait4(2) doesn't tell when
	// the last one has ended: see HasEntrants.
	Entrants bool

	files // of the caller's thread
	surveyTime
	ownFiles     files // of a /proc that hides other processes: fini reads only the list of its own children there
	reader       *reader
	self         int
	childrenOnly bool // /proc can't be used: the search finds only children, by waitid(2)
	byChildren   bool // the kernel lists the children of a thread
	autoreap     bool // a child's pid may be free at any time: the kernel has CLONE_AUTOREAP, or Shared is set
	usePidfds    bool
	descriptors  uint64      // how many this process may have
	pidMax       int         // all pids are below pidMax, 0 if it was not read; see proc_sys_kernel(5)
	maxMisses    int         // see eachOwnChild
	lastReaped   int         // child, 0 for none; see eachOwnChild
	earlier      map[int]int // pids and pidfds of processes that do not belong to the tree: see EarlierAre

	includesEarlier bool // see IncludeEarlier

	streams  [2]stream     // of this process
	known    map[int]*kept // by pid
	missed   bool          // since it was last reset, a process may have been missed because of an error
	lost     bool          // or because another has ended below another subreaper, before it was known what it held
	found    []Process     // by the last look
	looks    int           // how many looks there were
	patterns []string      // see Allow
	main     int           // child, which is never left alone
}

// New records which pipes or sockets standard output and standard error are, before fini closes them.
func New() *Tree {
	startDir, _ := unix.Getwd() // asks no file system
	t := &Tree{files: filesIn(-1), ownFiles: filesIn(-1), self: os.Getpid(), usePidfds: true, maxMisses: 64 << 10,
		known: map[int]*kept{}, earlier: map[int]int{}, StartDir: startDir, reader: &reader{}}
	for i, fd := range []int{1, 2} {
		t.streams[i] = ownStream(fd)
	}
	return t
}

// prepare opens /proc, once. The first look calls prepare, so that a command without leftovers costs nothing. An error
// means that there is neither a /proc of this PID namespace nor another way to find children.
func (t *Tree) prepare() error {
	if t.Dir >= 0 || t.childrenOnly {
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
	t.autoreap = proc.Autoreap() || t.Shared
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	t.descriptors = limit.Cur
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open /proc: %w", err)
	}
	// The /proc of another PID namespace would name other processes.
	link := make([]byte, 32)
	n, err := unix.Readlinkat(fd, "self", link)
	own := err == nil && string(link[:n]) == strconv.Itoa(t.self)
	if !own || proc.HidesProcesses() {
		if own && t.ownFiles.Dir < 0 {
			t.ownFiles.Dir = fd
		} else {
			_ = unix.Close(fd)
		}
		return errors.New("cannot use /proc: it is not the one of this PID namespace, or hides processes")
	}
	t.Dir = fd
	_, err = t.Read(childrenFile(t.self, t.self))
	if err == unix.EMFILE || err == unix.ENFILE {
		_ = unix.Close(fd)
		t.Dir = -1
		return fmt.Errorf("cannot read /proc: %w", err)
	}
	t.byChildren = err == nil
	return nil
}

// Close closes the descriptors of t.
func (t *Tree) Close() {
	for pid := range t.known {
		t.forget(pid)
	}
	proc.Close(t.Dir)
	proc.Close(t.ownFiles.Dir)
	t.Dir, t.ownFiles.Dir = -1, -1
}

// files are the files below /proc, as the caller's thread or the reader reads them.
type files struct{ proc.Files }

func filesIn(dir int) files { return files{proc.In(dir)} }

// dir is the directory of a process below /proc. If the first thread has ended, dir is the directory of another thread,
// because the directory of the process no longer shows its files.
func (p Process) dir() string {
	if p.thread == 0 || p.thread == p.Pid {
		return strconv.Itoa(p.Pid)
	}
	return strconv.Itoa(p.Pid) + "/task/" + strconv.Itoa(p.thread)
}
