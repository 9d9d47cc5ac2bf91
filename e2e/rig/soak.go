package rig

import (
	"os"
	"path/filepath"
)

// NoMore has no process of the cgroup fork any more, so that the cgroup can be killed one by one.
func (c *Cgroup) NoMore() { c.AtMost("0") }

// AtMost bounds the number of tasks in the cgroup, where the kernel can do that.
func (c *Cgroup) AtMost(n string) {
	_ = os.WriteFile(filepath.Join(c.Dir, "pids.max"), []byte(n), 0)
}
