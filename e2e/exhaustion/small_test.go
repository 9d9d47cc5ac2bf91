package exhaustion

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A limit of the stack under which true runs is enough for fini, which starts the Go runtime on memory of its own. Where
// the kernel puts the stack's end is a matter of chance.
func TestSmallStack(t *testing.T) {
	t.Parallel()
	const rounds = 60
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				cmd := exec.Command(need.Program(t, "bash"), append([]string{"-c", `ulimit -Ss 16; exec "$0" "$@"`}, p.Command("--", "/bin/true").Args...)...)
				cmd.Env = []string{"X=" + strings.Repeat("x", 400)}
				rig.Succeed(t, cmd)
			}
		})
	}
}
