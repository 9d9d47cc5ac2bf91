package stuck

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A snake is never the same process for long: each forks the next and ends. There is no moment at
// which a signal to a pid that was read in /proc is sure to find it.
func TestSnakes(t *testing.T) {
	rig.Serial(t, "on a busy machine their zombies are as many as there can be processes")
	kinds := []struct {
		name  string
		more  int // snakes beside the first
		first string
	}{
		{"one", 0, ""},
		{"one that ignores TERM", 0, "ignore 15"},
		{"ten", 9, ""},
		{"ten that ignore TERM", 9, "ignore 15"},
	}
	if rig.Full() { // they take all of a small machine
		kinds[2].name, kinds[2].more, kinds[3].name, kinds[3].more = "fifty", 49, "fifty that ignore TERM", 49
	}
	program := func(more int, first string) []string {
		return rig.Mode("script", fmt.Sprintf(`lay: fork snake
			loop %d lay
			sleep 50
			say laid
			exit 3
			snake: setsid
			%s
			coil: fork next
			exit 0
			next: setsid
			goto coil`, more, first))
	}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, kind := range kinds {
			rig.Case(t, kind.more == 0 && kind.first != "", kind.name, func(t *testing.T) {
				h, l := rig.StartInCgroup(t, p, append([]string{"-q", "--linger=0", "--grace=200ms", "--"}, program(kind.more, kind.first)...)...)
				l.Out.Want("laid")
				start := time.Now()
				h.MustLeaveNothing(t, l, 3)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}
