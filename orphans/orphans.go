// Package orphans finds the processes that commands of this program have left behind, tells which of them hold a pipe
// open, and ends them. It works beside os/exec, and in a program with any number of threads.
//
// Adopt makes this process a child subreaper: it becomes the parent of each of its descendants whose own parent exits. So
// a walk from parent to child finds all of them, in whatever session or process group. See PR_SET_CHILD_SUBREAPER in
// prctl(2). A process that has set itself up as another subreaper keeps its own orphans, which are found below it.
//
// # Beside what it can't be used
//
//   - Code that reaps any child, such as wait4(-1) or package reaper: a command of os/exec then loses its status.
//   - Another program's tree: only descendants of this process are found.
//   - A process that doesn't want to be found or ended. It may fork faster than a walk. Use a PID namespace or a cgroup.
//
// It needs Linux with /proc. Before Linux 5.4, or where a sandbox refuses pidfd_open(2), a process that is reaped by another
// goroutine at the moment of a signal could hand its pid, and with it the signal, to a new process.
//
// Processes whose parent is this process stay zombies after their end until someone waits for them. For a command that is
// exec.Cmd.Wait, and for the orphans that this process has adopted it is Tree.Reap.
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

// A Process is a live process, as Look found it.
type Process struct {
	Pid, Parent, Group, Session int

	Name  string        // the first 15 bytes of its file's name, unless it has changed that; see proc_pid_comm(5)
	User  int           // its effective user ID
	Start time.Duration // when it started, since boot, in steps of 10 ms; 0 if unknown

	found orphans.Process
}

// A Tree is the descendants of this process. Only one goroutine at a time may use a Tree.
type Tree struct{ tree *orphans.Tree }

// Adopt makes this process a child subreaper, which it remains, and returns its tree.
func Adopt() (*Tree, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot become a subreaper: %w", err)
	}
	t := orphans.New()
	t.Shared = true
	return &Tree{t}, nil
}

// Close closes the descriptors that t has open: /proc, and a pidfd for each process that the last Look found.
func (t *Tree) Close() { t.tree.Close() }

// Look finds the live descendants, parents before their children, except the children with these pids and what is below
// them. It may miss a process that is forked, or whose parent exits, during the call: look again until nothing is left.
// An error says that /proc can't be used; Look then returns the children that it found without it.
func (t *Tree) Look(except ...int) (found []Process, err error) {
	view, err := t.tree.Look()
	if err == nil && view.Nameless {
		err = errors.New("cannot use /proc: only children are found")
	}
	spared := map[int]bool{}
	for _, p := range view.Found {
		if spared[p.Parent] || p.Parent == os.Getpid() && slices.Contains(except, p.Pid) {
			spared[p.Pid] = true
			continue
		}
		found = append(found, Process{p.Pid, p.Parent, p.Group, p.Session, p.Name, p.User, p.Start, p})
	}
	return found, err
}

// CommandLine returns the arguments of a process that the last Look found, joined by spaces. It returns at most 4 KiB, and
// the name of the process if the arguments can't be read.
func (t *Tree) CommandLine(p Process) string { return t.tree.CommandLine(p.found) }

// Holders returns the descendants that have the pipe open for writing whose reading or writing end is f. As long as one of
// them does, a reader of the pipe doesn't get EOF. If some processes can't be read, the error names the first of them.
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

// Signal sends a signal to a process that the last Look found, and to no other that may have got its pid since. It is not an
// error if the process has exited. If this process has no permission, the error wraps syscall.EPERM.
func (t *Tree) Signal(p Process, sig syscall.Signal) error { return t.tree.Signal(p.found, sig) }

// After SIGKILL a process is gone at once, unless it is in uninterruptible sleep.
const killTime = 5 * time.Second

// End sends SIGTERM and SIGCONT to each descendant, except the children with these pids and what is below them, then waits
// until they have exited, and sends SIGKILL to those that are there after the grace period. It returns when none is left.
// An error names a process that is still there 5 s after SIGKILL, or that can't be signalled. End reaps nothing.
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

// Reap waits for each child that has exited, except the children with these pids, and returns how many it has reaped. It
// doesn't wait for children that are alive.
//
// Give it the pid of each command whose exec.Cmd.Wait has not returned, and start no command during the call: the status of
// a child that Reap has reaped is lost.
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
