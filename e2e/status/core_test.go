package status

import (
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// If a signal that dumps core ends the command, fini ends by the same signal without a core dump of its own, even if a filter
// refuses one of the two calls that prevent it.
func TestFiniDumpsNoCore(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, limit string, argv ...string) syscall.WaitStatus {
		t.Helper()
		cmd := exec.Command("/bin/sh", slices.Concat([]string{"-c", "ulimit -c " + limit + ` && exec "$@"`, "sh"}, argv)...)
		cmd.Dir = t.TempDir() // for the command's core
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.Sys().(syscall.WaitStatus)
	}
	command := []string{"/bin/sh", "-c", "kill -QUIT $$"}
	need.Kernel(t, run(t, "2000", command...).CoreDump() && !run(t, "0", command...).CoreDump(), "core dumps that RLIMIT_CORE prevents")
	for name, before := range map[string][]string{
		"nothing refused": nil,
		"prctl refused":   rig.Mode("refuse", "prctl:EPERM"),
		"a limit refused": rig.Mode("refuse", "RLIMIT_CORE:EPERM"),
	} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				argv := slices.Concat(before, []string{rig.Fini}, p.Flags(), []string{"-q", "--"}, command)
				if got := run(t, "2000", argv...); !got.Signaled() || got.Signal() != syscall.SIGQUIT || got.CoreDump() {
					t.Errorf("fini's status is %#x, want %#x", uint32(got), int(syscall.SIGQUIT))
				}
			})
		}
	}
}
