package signals

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// The inner fini reads nothing while it is stopped, so signals to the outer one fill the line between them. Then the inner fini
// is continued, because a SIGTERM behind them would have to wait for that.
func TestSignalsFillTheLine(t *testing.T) {
	t.Parallel()
	l := rig.Start(t, rig.Pair, append([]string{"--"}, rig.Mode("signals", "15")...)...)
	l.Out.Want("ready")
	l.Caught()
	inner := l.Worker()
	isStopped := func() bool { return procfs.IsStopped(inner) }
	rig.MustKill(t, inner, syscall.SIGSTOP)
	rig.Until(t, "the inner fini is stopped", isStopped)
	for range 2000 { // the line takes some hundred messages
		l.Signal(40)
	}
	rig.Until(t, "the inner fini goes on", func() bool { return !isStopped() })
	l.Signal(syscall.SIGTERM)
	l.MustEnd(7)
}
