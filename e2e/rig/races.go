package rig

import (
	"testing"
)

// StartInCgroup starts fini in a place, and all of it in a cgroup.
func StartInCgroup(t testing.TB, p Place, args ...string) (*Cgroup, *Life) {
	t.Helper()
	h := NewCgroup(t)
	t.Cleanup(h.NoMore)
	return h, StartCmd(t, h.Around(p, nil, args...))
}

// MustLeaveNothing asserts fini's status, and that at its end nothing of the cgroup is alive.
func (c *Cgroup) MustLeaveNothing(t testing.TB, l *Life, status int) {
	t.Helper()
	l.MustEnd(status)
	if names := c.Names(); len(names) > 0 {
		t.Errorf("survivors: %v", names)
	}
}
