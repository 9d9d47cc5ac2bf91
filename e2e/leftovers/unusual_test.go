package leftovers

import (
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// oneThreadEach starts children from threads that end.
const oneThreadEach = `
import os, subprocess, threading, time
for n in range(5):
    thread = threading.Thread(target=lambda: subprocess.Popen(["sleep", "1000"], start_new_session=True, close_fds=False))
    thread.start()
    thread.join()
    while os.path.exists("/proc/self/task/%d" % thread.native_id):
        time.sleep(.001)
print("ready", flush=True)
time.sleep(1000)`

// Leftovers of which the kernel's own bookkeeping is unusual. Each says "ready", on which the command
// ends.
func TestUnusualLeftovers(t *testing.T) {
	t.Parallel()
	// script is a command that forks a leftover and waits for its word by the pipe that is its stdin.
	script := func(leftover string) []string { return rig.Mode("script", "fork x\nread\nexit 6\nx: "+leftover) }
	beside := func(helper ...string) []string {
		return append([]string{"/bin/sh", "-c", `"$@" & read go; exit 6`, "sh"}, helper...)
	}
	kinds := []struct {
		name    string
		command []string // each line of a script is a process
		stays   bool     // it has to be killed
	}{
		{"a subreaper with orphans of its own", script(`setsid; subreaper; fork a; pause
			a: fork b; exit 0
			b: setsid; ignore 15; say ready; pause`), true},
		{"a subreaper that ends before its orphans", script(`setsid; subreaper; fork a; wait; exit 0
			a: fork b; exit 0
			b: setsid; subreaper; fork c; pause
			c: fork d; exit 0
			d: say ready; pause`), false},
		{"traced by another leftover", script(`setsid; fork a; seize; say ready; pause
			a: setsid; pause`), false},
		{"traced, and the tracer ignores TERM and all that happens", script(`setsid; ignore 15; fork a; seize; say ready; pause
			a: pause`), true},
		{"stopped for a tracer that does not look", script(`setsid; ignore 15; say ready; fork a; pause
			a: traceme; kill 10; pause`), true},
		{"stopped for a tracer in the command, which is gone", rig.Mode("script", `fork a; read; exit 6
			a: traceme; say ready; kill 10; pause`), false},
		{"stopped", script(`setsid; fork a; pause
			a: ignore 15; say ready; kill 19; pause`), true},
		{"first thread ended", beside(rig.Mode("leaderless")...), false},
		{"first thread ended, ignores TERM", beside(rig.Mode("leaderless", "stays")...), true},
		{"in vfork", script(`setsid; fork a; pause
			a: clone 0x4000 b; pause
			b: setsid; ignore 15; say ready; pause`), true},
		{"a sister: CLONE_PARENT makes fini its parent", rig.Mode("script", `clone 0x8000 a; read; exit 6
			a: setsid; clone 0x8000 b; clone 0x8000 c; pause
			b: ignore 15; say ready; pause
			c: exit 1`), true},
		{"forked by threads that have ended", beside(need.Program(t, "python3"), "-c", oneThreadEach), false},
	}
	const grace = 300 * time.Millisecond
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				h, l := rig.StartInCgroup(t, p, append([]string{"--linger=0", "--grace=" + grace.String(), "--"}, kind.command...)...)
				l.Out.Want("ready")
				if len(h.Alive()) < 3 {
					t.Errorf("no leftover is there: %v", h.Names())
				}
				start := time.Now()
				rig.Write(t, l, "go\n")
				rig.MustRecord(t, "more output", l.Out.Rest()) // to EOF
				h.MustLeaveNothing(t, l, 6)
				if took := time.Since(start); kind.stays && took < grace {
					t.Errorf("took %v: it was not given its grace of %v", took, grace)
				}
			})
		}
	})
}
