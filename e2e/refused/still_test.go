package refused

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Without /proc no process has a name, so none is left alone. It is said once.
func TestAllowOrphanWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	argv := []string{need.Program(t, "unshare"), "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@"`,
		rig.Fini, "--linger=0", "--grace=10s", "--allow-orphan=sleep", "--", "/bin/sh", "-c",
		`setsid sh -c 'echo ready; exec sleep 1000' & setsid sh -c 'echo ready; exec sleep 1000' & read go; exit 3`}
	l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
	l.Out.Want("ready")
	l.Out.Want("ready")
	rig.Write(t, l, "go\n")
	l.MustEnd(3)
	const want = "fini: --allow-orphan leaves no process alone: without /proc fini can't tell the names of processes"
	if text := l.Err.Whole(); strings.Count(text, want) != 1 {
		t.Errorf("it says %q, want once %q", text, want)
	}
}

// Without /proc fini can't tell which process holds a stream, so --orphans=pipes is --orphans=stop, even if no stream is
// a pipe.
func TestPipesWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	argv := []string{need.Program(t, "unshare"), "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@" >/dev/null 2>&1`,
		rig.Fini, "--orphans=pipes", "--linger=0", "--grace=10m", "--", "/bin/sh", "-c", `setsid sleep 1000 & exit 3`}
	l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
	l.MustEnd(3)
	if !rig.HungUp(l.Witness) {
		t.Error("a leftover is alive")
	}
}
