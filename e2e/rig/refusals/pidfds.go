package refusals

import (
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

const WithPidfds = "with pidfds"

const WithoutPidfds = "without pidfds"

// WithAndWithoutPidfds runs a test where fini has pidfds, and where it has not. before are the words that
// execute fini. In make test it is the quick one of the two.
func WithAndWithoutPidfds(t *testing.T, quick string, test func(t *testing.T, before []string)) {
	t.Helper()
	for name, before := range map[string][]string{WithPidfds: nil, WithoutPidfds: rig.Mode("refuse", BeforePidfds)} {
		rig.Case(t, name == quick, name, func(t *testing.T) {
			t.Parallel()
			test(t, before)
		})
	}
}
