package promises

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 7, Parent's death: when the parent process dies, fini stops the tree, under every --orphans policy.
func TestParentsDeath(t *testing.T) {
	t.Parallel()
	const tree = `trap "" TERM; setsid sleep 1000 & echo ready; while :; do sleep 1000; done` // it is deaf to SIGTERM
	for _, policy := range []string{"stop", "pipes", "wait", "leave"} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} { // the parent of a PID 1 is outside of its namespace
			t.Run(p.Name+"/"+policy, func(t *testing.T) {
				t.Parallel()
				fini := p.Command("--grace=200ms", "--linger=0", "--orphans="+policy, "--", "sh", "-c", tree)
				parent := exec.Command("sh", append([]string{"-c", `"$@" & wait`, "sh"}, fini.Args...)...)
				parent.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				l := rig.StartCmd(t, parent)
				l.Out.Want("ready")
				rig.MustKill(t, l.PID(), syscall.SIGKILL) // of which the parent can tell nobody
				// Each process of the tree has descriptor 3, a pipe of which the test holds the other end.
				rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
			})
		}
	}
}
