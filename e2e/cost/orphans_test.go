package cost

import (
	"os/exec"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// storm is a shell that makes orphans as fast as it can, each by a child that ends first, when
// it is told to.
const storm = `echo ready; read go; i=0; while [ $i -lt 3000 ]; do (: &); i=$((i+1)); done; echo made; read end`

// Orphans share wake-ups: fini makes a look, rests and looks again, while tini wakes for each.
func TestGuardSwitchesPerOrphan(t *testing.T) {
	rig.Long(t)
	rig.Serial(t, "it compares how often two processes are put on a processor")
	tini := need.Program(t, "tini-static")
	// It is 0.2 to 0.4, and more on a busy machine; the obvious way, a SIGCHLD for each, is at 7.
	const orphans, most = 3000, 1.0
	reap := func(t *testing.T, cmd *exec.Cmd) float64 {
		l := rig.StartCmd(t, cmd)
		l.Out.Want("ready")
		pids := []int{l.PID()}
		rig.Settled(t, pids)
		before := rig.Switches(t, pids)
		rig.Write(t, l, "go\n")
		l.Out.Want("made")
		rig.Until(t, "all orphans are reaped", func() bool { return len(rig.ChildrenOf(t, l.PID())) == 1 })
		after := rig.Switches(t, pids)
		rig.Write(t, l, "end\n")
		l.MustEnd(0)
		return float64(after-before) / orphans
	}
	// A machine that is busy lets orphans gather before tini runs, and so share its wake-ups too.
	var ratios []float64
	for end := time.Now().Add(2 * rig.Patience); time.Now().Before(end); {
		fini := reap(t, rig.Alone.Command("--", "/bin/sh", "-c", storm))
		other := reap(t, exec.Command(tini, "-s", "--", "/bin/sh", "-c", storm))
		ratios = append(ratios, fini/other)
		t.Logf("context switches for each orphan: fini %.2f, tini-static %.2f, ratio %.2f", fini, other, fini/other)
		if fini/other <= most {
			return
		}
	}
	t.Errorf("fini switches %.2f times as often for each orphan as tini-static, want at most %.1f", ratios, most)
}
