// Package orphans finds the processes that a program's commands have left behind, reports which of them hold a pipe
// open, and ends them. It works together with os/exec, and with any number of threads.
//
// Adopt makes this process a child subreaper. It becomes the new parent of each descendant whose own parent exits, so a
// walk from parent to child finds all descendants, in whatever session or process group. See PR_SET_CHILD_SUBREAPER in
// prctl(2). If a descendant is a subreaper too, it keeps its own orphans, and the walk finds them below it.
//
// # What it can't be used with
//
//   - It can't be used with code that reaps any child, such as wait4(-1) or package reaper, because commands of os/exec
//     would lose their status.
//   - It finds only descendants of this process.
//   - A process may evade it by forking faster than a walk. Use a PID namespace or a cgroup for hostile processes.
//
// The package needs Linux with /proc. Without pidfd_open(2), which Linux 5.3 added and a sandbox may refuse, a signal
// may hit a new process if the old one is reaped by another goroutine at that moment and its pid is reused.
//
// A process whose parent is this process remains a zombie until somebody waits for it. exec.Cmd.Wait does that for a
// command, and Tree.Reap for the orphans that this process has adopted.
package orphans

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// A Process is a live process as Look found it.
type Process struct {
	Pid, Parent, PGID, Session int

	Name  string        // first 15 bytes of the file name, unless the process has changed it; see proc_pid_comm(5)
	User  int           // effective user ID
	Start time.Duration // time since boot when it started, in steps of 10 ms; 0 if unknown

	found orphans.Process
}

// A Tree finds the descendants of this process. Only one goroutine at a time may use it.
type Tree struct{ tree *orphans.Tree }

// Adopt makes this process a child subreaper for the rest of its life, and returns its tree.
func Adopt() (*Tree, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot become a subreaper: %w", err)
	}
	t := orphans.New()
	t.Shared = true
	return &Tree{t}, nil
}

// Close closes all descriptors of t, which are /proc and a pidfd for each process that the last Look found.
func (t *Tree) Close() { t.tree.Close() }

// Look returns the live descendants, parents before their children. It leaves out the children with the given pids, and
// their descendants. It may miss a process that is forked, or whose parent exits, at that time, so call it until it
// finds nothing. If /proc can't be used, it returns the children that it can find and an error.
func (t *Tree) Look(except ...int) (found []Process, err error) {
	view := t.tree.Look()
	if view.Nameless {
		err = errors.New("cannot use /proc: only children are found")
	}
	spared := map[int]bool{}
	for _, p := range view.Found {
		if spared[p.Parent] || p.Parent == os.Getpid() && slices.Contains(except, p.Pid) {
			spared[p.Pid] = true
			continue
		}
		found = append(found, Process{p.Pid, p.Parent, p.PGID, p.Session, p.Name, p.User, p.Start, p})
	}
	return found, err
}

// CommandLine returns the arguments of a process that the last Look found, joined by spaces. It returns at most 4 KiB.
// If the arguments can't be read, it returns the name of the process.
func (t *Tree) CommandLine(p Process) string { return t.tree.CommandLine(p.found) }

// Holders returns the descendants that have the pipe of f open for writing. f may be either end of the pipe. A reader
// of the pipe receives EOF only when there are none. If some processes can't be read, the error names the first of
// them.
func (t *Tree) Holders(f *os.File) ([]Process, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	all, err := t.Look()
	if err != nil {
		return nil, err
	}
	found := make([]orphans.Process, len(all))
	for i, p := range all {
		found[i] = p.found
	}
	var holders, unknown []orphans.Process
	if failed := raw.Control(func(fd uintptr) {
		if proc.Stream(int(fd)) != unix.S_IFIFO {
			err = fmt.Errorf("%s is not a pipe", f.Name())
			return
		}
		holders, unknown = t.tree.Holders(int(fd), found)
	}); failed != nil {
		return nil, failed
	}
	if len(unknown) > 0 {
		err = fmt.Errorf("cannot read the descriptors of %d (%s)", unknown[0].Pid, unknown[0].Name)
	}
	return slices.DeleteFunc(all, func(p Process) bool {
		return !slices.ContainsFunc(holders, func(h orphans.Process) bool { return h.Pid == p.Pid })
	}), err
}

// Signal sends a signal to a process that the last Look found, and never to another process with the same pid. It
// returns nil if the process has exited. If this process lacks permission, the error wraps syscall.EPERM.
func (t *Tree) Signal(p Process, sig syscall.Signal) error { return t.tree.Signal(p.found, sig) }

// killTime is enough for a killed process to exit, unless it is in uninterruptible sleep.
const killTime = 5 * time.Second

// End sends SIGTERM and SIGCONT to all descendants. It leaves out the children with the given pids, and their
// descendants. It waits until they have exited, and sends SIGKILL after the grace period. It reaps nothing. The error
// names a process that can't be signalled, or that is alive five seconds after SIGKILL.
func (t *Tree) End(grace time.Duration, except ...int) error {
	asked := map[orphans.ID]bool{}
	until := time.Now().Add(grace)
	var refused error
	const enough = 2 // a look may miss a process whose parent has just exited
	for pause, empty := time.Millisecond, 0; ; pause = min(2*pause, 20*time.Millisecond) {
		found, err := t.Look(except...)
		if len(found) == 0 {
			if empty++; err != nil || empty == enough {
				return err
			}
			continue
		}
		empty = 0
		now := time.Now()
		if now.After(until.Add(killTime)) {
			return cmp.Or(refused, fmt.Errorf("cannot end %d (%s)", found[0].Pid, found[0].Name))
		}
		for _, p := range found {
			switch id := p.found.ID(); {
			case !now.Before(until):
				err = t.Signal(p, syscall.SIGKILL)
			case !asked[id]:
				asked[id] = true
				err = errors.Join(t.Signal(p, syscall.SIGTERM), t.Signal(p, syscall.SIGCONT))
			}
			if err != nil {
				refused = err
			}
		}
		time.Sleep(pause)
	}
}

// Reap reaps all children that have exited, except those with the given pids. It returns how many it has reaped. It
// does not wait for live children.
//
// Pass the pid of each command whose exec.Cmd.Wait has not returned. Otherwise, Reap may take its exit status away. For
// the same reason, don't start a command during the call.
func (t *Tree) Reap(except ...int) (reaped int, err error) {
	pids, err := t.tree.Children()
	for _, pid := range pids {
		if slices.Contains(except, pid) {
			continue
		}
		if got, _, _ := calls.Wait(pid, 0); got == pid {
			reaped++
		}
	}
	return reaped, err
}
