package leftovers

import (
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Nobody is told of the end of a process that is never a zombie: --orphans=wait looks for it.
func TestWaitsForOneThatIsNeverAZombie(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, append([]string{"--orphans=wait", "--"}, rig.Mode("autoreap")...)...)
		if line, _ := l.Out.Next(); strings.HasPrefix(line, "kernel: ") {
			need.Kernel(t, false, "CLONE_AUTOREAP ("+line+")")
		}
		rig.MustStay(t, "fini", l.PID())
		_ = l.Stdin.Close()
		l.MustEnd(5)
	})
}
