package check

import (
	"iter"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
)

// Full reports whether FINI_FULL asks for every round and the whole volume, which take many
// times as long: FINI_FULL=1, or FINI_FULL=1h for what goes on at random for that long.
func Full() bool { return surroundings.Asked("FINI_FULL") != "" }

// Quick reports whether only the quick cases are asked for, as make test does by `go test -short`. Each case says itself
// whether it is one. Without -short everything runs.
func Quick() bool { return testing.Short() }

// leftOut is said by each test that make test leaves to make test-all.
const leftOut = "make test-all runs this"

// Long leaves a test to make test-all: there it takes as long as it wants.
func Long(t testing.TB) {
	t.Helper()
	if Quick() {
		t.Skip(leftOut)
	}
}

// Case runs a case, which says whether it is quick, as a subtest.
func Case(t *testing.T, quick bool, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if !quick {
			Long(t)
		}
		test(t)
	})
}

// QuickOrFull is how often something is done, or how much of it there is: in make test a third of quick.
func QuickOrFull(quick, whole int) int {
	switch {
	case Full():
		return whole
	case Quick():
		return (quick + 2) / 3
	}
	return quick
}

// DrawnFor is how long something goes on at random.
func DrawnFor(t testing.TB, quick time.Duration) time.Duration {
	t.Helper()
	switch text := surroundings.Asked("FINI_FULL"); text {
	case "":
		if Quick() {
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

// Rounds numbers the rounds of a test that shows something only if a fact has come about: n of them, and more until the
// fact is there, because how many that takes depends on the machine. Patience ends a failure.
func Rounds(t testing.TB, n int, what string, fact func() bool) iter.Seq[int] {
	t.Helper()
	return func(yield func(int) bool) {
		started := time.Now()
		for i := 0; i < n || !fact(); i++ {
			if i >= n && time.Since(started) > Patience {
				t.Fatalf("in %d rounds this never came about, and without it they show nothing: %s", i, what)
			}
			if !yield(i) {
				return
			}
		}
	}
}

// Serial says of a test why it runs with no other beside it. All others call t.Parallel.
func Serial(testing.TB, string) {}
