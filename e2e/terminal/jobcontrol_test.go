package terminal

import (
	"cmp"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
)

// At a terminal fini is as if it were not there. The same keys are typed to a shell twice, once for
// the bare command and once with fini before it: the screen, the statuses and what is left alive
// are the same. The cases are those of package shells.
func TestJobControl(t *testing.T) {
	t.Parallel()
	b := shells.NewBench(t)
	turns := []rig.Place{rig.Pair, rig.Alone}
	if rig.All() {
		turns = append(turns, rig.Isolated)
	}
	for i, c := range shells.TypedCases {
		if !rig.All() && c.Row == "" && i%3 != 0 {
			continue // make test has each case of the table in docs/terminal.md, and a third of the others
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for j, shell := range c.Shells(i) {
				t.Run(shell.Name, func(t *testing.T) {
					t.Parallel()
					need.Program(t, shell.Name)
					c.MustHave(t, b)
					var bare *shells.Sitting // the same for all places
					for k, p := range turns {
						// Without FINI_FULL only the first shell does a case in all places, and in make test none does.
						if !rig.Full() && (j != 0 || !rig.All()) && (i/3+j)%len(turns) != k {
							continue
						}
						c := c
						if p.Isolated {
							c.Differs = cmp.Or(c.Isolated, c.Differs)
						}
						t.Run(p.Name, func(t *testing.T) {
							if p.Isolated {
								rig.NeedIsolation(t, rig.Account{Name: "this user"})
							}
							bare = b.Compare(t, shell, c, p, bare)
						})
					}
				})
			}
		})
	}
}
