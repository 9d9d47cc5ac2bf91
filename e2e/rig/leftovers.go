package rig

import (
	"testing"
	"time"
)

// UntilOlder waits until what is ready is older than a tick of 10 ms: within the one in which it
// started it may have come after a signal.
func UntilOlder(t testing.TB) {
	t.Helper()
	ready := time.Now()
	Until(t, "all are older than a tick", func() bool { return time.Since(ready) > 20*time.Millisecond })
}
