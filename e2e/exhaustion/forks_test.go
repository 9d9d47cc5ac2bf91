package exhaustion

import (
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A zombie counts against the limits under which the command forks, so fini reaps at once. Each round of this script
// leaves one orphan. Beside tini, which is one task, 12 tasks are enough for it; fini has at most 7 threads and one more
// process.
func TestCommandCanFork(t *testing.T) {
	t.Parallel()
	const rounds, most, enough = 600, 3, 24
	script := "i=0; while [ $i -lt " + strconv.Itoa(rounds) + " ]; do (:&); i=$((i+1)); done; exit 3"
	for _, b := range fullTables {
		rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
			t.Run(b.name, func(t *testing.T) {
				var refused []int
				// On a busy machine fini may have to wait for a processor.
				for len(refused) < 20 {
					h := rig.NewCgroup(t)
					tasks := enough
					if b.name == "cgroup" {
						h.Limit("pids.max", strconv.Itoa(tasks))
					}
					l := rig.StartCmd(t, h.Around(p, b.prefix(t, tasks), "--", need.Program(t, "dash"), "-c", script))
					status := l.Status()
					n := strings.Count(l.Err.Whole(), "Cannot fork")
					if status != 3 {
						n = rounds // the shell itself could not fork, and gave up
					}
					if refused = append(refused, n); n <= most {
						t.Logf("refused forks: %d", refused)
						return
					}
				}
				t.Errorf("refused forks: %d, want at most %d", refused, most)
			})
		})
	}
}
