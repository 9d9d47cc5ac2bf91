package bond

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
)

// A program that makes a PID namespace and sets a parent death signal on its first process takes fini along when it is
// killed, as it would take any other first process.
func TestMakerOfTheNamespaceDies(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	flags := "-fp"
	if os.Geteuid() != 0 {
		flags = "-Urfp"
	}
	makers := map[string][]string{
		"unshare": {"unshare", flags, "--kill-child", "--mount-proc"},
		"bwrap":   {"bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--as-pid-1", "--die-with-parent"},
	}
	refusals.WithAndWithoutPidfds(t, refusals.WithPidfds, func(t *testing.T, before []string) {
		for name, maker := range makers {
			for _, flags := range [][]string{nil, {"-p", "TERM"}} {
				t.Run(fmt.Sprint(name, flags), func(t *testing.T) {
					t.Parallel()
					need.Program(t, name)
					argv := slices.Concat(maker, before, []string{rig.Fini}, flags,
						[]string{"--grace=1h", "--", "/bin/sh", "-c", "trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000; sleep 1000"})
					l := rig.StartCmd(t, rig.CommandOf(argv))
					l.Out.Want("ready")
					l.Signal(syscall.SIGKILL)
					rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
				})
			}
		}
	})
}

// A parent death signal that fini's starter has set is kept. Where fini needs the place of the signal for a bond to the
// parent process, because there are no pidfds, it does on the parent's death what the kept signal would.
func TestParentDeathSignalIsKept(t *testing.T) {
	t.Parallel()
	setpriv := need.Program(t, "setpriv")
	record := append([]string{"--grace=1h", "--"}, rig.Mode("signals", "64")...)
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		refusals.WithAndWithoutPidfds(t, refusals.WithPidfds, func(t *testing.T, before []string) {
			t.Run(p.Name+"/SIGKILL", func(t *testing.T) {
				t.Parallel()
				l := rig.LaunchBy(t, append([]string{setpriv, "--pdeathsig", "KILL"}, before...), p, record...)
				command := l.Out.WantPID("ready ")
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				rig.Until(t, "the end of the outer or only fini", func() bool { return procfs.StatOf(l.Outer).Gone() })
				if !p.Alone {
					l.Out.Want("signal 15")
					rig.MustKill(t, command, 64)
				}
				l.MustVanish(0)
			})
			t.Run(p.Name+"/SIGUSR1", func(t *testing.T) {
				t.Parallel()
				l := rig.LaunchBy(t, append([]string{setpriv, "--pdeathsig", "USR1"}, before...), p, record...)
				command := l.Out.WantPID("ready ")
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				rig.Until(t, "both signals", func() bool {
					text := l.Out.Text()
					return strings.Contains(text, "signal 10\n") && strings.Contains(text, "signal 15\n")
				})
				rig.MustKill(t, command, 64)
				l.MustVanish(0)
				// The kernel itself may send the kept signal once for each thread of the launcher.
				if text := l.Out.Whole(); strings.Count(text, "signal 15\n") != 1 {
					t.Errorf("the command says %q, want SIGTERM once", text)
				}
			})
		})
	}
	t.Run("-P", func(t *testing.T) {
		t.Parallel()
		l := rig.LaunchBy(t, []string{setpriv, "--pdeathsig", "KILL"}, rig.Pair, "-P", "-v")
		l.Err.Want("fini: pausing")
		rig.MustKill(t, l.Launcher, syscall.SIGKILL)
		l.MustVanish(0)
		if text := l.Err.Whole(); strings.Contains(text, "has died") {
			t.Errorf("says %q, but SIGKILL comes first", text)
		}
	})
}
