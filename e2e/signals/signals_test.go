package signals

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/programs"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A graceful shutdown after a forwarded TERM takes the time that its sender gives it.
func TestForwardedSignalStartsNoLadder(t *testing.T) {
	t.Parallel()
	const graceful = `trap 'sleep %s; echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done`
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Run("without -k", func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, p, "--grace=100ms", "--", "/bin/sh", "-c", fmt.Sprintf(graceful, "0.5"))
			l.Out.Want("ready")
			l.Signal(syscall.SIGTERM)
			l.Out.Want("saved")
			l.MustEnd(5)
		})
		t.Run("with -k", func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, p, "-k", "200ms", "--", "/bin/sh", "-c", fmt.Sprintf(graceful, "1000"))
			l.Out.Want("ready")
			l.Signal(syscall.SIGTERM)
			rig.MustRecord(t, "the command says", l.Out.Rest())
			l.MustEnd(128 + 9)
		})
	})
}

func TestEverySignalArrivesOnce(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, append([]string{"--"}, rig.Mode("signals", "3")...)...)
		l.Out.Want("ready")
		l.Caught()
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if programs.Forwardable(sig) && sig != syscall.SIGQUIT {
				l.Signal(sig)
				if line, _ := l.Out.Next(); line != fmt.Sprintf("signal %d", sig) {
					t.Fatalf("sent %d, got %q", sig, line)
				}
			}
		}
		for _, sig := range []syscall.Signal{32, 33} { // forwarded, they would end the command
			l.Signal(sig)
		}
		l.Signal(syscall.SIGQUIT)
		rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 3")
		l.MustEnd(7)
	})
}

// SIGCHLD is about fini's own children. Were it forwarded, it would come before the sentinel.
func TestChildSignalIsNotForwarded(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", "/bin/sh", "-c", `trap 'echo child' CHLD; trap 'echo window' WINCH; echo ready; until read line; do :; done`)
		l.Out.Want("ready")
		l.Caught()
		l.Signal(syscall.SIGCHLD)
		rig.Until(t, "the command has SIGWINCH", func() bool { // a trap just before read(2) waits for its end
			l.Signal(syscall.SIGWINCH)
			return strings.Contains(l.Out.Text(), "window\n")
		})
		rig.Write(t, l, "go\n")
		if said := l.Out.Whole(); strings.Contains(said, "child") {
			t.Errorf("the command says %q", said)
		}
		l.MustEnd(0)
	})
}

func TestSignalsReachTheGroup(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals", "12"), " ")
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			line string // the name that fini is called by, and flags
			want int    // how many of the group get it
		}{{"fini", 2}, {"fini -c", 1}, {"fini --single-child", 1}, {"/sbin/tini", 1}, {"catatonit -g", 2}} {
			t.Run(tt.line, func(t *testing.T) {
				words := strings.Fields(tt.line)
				cmd := p.Command(append(words[1:], "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", signals+" & exec "+signals)...)
				if cmd.Path == rig.Fini {
					cmd.Args[0] = words[0]
				} else if words[0] != "fini" {
					return // another program executes this fini
				}
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				l.Out.Want("ready")
				l.Signal(syscall.SIGUSR1)
				for range tt.want {
					l.Out.Want("signal 10")
				}
				l.Signal(syscall.SIGUSR2)
				if rest := l.Out.Rest(); slices.Contains(rest, "signal 10") {
					t.Errorf("more got the signal than should: %q", rest)
				}
				l.MustEnd(7)
			})
		}
	})
}

// A shell without job control starts a command in the background with SIGINT and SIGQUIT ignored. If that
// handles them all the same, it gets them, as without an init.
func TestIgnoredSignalReachesAHandler(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"node": {need.Program(t, "node"), "-e", `
for (const sig of ["SIGINT", "SIGQUIT", "SIGHUP"]) process.on(sig, () => { console.log("got " + sig); process.exit(9) });
setInterval(() => {}, 1e6); console.log("up")`},
		"python": {need.Program(t, "python3"), "-c", `
import os, signal
def got(sig, _): os.write(1, b"got %s\n" % signal.Signals(sig).name.encode()); os._exit(9)
for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP): signal.signal(sig, got)
os.write(1, b"up\n")
while True: signal.sigtimedwait([], 1)`},
	}
	runners := map[string][]string{"without": nil, "tini": {need.Program(t, "tini"), "-s", "--"}}
	for _, p := range []rig.Place{rig.Alone, rig.Pair} {
		runners[p.Name] = slices.Concat([]string{rig.Fini}, p.Flags(), []string{"--kill-after=1ms", "--"})
	}
	for what, program := range programs {
		for who, runner := range runners {
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
				t.Run(fmt.Sprintf("%s/%s/%v", what, who, sig), func(t *testing.T) {
					t.Parallel()
					script := `trap "" HUP; "$@" & echo "fini $!"; wait $!; exit $?`
					l := rig.StartCmd(t, exec.Command("/bin/sh", slices.Concat([]string{"-c", script, "sh"}, runner, program)...))
					pid := l.Out.Launched()
					l.Out.Want("up")
					if runner != nil && who != "tini" {
						rig.WaitCaught(t, pid)
						if who != "alone" {
							rig.WaitCaught(t, procfs.ChildrenOf(t, pid)[0])
						}
					}
					rig.MustKill(t, pid, sig)
					l.Out.Want("got " + unix.SignalName(sig))
					l.MustEnd(9)
				})
			}
		}
	}
}

// It shortens none of the waits if the command, and what that leaves behind, ignores it as it did.
func TestIgnoredSignalAsksForNoEnd(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			argv := p.Executed(nil, "-v", "--kill-after=1ms", "--", "/bin/sh", "-c", "echo up; read line; exit 7").Args
			l := rig.StartCmd(t, exec.Command("/bin/sh", append([]string{"-c", `trap "" INT QUIT HUP; exec "$@"`, "sh"}, argv...)...))
			l.Out.Want("up")
			l.Caught()
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGINT} {
				l.Signal(sig)
				l.Err.Want("fini: sending " + unix.SignalName(sig) + " to the command")
			}
			rig.Write(t, l, "line\n")
			l.MustEnd(7)
		})
	}
}

// A leader that has moved to another group is still reached, also if its old group has a member left.
func TestSignalReachesACommandThatChangedItsGroup(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	l := rig.Start(t, rig.Pair, "--", python, "-c", `
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"got it\n"), sys.exit(8)))
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.pause()
    os._exit(0)
if os.fork() == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pause()
    os._exit(0)
while True:
    try:
        os.setpgid(0, child)
        break
    except PermissionError:
        pass
os.write(1, b"moved\n")
while True:
    time.sleep(0.01) # pause would miss a signal that comes just before it
`)
	l.Out.Want("moved")
	l.Signal(syscall.SIGUSR1)
	l.Out.Want("got it")
	l.MustEnd(8)
}

// Those that the Go runtime uses for itself are the command's too, where somebody sends them.
func TestSignalsOfTheRuntimeAreForwarded(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with a signal handler of fini's own")
	python := need.Program(t, "python3")
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", python, "-c", `
import os, signal, sys
wanted = [23, 27, 34]
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
while wanted:
    sig = signal.sigwait(wanted)
    print("signal", int(sig), flush=True)
    wanted.remove(sig)
sys.exit(9)
`)
		l.Out.Want("ready")
		l.Caught()
		for _, sig := range []syscall.Signal{syscall.SIGURG, syscall.SIGPROF, 34} {
			l.Signal(sig)
			l.Out.Want(fmt.Sprintf("signal %d", sig))
		}
		l.MustEnd(9)
	})
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		// The next one shows that what is dropped did not come.
		want := map[syscall.Signal]string{1: "signal 10", 2: "", 15: "signal 3", 37: "signal 15"}
		flags := []string{"-r", "TERM:QUIT", "-r2:0", "--rewrite=sighup:SIGUSR1", "-r", "RTMIN+3:15"}
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if _, ok := want[sig]; !ok && programs.Forwardable(sig) && sig != syscall.SIGQUIT && sig != syscall.SIGUSR2 {
				flags = append(flags, "-r", fmt.Sprintf("%d:10", sig))
				want[sig] = "signal 10"
			}
		}
		want[syscall.SIGQUIT] = "signal 3" // as it came
		l := rig.Start(t, p, append(append(flags, "--"), rig.Mode("signals", "12")...)...)
		l.Out.Want("ready")
		l.Caught()
		for _, sig := range slices.Sorted(maps.Keys(want)) {
			l.Signal(sig)
			if want[sig] == "" {
				continue
			}
			if line, _ := l.Out.Next(); line != want[sig] {
				t.Fatalf("sent %d, got %q, want %q", sig, line, want[sig])
			}
		}
		l.Signal(syscall.SIGUSR2)
		rig.MustRecord(t, "the command says at last", l.Out.Rest(), "signal 12")
		l.MustEnd(7)
	})
}

// A fini whose process group is orphaned can't be stopped by these, and need not be: it goes
// on watching its launcher. What it has stopped can be continued, ended and killed.
func TestStopSignalsInAnOrphanedGroup(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for name, tt := range map[string]struct {
			end    func(l *rig.BoundLife) error
			status int // of fini, which is the launcher's too
		}{
			"TERM":            {func(l *rig.BoundLife) error { return syscall.Kill(l.Outer, syscall.SIGTERM) }, 128 + 15},
			"INT":             {func(l *rig.BoundLife) error { return syscall.Kill(l.Outer, syscall.SIGINT) }, 128 + 2},
			"CONT":            {func(l *rig.BoundLife) error { return syscall.Kill(l.Outer, syscall.SIGCONT) }, 0},
			"launcher killed": {func(l *rig.BoundLife) error { return syscall.Kill(l.Launcher, syscall.SIGKILL) }, 128 + 9},
			"fini killed": {func(l *rig.BoundLife) error {
				if !p.Alone {
					return syscall.Kill(l.Outer, syscall.SIGKILL)
				}
				return syscall.Kill(l.ChildOf(l.Outer), syscall.SIGKILL)
			}, 128 + 9},
		} {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				setsid := []string{need.Program(t, "setsid"), "--wait"}
				l := rig.LaunchBy(t, setsid, p, "--grace=300ms", "--", "/bin/sh", "-c", "echo ready; read word")
				l.Out.Want("ready")
				inner := l.Outer
				if !p.Alone {
					inner = l.Inner()
				}
				rig.WaitCaught(t, l.Outer, inner)
				command := l.ChildOf(inner)
				_ = syscall.Kill(l.Outer, syscall.SIGTSTP)
				rig.Until(t, "the command is stopped", func() bool { return procfs.CountStopped([]int{command}) == 1 })
				rig.Write(t, l.Life, "go\n")
				rig.NoError(t, tt.end(l))
				l.MustVanish(time.Second)
				l.MustHaveStatus(tt.status)
			})
		}
	}
}

// What was ignored when fini started stays ignored, as nohup wants it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals", "15"), " ")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		t.Run(sig.String(), func(t *testing.T) {
			l := rig.StartCmd(t, exec.Command("/bin/sh", "-c", fmt.Sprintf(`trap "" %d; exec %s -- %s`, sig, rig.Fini, signals)))
			l.Out.Want("ready")
			l.Signal(sig)
			if ignored := procfs.Status(procfs.ChildrenOf(t, l.Worker())[0], "SigIgn"); !procfs.MaskHas(ignored, sig) {
				t.Errorf("the command does not ignore it: SigIgn %s", ignored)
			}
			l.Signal(syscall.SIGTERM)
			rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 15")
			l.MustEnd(7)
		})
	}
}

// What follows a signal is decided by the signal that is sent: see --rewrite.
func TestRewrittenSignalDecides(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		t.Run("which asks for nothing", func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, p, append([]string{"-k", "100ms", "-r", "HUP:USR1", "--"}, rig.Mode("signals", "12")...)...)
			l.Out.Want("ready")
			l.Signal(syscall.SIGHUP)
			l.Out.Want("signal 10")
			time.Sleep(time.Second) // ten times -k: there is nothing to wait for
			l.Signal(syscall.SIGUSR2)
			l.Out.Want("signal 12")
			l.MustEnd(7)
		})
		t.Run("which asks for the end", func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, p, append([]string{"-k", "100ms", "-r", "USR1:TERM", "--"}, rig.Mode("signals")...)...)
			l.Out.Want("ready")
			l.Signal(syscall.SIGUSR1)
			rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 15")
			l.MustEnd(128 + 9)
		})
		t.Run("of leftovers too", func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, p, "--linger=1h", "-v", "-r", "USR1:TERM", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 3")
			for said := ""; !strings.Contains(said, "exited with status 3"); {
				said, _ = l.Err.Next()
			}
			l.Signal(syscall.SIGUSR1)
			l.MustEnd(3)
		})
	})
}

// The wait from SIGTERM to SIGKILL is running time: a container that was paused finds no SIGKILL at its thaw.
func TestGraceIsRunningTime(t *testing.T) {
	t.Parallel()
	const script = `trap 'echo asked; i=0; while [ $i -lt 30 ]; do sleep 0.01; i=$((i+1)); done; echo saved; exit 5' TERM
		echo ready; while :; do sleep 0.01; done`
	for _, flag := range []string{"--kill-after=4s", "--timeout=500ms"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				c := newFreezer(t)
				l := rig.StartCmd(t, c.Around(p, nil, flag, "--grace=4s", "--", "/bin/sh", "-c", script))
				status := 5
				if l.Out.Want("ready"); flag == "--kill-after=4s" {
					l.Signal(syscall.SIGTERM)
				} else {
					status = 124
				}
				l.Out.Want("asked")
				freeze(c, true)
				time.Sleep(6 * time.Second) // half as long again as it may take
				freeze(c, false)
				l.Out.Want("saved")
				l.MustEnd(status)
			})
		})
	}
}

// The timeout is the time that passes: one that ran out while the container was paused takes effect when it goes on.
func TestTimeoutPassesWhilePaused(t *testing.T) {
	t.Parallel()
	const timeout = 40 * time.Second // fini has to start, and to be frozen, within it
	rig.Long(t)
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		c := newFreezer(t)
		l := rig.StartCmd(t, c.Around(p, nil, "--timeout="+timeout.String(), "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"))
		l.Out.Want("ready")
		started := time.Now()
		rest.Settled(t, rest.Finis(l)) // fini waits
		freeze(c, true)
		rig.Until(t, "the timeout has run out", func() bool { return time.Since(started) > timeout })
		thawed := time.Now()
		freeze(c, false)
		l.MustEnd(124)
		// A clock that had stood still would need nearly all of the timeout.
		if took := time.Since(thawed); took > timeout/2 {
			t.Errorf("the timeout took effect %v after the container went on", took)
		}
	})
}

// newFreezer is NewCgroup, for freeze.
func newFreezer(t testing.TB) *rig.Cgroup {
	t.Helper()
	const root = "/sys/fs/cgroup/freezer" // version 1
	if _, err := os.Stat(root); err != nil {
		return rig.NewCgroup(t)
	}
	return rig.NewCgroupBelow(t, root)
}

// freeze freezes all of the cgroup, or lets it go on, as docker pause does.
func freeze(c *rig.Cgroup, on bool) {
	c.T.Helper()
	if _, err := os.Stat(filepath.Join(c.Dir, "freezer.state")); err != nil {
		c.Limit("cgroup.freeze", map[bool]string{true: "1", false: "0"}[on])
		return
	}
	state := map[bool]string{true: "FROZEN", false: "THAWED"}[on]
	c.Limit("freezer.state", state)
	rig.Until(c.T, "the cgroup is "+state, func() bool {
		is, _ := os.ReadFile(filepath.Join(c.Dir, "freezer.state"))
		return strings.TrimSpace(string(is)) == state
	})
}
