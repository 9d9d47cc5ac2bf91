package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/deadend"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A file system whose server has stopped answers nobody: who asks it for anything waits, most
// of them so that no signal but SIGKILL ends it, some of them so that none does. A leftover may
// sit on one with whatever it has, and fini must look at that leftover and end all the same.

// deadEnds are what a leftover can have that never answers. Each is made while the server
// runs, which then is stopped.
var deadEnds = []struct {
	name string
	// unkillable: it waits in the kernel for the server, whatever it is sent.
	unkillable bool
	// waits: it is seen to wait before the command ends.
	waits bool
	quick rig.Place // where make test has it
}{
	{name: "working directory", quick: rig.Pair},
	{name: "root directory", quick: rig.Alone},
	{name: "executable", quick: rig.PID1},
	{name: "mapped file", quick: rig.Pair},
	{name: "descriptor", quick: rig.Alone},
	{name: "page fault", waits: true, quick: rig.PID1},
	{name: "lock of its mappings", waits: true, unkillable: true, quick: rig.Pair},
	{name: "close", waits: true, unkillable: true, quick: rig.Alone},
	{name: "full terminal", waits: true, quick: rig.PID1},
	{name: "terminal that hung up", quick: rig.Pair},
}

// Whatever ends the command, its leftover is looked at, and fini ends.
func TestLeftoverAtDeadEnd(t *testing.T) {
	t.Parallel()
	for i, d := range deadEnds {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, d.quick, func(t *testing.T, p rig.Place) { // for some kinds fini waits 10 s
				t.Parallel()
				e := deadend.New(t, d.name)
				l := e.Start(p.Command(append([]string{"--linger=0", "--grace=300ms", "--"}, e.Command...)...))
				l.Out.Want("ready")
				leftover := e.Stop(l, l.Worker(), d.waits)
				status := 5
				if i%2 == 0 {
					rig.Write(t, l, "end\n")
				} else {
					status = 128 + 15
					l.Caught()
					l.Signal(syscall.SIGTERM)
				}
				l.Err.Want("fini: stopping leftover ")
				if !d.unkillable {
					l.MustEnd(status)
					return
				}
				l.Err.Want("fini: gave up on leftovers ")
				if state := procfs.Status(leftover, "State"); !strings.HasPrefix(state, "D") && !strings.HasPrefix(state, "Z") {
					t.Errorf("the state of the leftover is %q: it does not wait", state)
				}
				if p.PID1 {
					e.Abort() // for a PID namespace the kernel waits until all in it have ended
				}
				l.MustHaveStatus(status)
				e.Abort()
				rig.Until(t, "the end of the leftover", func() bool { return rig.HungUp(l.Witness) })
			})
		})
	}
}

// The streams are FIFOs of such a file system, which fini need not ask for what it does with them: it watches its standard
// input, speaks, and writes its report.
func TestStreamsAtDeadEnd(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		fifo := deadend.New(t, "fifo").Fifo()
		cmd := p.Command("-v", "-i", "--linger=0", "--report=/dev/fd/0", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 5")
		cmd.Stdin, cmd.Stderr = fifo, fifo
		l := rig.StartCmd(t, cmd)
		l.MustEnd(5)
		if _, err := fifo.WriteString("the end\n"); err != nil {
			t.Fatal(err)
		}
		said := rig.NewLines(t, fifo)
		said.Want("the end")
		if !strings.Contains(said.Text(), "fini: stopping leftover ") {
			t.Errorf("says %q", said.Text())
		}
		reports.MustBeAmong(t, said.Text())
	})
}

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
		`trap "" TERM; cd /; rmdir "$1"; ln -s /proc "$1"; echo ready $$; exec sleep 1000`, "sh", dir)
	cmd.Dir = dir
	l := rig.StartCmd(t, cmd)
	command := l.Out.WantPID("ready ")
	inner := l.Worker()
	rig.MustKill(t, inner, syscall.SIGKILL)
	l.Err.Want("fini: stopping leftover ")
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", l.PID())); cwd != "/" {
		t.Errorf("the heir is in %q, %v", cwd, err)
	}
	rig.MustKill(t, command, syscall.SIGKILL)
	l.MustEnd(128 + 9)
}
