package leftovers

import (
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// The outer fini of a pair inherits what its earlier children leave behind, and keeps no zombie of it.
func TestOuterReapsEarlierChildren(t *testing.T) {
	t.Parallel()
	const script = `exec 5<&0; (read go; i=0; while [ $i -lt 20 ]; do (sh -c : &); i=$((i+1)); done; echo made) <&5 & exec "$@" 5<&- </dev/null`
	l := rig.StartCmd(t, rig.CommandOf([]string{"/bin/sh", "-c", script, "sh", rig.Fini, "--grace=1h", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"}))
	l.Out.Want("ready")
	rig.Write(t, l, "go\n")
	l.Out.Want("made")
	rig.Until(t, "the inner fini is the only child", func() bool { return len(procfs.ChildrenOf(t, l.PID())) == 1 })
	l.Signal(15)
	l.MustEnd(128 + 15)
}
