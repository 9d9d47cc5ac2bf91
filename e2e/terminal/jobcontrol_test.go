package terminal

import (
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
	for _, c := range shells.TypedCases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for _, shell := range c.Shells() {
				t.Run(shell.Name, func(t *testing.T) {
					t.Parallel()
					if !c.IsQuick(shell, rig.Pair) && !c.IsQuick(shell, rig.Alone) {
						rig.Long(t)
					}
					need.Program(t, shell.Name)
					c.MustHave(t, b)
					bare := b.Bare(t, shell, c)
					for _, p := range []rig.Place{rig.Pair, rig.Alone} {
						rig.Case(t, c.IsQuick(shell, p), p.Name, func(t *testing.T) { b.Compare(t, shell, c, p, bare) })
					}
				})
			}
		})
	}
}
