package signals

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A SIGTERM that the command got for something else does not replace the stop: only one within the second before it
// does, whatever --grace is.
func TestTermFromLongAgoReplacesNone(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		other := rig.Bystander(t)
		l := rig.Start(t, p, "--grace=2m", fmt.Sprintf("--bind=%d", other.Process.Pid), "--", "/bin/sh", "-c",
			`trap 'n=$((n+1)); echo TERM $n; [ $n = 1 ] || exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
		l.Out.Want("ready")
		l.Signal(syscall.SIGTERM)
		l.Out.Want("TERM 1")
		got := time.Now()
		rig.Until(t, "that was more than a second ago", func() bool { return time.Since(got) > 1100*time.Millisecond })
		_ = other.Process.Kill()
		l.Out.Want("TERM 2")
		l.MustEnd(7)
	}
}
