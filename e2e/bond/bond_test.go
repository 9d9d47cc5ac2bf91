package bond

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

func TestMain(m *testing.M) { rig.Main(m) }

func TestTimeout(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for name, script := range map[string]string{
			"ends on TERM":      "echo ready; exec sleep 1000",
			"ends well":         "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
			"ignores TERM":      "trap '' TERM; echo ready; sleep 1000; sleep 1000",
			"leaves a leftover": "setsid sh -c 'trap \"\" TERM; echo ready; sleep 1000; sleep 1000' & exec sleep 1000",
			"is stopped":        "trap 'exit 0' TERM; echo ready; kill -STOP $$; sleep 1000",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
					return rig.Start(t, p, timeout, "--grace=100ms", "--linger=0", "--", "/bin/sh", "-c", script)
				}).MustEnd(124)
			})
		}
	})
}

// fini's own stops send the signals of --stop-signal, with --grace behind each; the parent's death has the signal of -p.
func TestStopSignals(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for flag, status := range map[string]int{"-i": 128 + 9, "--timeout=5s": 124} {
			l := rig.Start(t, p, append([]string{"--stop-signal=QUIT,USR1", "-p", "INT", "--grace=300ms", flag, "--"}, rig.Mode("signals")...)...)
			_ = l.Stdin.Close()
			said := slices.DeleteFunc(l.Out.Rest(), func(line string) bool { return strings.HasPrefix(line, "ready ") })
			rig.MustRecord(t, flag+": the command says", said, "signal 3", "signal 10")
			l.MustEnd(status)
		}
	})
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		l := rig.Launch(t, p, append([]string{"--stop-signal=QUIT,USR1", "-p", "INT", "--"}, rig.Mode("signals", "2")...)...)
		l.Out.Want("ready")
		rig.MustKill(t, l.Launcher, syscall.SIGKILL)
		rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 2")
	}
}

// A parent process outside of the PID namespace does not die because a process inside sends the signal that would say so.
func TestSignalOfAnotherIsNoDeath(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	l := rig.Start(t, rig.PID1, "-c", "-p", "TERM", "--", "/bin/sh", "-c", "trap 'exit 3' USR1; kill -64 1; kill -USR1 1; while :; do sleep 0.01; done")
	l.MustEnd(3)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

// Without a command fini reaps what it is given, until it is told to end.
func TestPause(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			l := rig.Start(t, p, "-P", "-v")
			l.Err.Want("fini: pausing")
			l.Signal(syscall.SIGUSR1)
			l.Signal(sig)
			l.MustEnd(0)
		}
	})
	t.Run("a wrapper ends with what it is bound to", func(t *testing.T) {
		other := rig.Bystander(t)
		for victim, l := range map[int]*rig.BoundLife{
			other.Process.Pid: rig.Launch(t, rig.Pair, "-P", "-v", fmt.Sprintf("--bind=%d", other.Process.Pid)),
			0:                 rig.Launch(t, rig.Pair, "-P", "-v"),
		} {
			l.Err.Want("fini: pausing")
			rig.MustKill(t, cmp.Or(victim, l.Launcher), syscall.SIGKILL)
			l.MustVanish(0)
		}
	})
	t.Run("reaps", func(t *testing.T) {
		rig.NeedPidNamespace(t)
		l := rig.Start(t, rig.PID1, "-P", "-v", "-w")
		l.Err.Want("fini: pausing")
		// Whoever enters the namespace leaves its orphans to fini.
		inside(l, "(sleep 0.1 &)")
		l.Err.Want("fini: reaped zombie")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(0)
	})
}

// A suspended command is continued to act on the SIGTERM that fini sends it, in each of the ways in which fini may learn that
// it is suspended.
func TestSuspendedCommandActsOnItsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, flags []string }{
		"by wait4":          {nil, nil},
		"-w, by waitid":     {nil, []string{"-w"}},
		"wait4 is refused":  {rig.Mode("refuse", "wait4:EPERM"), nil},
		"waitid is refused": {rig.Mode("refuse", "waitid:EPERM"), []string{"-w"}},
	} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				l := rig.LaunchBy(t, tt.before, p, append(tt.flags, "--grace=1h", "--", "/bin/sh", "-c",
					`trap "echo asked; exit 6" TERM; echo ready $$; kill -STOP $$; while :; do sleep 0.01; done`)...)
				command := l.Out.WantPID("ready ")
				rig.Until(t, "the command is suspended", func() bool { return procfs.CountStopped([]int{command}) == 1 })
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				if !rig.Await(5*time.Second, func() bool { return strings.Contains(l.Out.Text(), "asked\n") }) { // at once, not after the grace
					t.Errorf("it has not acted on SIGTERM; its state is %q", procfs.Status(command, "State"))
					rig.MustKill(t, command, syscall.SIGKILL)
				}
				l.MustVanish(0)
			})
		}
	}
}

// inside makes a shell execute a line in the PID namespace of which fini is PID 1.
func inside(l *rig.Life, line string) {
	l.T.Helper()
	rig.Succeed(l.T, rig.CommandOf(append(enter(l), "/bin/sh", "-c", line)))
}

// enter is the words before those of a command by which it runs in the namespaces of a PID 1.
func enter(l *rig.Life) []string {
	l.T.Helper()
	into := []string{need.Program(l.T, "nsenter"), "-t", strconv.Itoa(l.PID()), "-p", "-m"}
	if os.Geteuid() != 0 {
		into = append(into, "-U", "--preserve-credentials") // see AsPID1
	}
	return append(into, "--")
}
