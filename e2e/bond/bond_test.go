package bond

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The parent death signal of the kernel fires at the end of a thread. fini's bond does not.
func TestEndOfTheLaunchersThreadStopsNothing(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(20, 100)
	python := fmt.Sprintf(`
import subprocess, sys, threading
for round in range(%d):
    made = []
    def launch():
        made.append(subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    cat = made[0]
    for line in b"one\n", b"two\n":
        cat.stdin.write(line)
        cat.stdin.flush()
        assert cat.stdout.readline() == line, round
    cat.stdin.close()
    assert cat.wait() == 0, (round, cat.returncode)
    print("round", round, flush=True)
print("all alive")
`, rounds)
	rig.WithAndWithoutPidfds(t, func(t *testing.T, before []string) {
		fini := append(before, rig.Fini, "--", "cat")
		t.Run("python", func(t *testing.T) {
			l := rig.StartCmd(t, exec.Command(need.Program(t, "python3"), append([]string{"-c", python}, fini...)...))
			l.Out.Want("all alive")
			l.MustEnd(0)
		})
		t.Run("go", func(t *testing.T) {
			argv := rig.Mode("threads", append([]string{strconv.Itoa(rounds)}, fini...)...)
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			l.Out.Want("all alive")
			l.MustEnd(0)
		})
	})
}

// The launcher dies within microseconds around fini's start: before fini is executed,
// before it can know its parent, before it has started the command, or after.
func TestLauncherDiesAroundTheStart(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(100, 500)
	// Each round's tree holds the writing end of a pipe, whose end is the proof.
	script := fmt.Sprintf(`
import os, random, select, signal, sys, time
random.seed(1)
for round in range(%d):
    r, w = os.pipe()
    os.set_inheritable(w, True)
    launcher = os.fork()
    if launcher == 0:
        os.setsid() # see launch
        os.close(r)
        delay = random.uniform(0, float(sys.argv[1]))
        if os.fork() == 0:
            os.execv(sys.argv[2], sys.argv[2:])
        end = time.monotonic() + delay
        while time.monotonic() < end:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    random.random()
    os.close(w)
    os.waitpid(launcher, 0)
    if not select.select([r], [], [], 20)[0]:
        print("alive after round", round, flush=True)
        sys.exit(1)
    os.close(r)
    print("round", round, flush=True)
print("none alive")
`, rounds)
	rig.WithAndWithoutPidfds(t, func(t *testing.T, before []string) {
		within := "0.012"
		if before != nil {
			within = "0.04" // it takes its time until it executes fini
		}
		l := rig.StartCmd(t, exec.Command(need.Program(t, "python3"), slices.Concat([]string{"-c", script, within}, before, []string{rig.Fini, "-q", "--", "sleep", "1000"})...))
		line := "round"
		for strings.HasPrefix(line, "round") {
			line, _ = l.Out.Next()
		}
		if line != "none alive" {
			t.Fatalf("%q; stderr: %s", line, l.Err.Text())
		}
		l.MustEnd(0)
	})
}

func TestLauncherDies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		want string // what the command is sent first
	}{
		{"default", nil, "signal 15"},
		{"-p INT", []string{"-p", "INT"}, "signal 2"},
		{"--pdeathsig=SIGRTMIN+1", []string{"--pdeathsig=SIGRTMIN+1"}, "signal 35"},
	}
	rig.WithAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			for _, tt := range tests {
				t.Run(p.Name+"/"+tt.name, func(t *testing.T) {
					t.Parallel()
					l := rig.LaunchBy(t, before, p, slices.Concat(tt.args, []string{"--grace=300ms", "--"}, rig.Mode("signals"))...)
					l.Out.Want("ready")
					_ = syscall.Kill(l.Launcher, syscall.SIGKILL)
					if got := l.Out.Rest(); len(got) != 1 || got[0] != tt.want {
						t.Errorf("the command got %q, want %s once", got, tt.want)
					}
					l.MustVanish(2 * time.Second)
					want := fmt.Sprintf("fini: stopping the command: its parent (exe, %d) has died; -p none keeps it\n", l.Launcher)
					if said := l.Err.Whole(); !strings.HasPrefix(said, want) {
						t.Errorf("says %q, want first %q", said, want)
					}
				})
			}
		}
	})
}

// A group TERM that kills the launcher too reaches the command once, in either order.
func TestTermThatKillsTheLauncherArrivesOnce(t *testing.T) {
	t.Parallel()
	rig.WithAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range rig.AloneOrPair(t) {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				for range rig.QuickOrFull(3, 10) {
					l := rig.LaunchBy(t, before, p, append([]string{"--grace=300ms", "--"}, rig.Mode("signals")...)...)
					l.Out.Want("ready")
					_ = syscall.Kill(-l.Launcher, syscall.SIGTERM)
					if got := l.Out.Rest(); len(got) != 1 || got[0] != "signal 15" {
						t.Fatalf("the command got %q, want SIGTERM once", got)
					}
					l.MustVanish(2 * time.Second)
				}
			})
		}
	})
}

// The launcher's death means nothing to a fini that is not bound to it.
func TestUnboundOutlivesItsLauncher(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		before, args []string
	}{
		{"-p none", nil, []string{"-p", "none"}},
		{"nohup", []string{"nohup"}, nil},
		// Nor can a parent be asked that has ended meanwhile, as a shell behind its "nohup fini &".
		{"nohup without a proc", []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /proc && exec nohup "$@"`, "sh"}, nil},
	} {
		for _, p := range rig.AloneOrPair(t) {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				if len(tt.before) > 0 {
					need.Program(t, tt.before[0])
					if tt.before[0] == "unshare" {
						need.Root(t)
					}
				}
				args := append(append(tt.args, "--"), rig.Mode("signals", "15")...)
				cmd := p.Command(args...)
				argv := append(tt.before, cmd.Args...)
				launcher := exec.Command("/proc/self/exe", append([]string{"@launcher"}, argv...)...)
				l := &rig.BoundLife{Life: rig.StartCmd(t, launcher)}
				l.Outer = l.Out.Launched()
				l.Out.Want("ready")
				_ = syscall.Kill(l.PID(), syscall.SIGKILL)
				l.Wait()
				// The launcher is gone, as wait has seen. Were fini bound, the first
				// that arrives would be SIGTERM.
				if err := syscall.Kill(l.Outer, syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				if line, _ := l.Out.Next(); line != "signal 10" {
					t.Errorf("got %q, want the sentinel", line)
				}
				_ = syscall.Kill(l.Outer, syscall.SIGTERM)
				l.MustVanish(0)
				if said := l.Err.Whole(); strings.Contains(said, "stopping") {
					t.Errorf("says %q", said)
				}
			})
		}
	}
}

// With -p the command ends also with a launcher that is outside of the PID namespace, and has no pid in it.
func TestLauncherOutsideOfTheNamespaceDies(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	rig.WithAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range rig.AloneOrPair(t) {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				init := rig.Start(t, rig.PID1, "-P", "-v")
				init.Err.Want("fini: pausing")
				l := rig.LaunchBy(t, append(init.Enter(), before...), p, append([]string{"-p", "TERM", "--grace=1s", "--"}, rig.Mode("signals", "15")...)...)
				l.Out.Want("ready")
				rig.MustKill(t, l.Outer, syscall.SIGKILL) // nsenter, which has started fini
				if got := l.Out.Rest(); len(got) != 1 || got[0] != "signal 15" {
					t.Errorf("the command got %q, want SIGTERM", got)
				}
				l.MustVanish(2 * time.Second)
				_ = l.Stdin.Close()
				l.Wait()
				init.Signal(syscall.SIGTERM)
				init.MustEnd(0)
			})
		}
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
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
		t.Run("in time", func(t *testing.T) {
			t.Parallel()
			rig.Start(t, p, "--timeout=1h", "--", "/bin/sh", "-c", "exit 3").MustEnd(3)
		})
	})
}

// Without a command fini reaps what it is given, until it is told to end.
func TestPause(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			l := rig.Start(t, p, "-P", "-v")
			l.Err.Want("fini: pausing")
			l.Signal(syscall.SIGUSR1)
			l.Signal(sig)
			l.MustEnd(0)
		}
	})
	t.Run("a wrapper ends with what it is bound to", func(t *testing.T) {
		other := exec.Command("sleep", "1000")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		l := rig.Start(t, rig.Pair, "-P", "-v", fmt.Sprintf("--bind=%d", other.Process.Pid))
		l.Err.Want("fini: pausing")
		_, _ = other.Process.Kill(), other.Wait()
		l.MustEnd(0)

		b := rig.Launch(t, rig.Pair, "-P", "-v")
		b.Err.Want("fini: pausing")
		_ = syscall.Kill(b.Launcher, syscall.SIGKILL)
		b.MustVanish(0)
	})
	t.Run("reaps", func(t *testing.T) {
		rig.NeedPidNamespace(t)
		l := rig.Start(t, rig.PID1, "-P", "-v", "-w")
		l.Err.Want("fini: pausing")
		// Whoever enters the namespace leaves its orphans to fini.
		l.Inside("sleep 0 &")
		l.Err.Want("fini: reaped zombie")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(0)
	})
}
