package status

import (
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// If SIGCHLD is ignored, the kernel keeps no status of a child: see wait(2). Whoever started fini like that gets the status of
// the command even so, and of a command that there isn't.
func TestSIGCHLDIgnoredAtTheStart(t *testing.T) {
	t.Parallel()
	ignoring := []string{need.Program(t, "bash"), "-c", `trap "" CHLD && exec "$@"`, "bash"} // dash can't ignore it
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			for want, command := range map[int][]string{7: {"/bin/sh", "-c", "exit 7"}, 127: {"no-such-command"}} {
				argv := slices.Concat(ignoring, []string{rig.Fini}, p.Flags(), []string{"--"}, command)
				if status, _, stderr := rig.Ask(t, rig.CommandOf(argv)); status != want {
					t.Errorf("%q ends with %d, want %d; stderr %q", command, status, want, stderr)
				}
			}
		})
	}
}
