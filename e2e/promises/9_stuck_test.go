package promises

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// Promise 9, Never stuck: fini survives a full descriptor table, a full disk, a closed stderr, a missing /proc and a refused
// system call: it gives up a feature, says so once, and goes on. Room exhaustion also fills the process table, and room refused
// reads what fini says.
func TestNeverStuck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before []string // executes fini
		flag   string
	}{
		"nothing is wrong":        {nil, "-q"},
		"a full descriptor table": {[]string{"sh", "-c", `ulimit -n 12; exec "$@"`, "sh"}, "-q"},
		"a full disk":             {[]string{"sh", "-c", `exec 9>/dev/full; exec "$@"`, "sh"}, "--report=/dev/fd/9"},
		"a closed stderr":         {[]string{"sh", "-c", `exec "$@" 2>&-`, "sh"}, "-v"},
		"a missing /proc":         {[]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /proc; exec "$@"`, "sh"}, "-q"},
		"no pidfds":               {rig.Mode("refuse", "pidfd_open:EPERM"), "-q"},
		"no parent death signal":  {rig.Mode("refuse", "pdeathsig:EPERM"), "-q"},
		"no process groups":       {rig.Mode("refuse", "setpgid:EPERM"), "-q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(tt.before, "unshare") {
				need.Root(t)
			}
			fini := []string{rig.Fini, tt.flag, "--linger=0", "--grace=200ms", "--", "sh", "-c", `setsid sleep 1000 & echo ready; read line; exit 7`}
			argv := slices.Concat(tt.before, fini)
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.MustEnd(7) // with the command's status, and no process of the tree is alive
		})
	}
}
