package rig

import (
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/surroundings"
)

// Full reports whether FINI_FULL asks for every round and the whole volume, which take many
// times as long: FINI_FULL=1, or FINI_FULL=1h for what goes on at random for that long.
func Full() bool { return surroundings.Asked("FINI_FULL") != "" }

// All reports whether make test-all runs, or more.
func All() bool { return Full() || surroundings.Asked("FINI_ALL") == "1" }

// Long leaves a test to make test-all: there it takes as long as it wants.
func Long(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("make test-all runs this test")
	}
}

// QuickOrFull is how often something is done, or how much of it there is: in make test a third of quick.
func QuickOrFull(quick, whole int) int {
	switch {
	case Full():
		return whole
	case All():
		return quick
	}
	return (quick + 2) / 3
}

// DrawnFor is how long something goes on at random.
func DrawnFor(t testing.TB, quick time.Duration) time.Duration {
	t.Helper()
	switch text := surroundings.Asked("FINI_FULL"); text {
	case "":
		if !All() {
			quick /= 2
		}
		return quick
	case "1":
		return 5 * quick
	default:
		long, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("FINI_FULL: %v", err)
		}
		return long
	}
}

// Serial says of a test why it runs with no other beside it. All others call t.Parallel.
func Serial(testing.TB, string) {}
