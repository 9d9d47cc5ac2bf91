package hostile

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
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
}{
	{name: "working directory"},
	{name: "root directory"},
	{name: "executable"},
	{name: "mapped file"},
	{name: "descriptor"},
	{name: "page fault", waits: true},
	{name: "lock of its mappings", waits: true, unkillable: true},
	{name: "close", waits: true, unkillable: true},
	{name: "full terminal", waits: true},
	{name: "terminal that hung up"},
}

func TestLeftoverAtDeadEnd(t *testing.T) {
	t.Parallel()
	for i, d := range deadEnds {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				if !rig.All() && !p.Takes(i) {
					return // each kind in one place: for some fini waits 10 s
				}
				t.Parallel()
				e := rig.NewDeadEnd(t, d.name)
				l := e.Start(p.Command(append([]string{"--linger=0", "--grace=300ms", "--"}, e.Command...)...))
				l.Out.Want("ready")
				leftover := e.Stop(l, l.Worker(), d.waits)
				rig.Write(t, l, "end\n")
				l.Err.Want("fini: stopping leftover ")
				if !d.unkillable {
					l.MustEnd(5)
					return
				}
				l.Err.Want("fini: gave up on leftovers ")
				if state := rig.ProcStatus(leftover, "State"); !strings.HasPrefix(state, "D") && !strings.HasPrefix(state, "Z") {
					t.Errorf("the state of the leftover is %q: it does not wait", state)
				}
				if p.PID1 {
					e.Abort() // for a PID namespace the kernel waits until all in it have ended
				}
				if got := l.Status(); got != 5 {
					t.Errorf("status %d, want 5", got)
				}
				e.Abort()
				rig.Until(t, "the end of the leftover", func() bool { return rig.HungUp(l.Witness) })
			})
		})
	}
}

// Whatever ends the command, its leftover is looked at, and fini ends.
func TestEndsByDeadEnd(t *testing.T) {
	t.Parallel()
	// The shell keeps nothing that the tree has, but for the streams.
	const launcher = `exec 5<&0; "$0" "$@" <&5 5<&- & exec 3>&- 4>&- 5<&-; echo fini $!; wait`
	for _, p := range rig.AloneOrPair(t) {
		for _, name := range []string{"descriptor", "lock of its mappings"} {
			unkillable := name != "descriptor"
			for _, by := range []struct {
				name   string
				signal syscall.Signal // for fini, or for its launcher if that is what ends
				status int
			}{
				{"TERM", syscall.SIGTERM, 128 + 15},
				{"launcher's death", syscall.SIGKILL, 128 + 9},
			} {
				t.Run(p.Name+"/"+name+"/"+by.name, func(t *testing.T) {
					t.Parallel()
					e := rig.NewDeadEnd(t, name)
					fini := p.Command(append([]string{"--grace=300ms", "--linger=0", "--"}, e.Command...)...)
					launched := by.signal == syscall.SIGKILL
					if launched {
						fini = exec.Command("/bin/sh", append([]string{"-c", launcher}, fini.Args...)...)
					}
					l := e.Start(fini)
					worker, outer := l.PID(), l.PID()
					if launched {
						outer = l.Out.Launched()
						worker = outer
					}
					l.Out.Want("ready")
					if !p.Alone {
						worker = rig.ChildrenOf(t, outer)[0]
					}
					e.Stop(l, worker, unkillable)
					l.Signal(by.signal)
					if unkillable {
						l.Err.Want("fini: gave up on leftovers ")
					}
					rig.Until(t, "the end of fini", func() bool {
						state := rig.ProcStatus(outer, "State")
						return state == "" || strings.HasPrefix(state, "Z")
					})
					if got := l.Status(); got != by.status {
						t.Errorf("status %d, want %d; stderr: %s", got, by.status, l.Err.Text())
					}
					if unkillable {
						e.Abort()
					}
					rig.Until(t, "the end of the leftover", func() bool { return rig.HungUp(l.Witness) })
				})
			}
		}
	}
}
