package promises

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// Promise 8, kill -9: when either process of a pair is killed, the other one stops the tree. When PID 1 is killed, the kernel
// kills everything in its PID namespace.
func TestKill9(t *testing.T) {
	t.Parallel()
	const tree = `trap "" TERM; setsid sleep 1000 & echo ready; while :; do sleep 1000; done` // it is deaf to SIGTERM
	for name, tt := range map[string]struct {
		place  rig.Place
		victim func(l *rig.Life) int
	}{
		"the fini that the parent knows": {rig.Pair, func(l *rig.Life) int { return l.PID() }},
		"the fini below it":              {rig.Pair, func(l *rig.Life) int { return procfs.ChildrenOf(l.T, l.PID())[0] }},
		"PID 1":                          {rig.PID1, func(l *rig.Life) int { return l.PID() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.place.PID1 {
				rig.NeedPidNamespace(t)
			}
			l := rig.Start(t, tt.place, "--grace=200ms", "--", "sh", "-c", tree)
			l.Out.Want("ready")
			rig.MustKill(t, tt.victim(l), syscall.SIGKILL)
			// Each process of the tree has descriptor 3, a pipe of which the test holds the other end.
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
			l.MustHaveStatus(128 + 9)
		})
	}
}
