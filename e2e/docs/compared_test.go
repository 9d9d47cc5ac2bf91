package docs

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// What README says of fini and others in its comparison, with the real programs, and with a command that leaves a process in a
// session of its own. A cell is the beginning of what README has there.
func TestReadmeCompared(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	rig.NeedPidNamespace(t)
	type wrapper []string
	var (
		bwrap      = wrapper{need.Program(t, "bwrap"), "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"}
		withParent = slices.Insert(slices.Clone(bwrap), 1, "--die-with-parent")
		wrappers   = []wrapper{{rig.Fini, "--"}, {need.Program(t, "tini"), "-s", "--"}, {need.Program(t, "dumb-init"), "--"},
			{need.Program(t, "timeout"), "1h"}, bwrap}
		standIns = map[string]string{
			"leave":  "setsid sleep 1000 & " + rig.UntilSleeps,
			"serve":  ". bin/leave; trap 'echo got TERM; exit' TERM; echo ready; while :; do sleep 0.1; done",
			"parent": `"$@" & wait`,
		}
	)
	// gone reports whether nothing is left, which is waited for if it is to be so.
	gone := func(t *testing.T, k *recipes.Dir, want bool) bool {
		if want {
			k.MustBeEmpty()
		}
		return len(k.Cgroup.Alive()) == 0
	}
	killed := func(t *testing.T, l *rig.Life, k *recipes.Dir, want bool) bool {
		l.Out.Want("ready")
		l.Signal(syscall.SIGKILL)
		l.Status()
		return gone(t, k, want)
	}
	readme := rig.ReadFile(t, "../README.md")
	for _, row := range []struct {
		name string
		is   func(t *testing.T, k *recipes.Dir, w wrapper, want bool) bool
		yes  []string // what the cells of those begin with for which it is so; "" for one for which it isn't
	}{
		{"forwards SIGTERM", func(_ *testing.T, k *recipes.Dir, w wrapper, _ bool) bool {
			l := k.Start(append(w, "serve")...)
			l.Out.Want("ready")
			l.Signal(syscall.SIGTERM)
			l.Status()
			k.Cgroup.Kill() // and so the output ends
			return strings.Contains(l.Out.Whole(), "got TERM")
		}, []string{"yes", "yes", "yes", "yes", ""}},
		// What dumb-init finds in its session isn't in another.
		{"stops what the command leaves", func(t *testing.T, k *recipes.Dir, w wrapper, want bool) bool {
			k.Start(append(w, "leave")...).Status()
			return gone(t, k, want)
		}, []string{"SIGTERM, time, SIGKILL", "", "", "", ""}},
		{"stops everything when its parent dies", func(t *testing.T, k *recipes.Dir, w wrapper, want bool) bool {
			return killed(t, k.Start(append(append(wrapper{"parent"}, w...), "serve")...), k, want)
		}, []string{"yes", "", "", "", ""}},
		{"stops everything when it is killed with SIGKILL", func(t *testing.T, k *recipes.Dir, w wrapper, want bool) bool {
			return killed(t, k.Start(append(w, "serve")...), k, want)
		}, []string{"yes", "", "", "", ""}},
	} {
		_, line, found := strings.Cut(readme, "\n| "+row.name+" | ")
		line, _, _ = strings.Cut(line, " |\n")
		cells := strings.Split(line, " | ")
		if !found || len(cells) != len(wrappers) {
			t.Fatalf("README has no row %q of %d", row.name, len(wrappers))
		}
		check := func(name string, w wrapper, want bool) {
			t.Run(row.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				k := recipes.NewDir(t, standIns)
				if got := row.is(t, k, slices.Clip(w), want); got != want {
					t.Errorf("it is %v, want %v", got, want)
				}
				k.Cgroup.Kill()
			})
		}
		for i, w := range wrappers {
			if !strings.HasPrefix(cells[i], row.yes[i]) || row.yes[i] == "" && strings.HasPrefix(cells[i], "yes") {
				t.Errorf("%s: README says %q, and the test %q", row.name, cells[i], row.yes[i])
			}
			check(w[0][strings.LastIndex(w[0], "/")+1:], w, row.yes[i] != "")
		}
		if strings.Contains(cells[4], "with `--die-with-parent`") {
			check("bwrap --die-with-parent", withParent, true)
		}
	}
}
