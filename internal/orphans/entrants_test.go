package orphans

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// A PID 1 finds those that came in from outside, and what they have started. One that nobody has reaped outside is no more.
// Only looks: as PID 1, Kill begins with kill(-1).
func TestEntrants(t *testing.T) {
	proc, tree := newFakeProc(t)
	var pids []int
	var all []*exec.Cmd
	for range 3 {
		all = append(all, check.Bystander(t))
		pids = append(pids, all[len(all)-1].Process.Pid)
	}
	entrant, below, zombie := pids[0], pids[1], pids[2]
	enter := func(pid, parent int, state, children string) {
		proc.put(pid, "status", statusOf(pid, parent, "some", state, 16, 1))
		proc.put(pid, fmt.Sprintf("task/%d/children", pid), children)
	}
	enter(1, 0, "S (sleeping)", "")
	enter(entrant, 0, "S (sleeping)", strconv.Itoa(below)+" ")
	enter(below, entrant, "S (sleeping)", "")
	enter(zombie, 0, "Z (zombie)", "")

	found := func() (pids []int, entered []bool) {
		view := tree.Look()
		for _, p := range view.Found {
			pids, entered = append(pids, p.Pid), append(entered, p.Entered)
		}
		return pids, entered
	}
	if pids, _ := found(); len(pids) > 0 || tree.HasEntrants() {
		t.Errorf("without Entrants it finds %d", pids)
	}
	tree.Entrants = true
	if pids, _ := found(); len(pids) > 0 || tree.HasEntrants() {
		t.Errorf("although it isn't PID 1 it finds %d", pids)
	}
	tree.self, tree.descriptors = 1, 1<<10
	pids, entered := found()
	check.Equal(t, "whom PID 1 finds", fmt.Sprint(pids, entered), fmt.Sprint([]int{entrant, below}, []bool{true, false}))
	check.Equal(t, "that there are entrants", tree.HasEntrants(), true)
	check.NoError(t, all[0].Process.Kill())
	enter(entrant, 0, "Z (zombie)", "")
	check.Equal(t, "that one may have left a child", tree.HasEntrants(), true)
	for _, one := range all {
		_ = one.Process.Kill()
		_ = one.Wait()
	}
	check.Equal(t, "that there are entrants, as one is a zombie", tree.HasEntrants(), false)
}
