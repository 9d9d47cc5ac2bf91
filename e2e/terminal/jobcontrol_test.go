package terminal

import (
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// At a terminal fini is as if it were not there. The same keys are typed to a shell twice, once for
// the bare command and once with fini before it: the screen, the statuses and what is left alive
// are the same. The cases are those of package shells.
func TestJobControl(t *testing.T) {
	t.Parallel()
	b := shells.NewBench(t)
	for i, c := range shells.TypedCases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for j, shell := range c.Shells() {
				// Each shell has half of the cases with a pair, and the other half with --no-shield; FINI_FULL has all with both.
				places := []rig.Place{rig.Pair, rig.Alone}
				if n := (i + j) % 2; !rig.Full() {
					if c.IsQuick(shell, places[1-n]) {
						n = 1 - n
					}
					places = places[n : n+1]
				}
				t.Run(shell.Name, func(t *testing.T) {
					t.Parallel()
					if !slices.ContainsFunc(places, func(p rig.Place) bool { return c.IsQuick(shell, p) }) {
						rig.Long(t)
					}
					need.Program(t, shell.Name)
					c.MustHave(t, b)
					bare := b.Bare(t, shell, c)
					for _, p := range places {
						rig.Case(t, c.IsQuick(shell, p), p.Name, func(t *testing.T) { b.Compare(t, shell, c, p, bare) })
					}
				})
			}
		})
	}
}
