package check

import (
	"iter"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
)

// Full reports whether FINI_FULL asks for all rounds, which take many times as long. FINI_FULL=1h also sets how long
// random tests run.
func Full() bool { return surroundings.Asked("FINI_FULL") != "" }

// Quick reports whether only quick cases should run, because make test runs `go test -short`. Each case says whether it
// is quick. Without -short, all of them run.
func Quick() bool { return testing.Short() }

// leftOut is why a test is skipped by make test.
const leftOut = "make test-all runs this"

// Long skips the test in make test. In make test-all it may take as long as it needs.
func Long(t testing.TB) {
	t.Helper()
	if Quick() {
		t.Skip(leftOut)
	}
}

// Case runs a case as a subtest. quick says whether make test runs it too.
func Case(t *testing.T, quick bool, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if !quick {
			Long(t)
		}
		test(t)
	})
}

// QuickOrFull returns a number of rounds, or a third of quick in make test.
func QuickOrFull(quick, whole int) int {
	switch {
	case Full():
		return whole
	case Quick():
		return (quick + 2) / 3
	}
	return quick
}

// DrawnFor returns how long a random test runs.
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

// Rounds numbers the rounds of a test that proves something only if a fact has occurred. It returns n rounds, and more
// until the fact occurs, because that depends on the machine. The test fails when Patience is over.
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

// Serial says why a test can't run in parallel with others. All other tests call t.Parallel.
func Serial(testing.TB, string) {}
