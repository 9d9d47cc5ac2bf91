package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/deadend"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// If the inner fini is killed, the outer one stops the tree, although the directory in which fini was started does not
// answer any more.
func TestHeirInAnUnansweringDirectory(t *testing.T) {
	t.Parallel()
	e := deadend.New(t, "fini's directory")
	argv := rig.Mode("in-dead-end", t.TempDir(), rig.Fini, "--linger=0", "--grace=300ms", "--", "/bin/sh", "-c",
		"trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000; sleep 1000")
	l := e.Start(rig.CommandOf(argv))
	l.Out.Want("ready")
	inner := l.Worker()
	rig.Until(t, "the outer fini has left the directory", func() bool {
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", l.PID()))
		return cwd == "/"
	})
	e.Halt()
	rig.MustKill(t, inner, syscall.SIGKILL)
	l.MustEnd(128 + 9)
}

// Nor does it go where the tree has put a link in the place of that directory.
func TestHeirFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "start")
	rig.NoError(t, os.Mkdir(dir, 0o755))
	cmd := rig.Pair.Command("--linger=0", "--grace=1h", "--", "/bin/sh", "-c",
		`trap "" TERM; cd /; rmdir "$1"; ln -s /proc "$1"; echo ready $$; sleep 1000; sleep 1000`, "sh", dir)
	cmd.Dir = dir
	l := rig.StartCmd(t, cmd)
	command := l.Out.WantPID("ready ")
	inner := l.Worker()
	rig.MustKill(t, inner, syscall.SIGKILL)
	l.Err.Want("fini: stopping leftover ")
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", l.PID())); cwd != "/" {
		t.Errorf("the heir is in %q, %v", cwd, err)
	}
	for _, pid := range append(procfs.ChildrenOf(t, command), command) {
		rig.MustKill(t, pid, syscall.SIGKILL)
	}
	l.MustEnd(128 + 9)
}
