package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// Limit writes to a file of the cgroup.
func (c *Cgroup) Limit(file, value string) {
	c.t.Helper()
	err := os.WriteFile(filepath.Join(c.Dir, file), []byte(value), 0)
	need.That(c.t, err == nil, fmt.Sprintf("a cgroup with %s (%v)", file, err))
}

// NewMemoryCgroup is NewCgroup, with room for so many bytes, and for no more on a swap device.
func NewMemoryCgroup(t testing.TB, bytes int) *Cgroup {
	t.Helper()
	const root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
	limit := strconv.Itoa(bytes)
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		h := NewCgroup(t)
		h.Limit("memory.max", limit)
		if _, err := os.Stat(filepath.Join(h.Dir, "memory.swap.max")); err == nil {
			h.Limit("memory.swap.max", "0")
		}
		return h
	}
	h := newCgroupBelow(t, root)
	h.Limit(file, limit)
	const both = "memory.memsw.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(h.Dir, both)); err == nil {
		h.Limit(both, limit)
	}
	return h
}

// OomKills is how many processes of the cgroup the kernel has killed for memory.
func (c *Cgroup) OomKills() (n int) {
	c.t.Helper()
	for _, file := range []string{"memory.events", "memory.oom_control"} {
		text, _ := os.ReadFile(filepath.Join(c.Dir, file))
		if _, rest, ok := strings.Cut(string(text), "\noom_kill "); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				c.t.Fatal(err)
			}
			return n
		}
	}
	c.t.Fatal("the kernel does not say how many processes it has killed for memory")
	return 0
}

// Around is fini in place p with these arguments, in the cgroup, where prefix is what executes
// it: a program that sets limits, say.
func (c *Cgroup) Around(p Place, prefix []string, args ...string) *exec.Cmd {
	argv := c.Wrap(slices.Concat(prefix, []string{Fini}, p.Flags(), args)...)
	if !p.PID1 {
		return exec.Command(argv[0], argv[1:]...)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"@pid1"}, argv...)...)
	AsPID1(cmd)
	return cmd
}

// Kill ends what is alive in the cgroup.
func (c *Cgroup) Kill() {
	for _, pid := range c.Alive() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// MustBeEmpty asserts that nothing of the cgroup is alive, now.
func (c *Cgroup) MustBeEmpty() {
	c.t.Helper()
	if names := c.Names(); len(names) > 0 {
		c.t.Errorf("alive in the cgroup: %q", names)
	}
}
