package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// A cgroup is everything that a case has started: a cgroup, which no process leaves by
// another parent, session, process group, set of descriptors or environment.
type Cgroup struct {
	T   testing.TB
	Dir string
}

// NewCgroup makes a cgroup; what is alive in it when the test ends is killed.
func NewCgroup(t testing.TB) *Cgroup {
	t.Helper()
	return NewCgroupBelow(t, cgroups())
}

// cgroups is where cgroups are, of which version 1 has a tree for each controller.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err == nil {
		return "/sys/fs/cgroup/pids"
	}
	return "/sys/fs/cgroup"
}

func NewCgroupBelow(t testing.TB, root string) *Cgroup {
	t.Helper()
	dir, err := os.MkdirTemp(root, "fini-e2e-")
	need.That(t, err == nil, fmt.Sprintf("the right to make a cgroup (%v)", errors.Unwrap(err)))
	h := &Cgroup{t, dir}
	t.Cleanup(func() {
		h.AtMost("0") // what forks meanwhile could not be killed one by one
		Until(t, "the case's cgroup is empty", func() bool {
			h.Kill()
			return os.Remove(dir) == nil
		})
	})
	return h
}

// Wrap is a command line that runs argv in the cgroup.
func (c *Cgroup) Wrap(argv ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.Dir, "cgroup.procs")}, argv...)
}

// Alive lists the pids of the cgroup, without zombies, but with those of which only the first
// thread has ended.
func (c *Cgroup) Alive() []int {
	text, _ := os.ReadFile(filepath.Join(c.Dir, "cgroup.procs"))
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, _ := strconv.Atoi(field)
		switch state := procfs.Status(pid, "State"); {
		case state == "", state[0] == 'X', state[0] == 'Z' && procfs.Status(pid, "Threads") == "1":
		default:
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// Count is how many are alive.
func (c *Cgroup) Count() int { return len(c.Alive()) }

// Names is what is alive, for a message.
func (c *Cgroup) Names() (names []string) {
	for _, pid := range c.Alive() {
		names = append(names, fmt.Sprintf("%d %s", pid, procfs.Status(pid, "Name")))
	}
	return names
}

// Limit writes to a file of the cgroup.
func (c *Cgroup) Limit(file, value string) {
	c.T.Helper()
	err := os.WriteFile(filepath.Join(c.Dir, file), []byte(value), 0)
	need.That(c.T, err == nil, fmt.Sprintf("a cgroup with %s (%v)", file, err))
}

// NewMemoryCgroup is NewCgroup, with room for so many bytes, and for no more on a swap device.
func NewMemoryCgroup(t testing.TB, bytes int) *Cgroup {
	t.Helper()
	root, limit, swap, none := cgroups(), "memory.max", "memory.swap.max", "0"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil { // version 1
		root, limit, swap, none = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", strconv.Itoa(bytes)
	}
	h := NewCgroupBelow(t, root)
	h.Limit(limit, strconv.Itoa(bytes))
	if _, err := os.Stat(filepath.Join(h.Dir, swap)); err == nil {
		h.Limit(swap, none)
	}
	return h
}

// Around is fini in place p with these arguments, in the cgroup, where prefix is what executes
// it: a program that sets limits, say.
func (c *Cgroup) Around(p Place, prefix []string, args ...string) *exec.Cmd {
	return p.Executed(c.Wrap(prefix...), args...)
}

// Kill ends what is alive in the cgroup.
func (c *Cgroup) Kill() {
	for _, pid := range c.Alive() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// MustBeEmpty asserts that nothing of the cgroup is alive, now.
func (c *Cgroup) MustBeEmpty() {
	c.T.Helper()
	if names := c.Names(); len(names) > 0 {
		c.T.Errorf("alive in the cgroup: %q", names)
	}
}

// StartInCgroup starts fini in a place, and all of it in a cgroup.
func StartInCgroup(t testing.TB, p Place, args ...string) (*Cgroup, *Life) {
	t.Helper()
	h := NewCgroup(t)
	return h, StartCmd(t, h.Around(p, nil, args...))
}

// MustLeaveNothing asserts fini's status, and that at its end nothing of the cgroup is alive.
func (c *Cgroup) MustLeaveNothing(t testing.TB, l *Life, status int) {
	t.Helper()
	l.MustEnd(status)
	if names := c.Names(); len(names) > 0 {
		t.Errorf("alive in the cgroup: %q", names)
	}
}

// AtMost bounds the number of tasks in the cgroup, where the kernel can do that.
func (c *Cgroup) AtMost(n string) { _ = os.WriteFile(filepath.Join(c.Dir, "pids.max"), []byte(n), 0) }
