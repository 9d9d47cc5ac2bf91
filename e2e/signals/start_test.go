package signals

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// A signal that comes while fini starts is not lost: it waits until there is a command, and is
// sent on to that, or it ends fini before fini's first instruction. All of them end the command.
func TestSignalWhileFiniStarts(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	for _, p := range rig.AloneOrPair(t) {
		for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGALRM, unix.SIGTERM, 40} {
			t.Run(fmt.Sprint(p.Name, " ", sig), func(t *testing.T) {
				t.Parallel()
				for range rig.QuickOrFull(8, 20) {
					l := rig.Start(t, p, "--", "sleep", "1000")
					time.Sleep(rand.N(3 * time.Millisecond))
					l.Signal(sig)
					l.MustEnd(128 + int(sig))
				}
			})
		}
	}
}
