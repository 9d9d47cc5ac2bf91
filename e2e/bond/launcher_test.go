package bond

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// toSession forks, moves to a session of its own, and lets the child execute a command only then.
const toSession = `
import os, sys
r, w = os.pipe()
if os.fork() == 0:
    os.read(r, 1)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(3)
os.setsid()
os.write(w, b"moved")
os.wait()`

// A launcher that lives is never refused, whatever session it has moved to.
func TestLauncherMovesToASession(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(30, 100)
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				fini := p.Command("--", "/bin/sh", "-c", "echo started; exec sleep 1000").Args
				l := rig.StartCmd(t, rig.CommandOf(append([]string{need.Program(t, "python3"), "-c", toSession}, fini...)))
				if line, _ := l.Out.Next(); line != "started" {
					t.Fatalf("round %d: %q; stderr: %s", round, line, l.Err.Text())
				}
				l.Signal(syscall.SIGKILL)
				rig.Until(t, "the end of the tree; stderr: "+l.Err.Text(), func() bool { return rig.HungUp(l.Witness) })
				l.Wait()
			}
		})
	}
}

// While the inner fini is stopped, the outer one watches the parent process, whose end may come before it is
// told of the stop.
func TestLauncherOfAStoppedInnerDies(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"plain": nil, "report": {"--report=" + t.TempDir() + "/report"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wait := range []bool{true, false} {
				l := rig.Launch(t, rig.Pair, slices.Concat(flags, []string{"--grace=1h", "--"}, rig.Mode("signals", "15"))...)
				l.Out.Want("ready")
				inner := l.Inner()
				rig.MustKill(t, inner, syscall.SIGSTOP)
				if wait {
					rig.Until(t, "it is stopped", func() bool { return procfs.IsStopped(inner) })
				}
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				l.Out.Want("signal 15")
				l.MustVanish(0)
			}
		})
	}
}

// A launcher that ends once fini is bound to it, as setsid -f does on a busy machine, is a
// launcher that has died: fini says so, and how not to.
func TestLauncherEndsAtOnce(t *testing.T) {
	t.Parallel()
	need.Program(t, "setsid")
	const said = " has died; -p none keeps it\n"
	record := append([]string{"--grace=1h", "--"}, rig.Mode("signals", "12")...)
	adopted := func(t *testing.T, argv ...string) *rig.Life {
		t.Helper()
		return rig.StartCmd(t, rig.CommandOf(rig.Mode("adopter", argv...)))
	}
	// What runs as "setsid -f fini cmd", but ends only after a line.
	later := func(fini []string) []string {
		return append([]string{"/bin/sh", "-c", `exec 5<&0; setsid "$@" <&5 & read line; echo later $!`, "sh"}, fini...)
	}
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name+"/before or after it is bound", func(t *testing.T) {
			t.Parallel()
			for range 10 {
				l := adopted(t, append([]string{"setsid", "-f"}, p.Command(append([]string{"-v"}, record...)...).Args...)...)
				var got []string
				ready, ended := false, false
				for !ready || !ended {
					line, ok := l.Out.Next()
					if !ok {
						break // it is over already
					}
					ready = ready || strings.HasPrefix(line, "ready ")
					ended = ended || strings.HasPrefix(line, "launcher ")
					got = append(got, line)
				}
				for _, fini := range procfs.ChildrenOf(t, l.PID()) {
					_ = syscall.Kill(fini, syscall.SIGUSR2)
				}
				got = append(got, l.Out.Rest()...)
				l.MustEnd(0)
				// SIGTERM may come before the command records it.
				died := func(line string) bool {
					return line == "signal 15" || strings.HasPrefix(line, "adopted ") && strings.HasSuffix(line, " 143")
				}
				// And it may come when the command has just ended by the other signal.
				stopped, text := slices.ContainsFunc(got, died), l.Err.Whole()
				if asked := strings.Contains(text, "sending SIGTERM"); stopped && !asked || asked != strings.Contains(text, said) {
					t.Errorf("the command got %q, and fini says %q", got, l.Err.Text())
				}
			}
		})
		for _, flags := range [][]string{nil, {"-p", "none"}} {
			t.Run(p.Name+"/after "+strings.Join(flags, " "), func(t *testing.T) {
				t.Parallel()
				l := adopted(t, later(p.Command(append(flags, record...)...).Args)...)
				l.Out.Want("ready ")
				rig.Write(t, l, "go\n")
				l.Out.Want("launcher ")
				fini, want := procfs.ChildrenOf(t, l.PID())[0], []string{"signal 12"}
				if flags == nil {
					l.Err.Want("fini: stopping the command: its parent (")
					// Of two signals that wait, the kernel gives the lower one first. This one may have come before "launcher ".
					rig.Until(t, "SIGTERM for the command", func() bool { return strings.Contains(l.Out.Text(), "signal 15\n") })
					want = []string{"signal 15", "signal 12"}
				}
				rig.MustKill(t, fini, syscall.SIGUSR2)
				lines := slices.DeleteFunc(strings.Split(l.Out.Whole(), "\n"), func(line string) bool {
					return !strings.HasPrefix(line, "signal ") && !strings.HasPrefix(line, "adopted ")
				})
				rig.MustRecord(t, "the command says", lines, append(want, fmt.Sprintf("adopted %d 7", fini))...)
				l.MustEnd(0)
				if got := l.Err.Whole(); strings.Count(got, said) != len(want)-1 || strings.Count(got, "\n") != len(want)-1 {
					t.Errorf("says %q", got)
				}
			})
		}
	}
}
