package rig

import (
	"testing"
	"time"
)

// UntilSleeps is the part of a shell script that waits until its last background process sleeps as sleep(1). A process
// that is still inside execve(2) has no start time, and does not show what it holds.
const UntilSleeps = `until test "$(grep -c -e '^Name:.sleep' -e '^State:.S' /proc/$!/status)" = 2; do :; done`

// UntilOlder waits until what is ready is older than a tick of 10 ms: within the one in which it
// started it may have come after a signal.
func UntilOlder(t testing.TB) {
	t.Helper()
	ready := time.Now()
	Until(t, "all are older than a tick", func() bool { return time.Since(ready) > 20*time.Millisecond })
}
