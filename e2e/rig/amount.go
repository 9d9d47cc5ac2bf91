package rig

import (
	"flag"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/surroundings"
)

// Full reports whether FINI_FULL asks for every round and the whole volume, which take many
// times as long: FINI_FULL=1, or FINI_FULL=1h for what goes on at random for that long.
func Full() bool { return surroundings.Asked("FINI_FULL") != "" }

// All reports whether FINI_ALL asks for all cases, or for the rest of them, as make test-all does.
func All() bool { return Full() || surroundings.Asked("FINI_ALL") != "" }

// rest reports whether what make test has run is left out. FINI_ALL=rest asks for that.
func rest() bool { return surroundings.Asked("FINI_ALL") == "rest" && !Full() }

// takes reports whether this run has a case: make test has the chosen one alone, the rest is without it.
func takes(chosen bool) bool { return chosen && !rest() || !chosen && All() }

// leaveOut makes the run skip the tests of a room that are the same in make test: neither such a test nor a function that
// it calls asks All. The working directory is e2e.
func leaveOut(room string) error {
	callers := map[string][]string{}
	var tests []string
	for _, pattern := range []string{"rig/*.go", "rig/*/*.go", room + "/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for _, f := range strings.Split(string(text), "\nfunc ")[1:] {
				name := functionName.FindString(f)
				if strings.HasPrefix(name, "Test") && name != "TestMain" {
					tests = append(tests, name)
				}
				for _, call := range calledName.FindAllStringSubmatch(f, -1) {
					callers[call[1]] = append(callers[call[1]], name)
				}
			}
		}
	}
	asks := []string{"All"}
	for i := 0; i < len(asks); i++ {
		for _, name := range callers[asks[i]] {
			if !slices.Contains(asks, name) {
				asks = append(asks, name)
			}
		}
	}
	same := slices.DeleteFunc(tests, func(name string) bool { return slices.Contains(asks, name) })
	if same == nil {
		return nil
	}
	return flag.Set("test.skip", "^("+strings.Join(same, "|")+")$")
}

var (
	functionName = regexp.MustCompile(`^\w*`) // none of a method
	calledName   = regexp.MustCompile(`(?:\b(?:rig|shells)\.|[^.\w])(\w+)\(`)
)

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
