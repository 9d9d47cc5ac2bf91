package signals

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// record starts fini with a command that says which signals it gets, and ends with 7 by the last one. Both are ready for them.
func record(t *testing.T, p rig.Place, last string, flags ...string) *rig.Life {
	t.Helper()
	l := rig.Start(t, p, slices.Concat(flags, []string{"--"}, rig.Mode("signals", last))...)
	l.Out.Want("ready")
	l.Caught()
	return l
}

// A graceful shutdown after a forwarded TERM takes the time that its sender gives it, but with -k only as long as that says.
func TestForwardedSignalStartsNoLadder(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for name, tt := range map[string]struct {
			flag, takes string
			status      int
		}{"without -k": {"--grace=100ms", "0.5", 5}, "with -k": {"--kill-after=200ms", "1000", 128 + 9}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, tt.flag, "--", "/bin/sh", "-c",
					`trap 'sleep `+tt.takes+`; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
				l.Out.Want("ready")
				l.Signal(syscall.SIGTERM)
				l.MustEnd(tt.status)
			})
		}
	})
}

// Servers reload and dump their threads at SIGHUP and SIGQUIT, so the clock of -k does not start.
func TestReloadStartsNoClock(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "-k", "100ms", "--", "/bin/sh", "-c",
			`for sig in HUP QUIT; do trap "sleep 0.3; echo had $sig" $sig; done; echo ready; while :; do sleep 0.01; done`)
		l.Out.Want("ready")
		l.Signal(syscall.SIGHUP)
		l.Out.Want("had HUP")
		l.Signal(syscall.SIGQUIT)
		l.Out.Want("had QUIT")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(128 + 15)
	})
}

// A leftover that a forwarded SIGINT has asked to exit gets no SIGTERM on top of it before half of --grace.
func TestInterruptedLeftoverHasTime(t *testing.T) {
	t.Parallel()
	const server = `perl -e '$| = 1; $SIG{TERM} = sub { print "had TERM\n"; exit }; $SIG{INT} = sub { $int = 1 }; print "ready\n";
		while (!$int) { select(undef, undef, undef, 0.01) } %s' & wait`
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for name, tt := range map[string]struct{ grace, script, says string }{
			"it exits":             {"1h", fmt.Sprintf(server, `select(undef, undef, undef, 0.5); print "finished\n"`), "finished"},
			"it goes on":           {"1s", fmt.Sprintf(server, `print "goes on\n"; sleep 1 while 1`), "had TERM"},
			"it ignores SIGINT":    {"1h", "sleep 1000 & echo ready; wait", ""},
			"it ignores all but 9": {"1s", `sh -c 'trap "" INT TERM; echo ready; sleep 1000' & wait`, ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, "--linger=100ms", "--grace="+tt.grace, "--", "/bin/sh", "-c", "trap 'exit 5' INT; "+tt.script)
				l.Out.Want("ready")
				l.Signal(syscall.SIGINT)
				l.MustEnd(5)
				said := slices.DeleteFunc(l.Out.Rest(), func(line string) bool { return line == "goes on" })
				rig.Equal(t, "what the leftover says", strings.Join(said, " "), tt.says)
			})
		}
	})
}

func TestEverySignalArrivesOnce(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		l := record(t, p, "3")
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
		for flag, want := range map[string]int{"-q": 2, "-c": 1} { // how many of the group get it
			t.Run(flag, func(t *testing.T) {
				l := rig.Start(t, p, flag, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", signals+" & exec "+signals)
				l.Out.Want("ready")
				l.Out.Want("ready")
				l.Signal(syscall.SIGUSR1)
				for range want {
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

// The inner fini reads nothing while it is stopped, so signals to the outer one fill the line between them. Then the inner fini
// is continued, because a SIGTERM behind them would have to wait for that.
func TestSignalsFillTheLine(t *testing.T) {
	t.Parallel()
	l := record(t, rig.Pair, "15")
	inner := l.Worker()
	rig.MustKill(t, inner, syscall.SIGSTOP)
	rig.Until(t, "the inner fini is stopped", func() bool { return procfs.IsStopped(inner) })
	for range 2000 { // the line takes some hundred messages
		l.Signal(40)
	}
	rig.Until(t, "the inner fini goes on", func() bool { return !procfs.IsStopped(inner) })
	l.Signal(syscall.SIGTERM)
	l.MustEnd(7)
}

// A process of the tree that signals its whole job has reached the command by that.
func TestTrapKillZero(t *testing.T) {
	t.Parallel()
	recorder := strings.Join(rig.Mode("signals", "12"), " ")
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l, screen, keys := pty.Start(t, p.Command("-q", "--linger=0", "--", "/bin/sh", "-c",
				`(trap "kill 0" EXIT; read line </dev/tty) & exec `+recorder))
			screen.Want("ready")
			l.Caught()
			_, _ = io.WriteString(keys, "go\n")
			screen.Want("signal 15")
			l.Signal(syscall.SIGUSR2) // after a copy of SIGTERM, if there were one
			if line, _ := screen.Next(); line != "signal 12" {
				t.Errorf("the command says %q after the first SIGTERM", line)
			}
			l.MustEnd(7)
		})
	}
}

// pkill -f and pidof(8) find both processes of a pair, in either order. Of one signal to both one copy comes.
func TestSameSignalToBoth(t *testing.T) {
	t.Parallel()
	command := rig.Pair.Command(append([]string{"-q", "--linger=0", "--"}, rig.Mode("signals", "12")...)...)
	for _, where := range []string{"without a terminal", "in the job"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var l *rig.Life
			var out *rig.Lines
			if cmd := rig.CommandOf(command.Args); where == "in the job" {
				l, out, _ = pty.Start(t, cmd)
			} else {
				l = rig.StartCmd(t, cmd)
				out = l.Out
			}
			out.Want("ready")
			l.Caught()
			outer, inner := l.PID(), l.Worker()
			// The same one once more within a second might be taken for a copy. Real-time signals are
			// left out: of two that are caught at once only the last one's sender is known.
			for i, sig := range []syscall.Signal{1, 2, 3, 10, 13, 14, 15, 18, 26, 28} {
				order := []int{outer, inner}
				if i%2 == 1 {
					order = []int{inner, outer}
				}
				for _, pid := range order {
					rig.MustKill(t, pid, sig)
				}
				rig.MustKill(t, outer, 64) // comes after whatever was sent before it
				// The command may be told of the two by two of its threads, in any order. A copy would come third.
				first, _ := out.Next()
				second, _ := out.Next()
				if want := fmt.Sprint("signal ", int(sig)); (first != want || second != "signal 64") && (first != "signal 64" || second != want) {
					t.Fatalf("%d to %d: the command says %q and %q", sig, order, first, second)
				}
			}
			rig.MustKill(t, outer, syscall.SIGUSR2)
			out.Want("signal 12")
			l.MustEnd(7)
		})
	}
}

// ignoring starts fini where signals are ignored, as a shell without job control ignores SIGINT and SIGQUIT in the background,
// and nohup SIGHUP. The command says "ready".
func ignoring(t *testing.T, p rig.Place, sigs string, args ...string) *rig.Life {
	t.Helper()
	argv := []string{"/bin/sh", "-c", `trap "" ` + sigs + `; exec "$@"`, "sh"}
	l := rig.StartCmd(t, rig.CommandOf(append(argv, p.Executed(nil, args...).Args...)))
	l.Out.Want("ready")
	l.Caught()
	return l
}

// If the command handles a signal that was ignored when fini started, it gets the signal, as without an init.
func TestIgnoredSignalReachesAHandler(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, sig := range []string{"INT", "QUIT", "HUP"} {
			t.Run(p.Name+"/"+sig, func(t *testing.T) {
				t.Parallel()
				l := ignoring(t, p, sig, "--kill-after=1ms", "--", "perl", "-e", `
					$| = 1; $SIG{`+sig+`} = sub { print "got it\n"; exit 9 }; print "ready\n"; select undef, undef, undef, 0.01 while 1`)
				l.Signal(unix.SignalNum("SIG" + sig))
				l.Out.Want("got it")
				l.MustEnd(9)
			})
		}
	}
}

// It shortens none of the waits if the command, and what that leaves behind, ignores it as it did.
func TestIgnoredSignalAsksForNoEnd(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			const command = "echo ready; read line; sleep 0.2; exit 7" // SIGKILL would come before that
			l := ignoring(t, p, "INT QUIT HUP", "-v", "--kill-after=1ms", "--", "/bin/sh", "-c", command)
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGINT} {
				l.Signal(sig)
				l.Err.Want("fini: sending " + unix.SignalName(sig) + " to the command")
			}
			rig.Write(t, l, "line\n")
			l.MustEnd(7)
		})
	}
}

// What was ignored when fini started stays ignored, as nohup wants it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		t.Run(sig.String(), func(t *testing.T) {
			l := ignoring(t, rig.Pair, strconv.Itoa(int(sig)), append([]string{"--"}, rig.Mode("signals", "15")...)...)
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

// A leader that has moved to another group is still reached, also if its old group has a member left.
func TestSignalReachesACommandThatChangedItsGroup(t *testing.T) {
	t.Parallel()
	l := rig.Start(t, rig.Pair, "--", "perl", "-e", `
		$| = 1;
		$other = fork || do { setpgrp; sleep };
		fork || do { $SIG{USR1} = "IGNORE"; sleep };
		$SIG{USR1} = sub { print "got it\n"; exit 8 };
		select undef, undef, undef, 0.01 until setpgrp 0, $other;
		print "moved\n";
		select undef, undef, undef, 0.01 while 1`)
	l.Out.Want("moved")
	l.Signal(syscall.SIGUSR1)
	l.Out.Want("got it")
	l.MustEnd(8)
}

// Those that the Go runtime uses for itself are the command's too, where somebody sends them.
func TestSignalsOfTheRuntimeAreForwarded(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with a signal handler of fini's own")
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", "/bin/sh", "-c", `
			for sig in 23 27 34; do trap "echo signal $sig" $sig; done
			trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done`)
		l.Out.Want("ready")
		l.Caught()
		for _, sig := range []syscall.Signal{syscall.SIGURG, syscall.SIGPROF, 34} {
			l.Signal(sig)
			l.Out.Want(fmt.Sprintf("signal %d", sig))
		}
		l.Signal(syscall.SIGTERM)
		l.MustEnd(9)
	})
}

// What follows a signal is decided by the signal that is sent: TestStep of package life has the cases.
func TestRewrite(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		l := record(t, p, "12", "-r", "TERM:QUIT", "-r2:0", "--rewrite=sighup:SIGUSR1", "-r", "RTMIN+3:15")
		// The next one shows that what is dropped did not come.
		for i, want := range []string{"signal 10", "", "signal 3", "signal 3", "signal 15"} {
			if l.Signal([]syscall.Signal{1, 2, 3, 15, 37}[i]); want == "" {
				continue // it is dropped
			}
			if line, _ := l.Out.Next(); line != want {
				t.Fatalf("the command says %q, want %q", line, want)
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
			sig    syscall.Signal
			status int // of fini, which is the launcher's too
		}{
			"TERM":            {syscall.SIGTERM, 128 + 15},
			"INT":             {syscall.SIGINT, 128 + 2},
			"CONT":            {syscall.SIGCONT, 0},
			"launcher killed": {syscall.SIGKILL, 128 + 9},
			"fini killed":     {syscall.SIGKILL, 128 + 9},
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
				victim := l.Outer
				if name == "launcher killed" {
					victim = l.Launcher
				} else if name == "fini killed" && p.Alone {
					victim = command // which the kernel kills with fini
				}
				rig.MustKill(t, victim, tt.sig)
				l.MustVanish()
				l.MustHaveStatus(tt.status)
			})
		}
	}
}

// The wait from SIGTERM to SIGKILL is running time: a container that was paused finds no SIGKILL at its thaw.
func TestGraceIsRunningTime(t *testing.T) {
	t.Parallel()
	for flag, status := range map[string]int{"--kill-after=4s": 7, "--timeout": 124} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				var c *rig.Cgroup
				start := func(t testing.TB, flag string) *rig.Life {
					c = newFreezer(t)
					return rig.StartCmd(t, c.Around(p, nil, append([]string{flag, "--grace=4s", "--"}, rig.Mode("signals", "10")...)...))
				}
				var l *rig.Life
				if flag == "--timeout" {
					l = rig.OutOfTime(t, start)
				} else {
					l = start(t, flag)
					l.Out.Want("ready")
					l.Signal(syscall.SIGTERM)
				}
				l.Out.Want("signal 15")
				freeze(c, true)
				// One that isn't frozen is asked to end later, and waits until its grace is over.
				other := rig.Start(t, rig.Pair, append([]string{"--kill-after=4s", "--"}, rig.Mode("signals", "10")...)...)
				other.Out.Want("ready")
				other.Signal(syscall.SIGTERM)
				other.MustEnd(128 + 9)
				freeze(c, false)
				for range 2 { // before fini sends on the second one, it has acted on the clock
					l.Signal(syscall.SIGWINCH)
					l.Out.Want("signal 28")
				}
				l.Signal(syscall.SIGUSR1)
				l.Out.Want("signal 10")
				l.MustEnd(status)
			})
		})
	}
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
