package exhaustion

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// What docs/refused-and-exhausted.md says is enough is enough, also with the flags that take a descriptor.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	bind := []string{fmt.Sprintf("--bind=%d", os.Getpid()), fmt.Sprintf("--bind=%d", os.Getppid())}
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		for n, flags := range [][]string{nil, {"--report=/dev/stderr"}, bind, {"--report=/dev/stderr", bind[0], bind[1]}} {
			t.Run(fmt.Sprintf("%s/%d", p.Name, n), func(t *testing.T) {
				t.Parallel()
				enough := 7
				if len(flags) > 0 {
					enough = 9 + len(flags)
				}
				const own = 4 // that fini is started with: its streams, and the witness
				for free := enough; free < 15; free++ {
					words := []string{need.Program(t, "prlimit"), fmt.Sprintf("--nofile=%d", own+free)}
					l := rig.StartCmd(t, p.Executed(words, slices.Concat(flags, []string{"--", "/bin/sh", "-c", "exit 3"})...))
					if status := l.Status(); status != 3 {
						t.Errorf("%d free descriptors: status %d; stderr: %s", free, status, l.Err.Whole())
					}
				}
			})
		}
	}
}
