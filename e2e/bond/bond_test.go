package bond

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
)

func TestMain(m *testing.M) { rig.Main(m) }

// oneThreadEach starts a command that copies its stdin from a thread that ends, as often as it is told, and says "all alive" if
// each of them outlives that thread.
const oneThreadEach = `
import os, subprocess, sys, threading, time
for n in range(int(sys.argv[1])):
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)))
    started = []
    thread.start()
    thread.join()
    while os.path.exists("/proc/self/task/%d" % thread.native_id):
        time.sleep(.001)
    for line in b"one\n", b"two\n":
        started[0].stdin.write(line)
        started[0].stdin.flush()
        assert started[0].stdout.readline() == line
    started[0].stdin.close()
    assert started[0].wait() == 0
    print("round", n, flush=True) # all of them together may take longer than a line may
print("all alive")`

// The parent death signal of the kernel fires at the end of a thread. fini's bond does not.
func TestEndOfTheLaunchersThreadStopsNothing(t *testing.T) {
	t.Parallel()
	refusals.WithAndWithoutPidfds(t, refusals.WithPidfds, func(t *testing.T, before []string) {
		argv := []string{need.Program(t, "python3"), "-c", oneThreadEach, strconv.Itoa(rig.QuickOrFull(20, 100))}
		l := rig.StartCmd(t, rig.CommandOf(slices.Concat(argv, before, []string{rig.Fini, "--", "cat"})))
		l.Out.Want("all alive")
		l.MustEnd(0)
	})
}

// The launcher dies within microseconds around fini's start: before fini is executed,
// before it can know its parent, before it has started the command, or after.
func TestLauncherDiesAroundTheStart(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(60, 500)
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
    if not select.select([r], [], [], 300)[0]:
        print("alive after round", round, flush=True)
        sys.exit(1)
    os.close(r)
    print("round", round, flush=True)
print("none alive")
`, rounds)
	refusals.WithAndWithoutPidfds(t, refusals.WithoutPidfds, func(t *testing.T, before []string) {
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

// The command gets one signal, also if the launcher has died of SIGTERM for its group, which fini forwards too.
func TestLauncherDies(t *testing.T) {
	t.Parallel()
	refusals.WithAndWithoutPidfds(t, refusals.WithoutPidfds, func(t *testing.T, before []string) {
		for _, tt := range []struct {
			name  string
			args  []string
			group bool
			want  string
		}{
			{"default", nil, false, "signal 15"},
			{"-p INT", []string{"-p", "INT"}, false, "signal 2"},
			{"--pdeathsig=SIGRTMIN+1", []string{"--pdeathsig=SIGRTMIN+1"}, false, "signal 35"},
			{"of the group's SIGTERM", nil, true, "signal 15"},
		} {
			for _, p := range rig.AloneOrPair(t, rig.Alone) {
				t.Run(p.Name+"/"+tt.name, func(t *testing.T) {
					t.Parallel()
					for range rig.QuickOrFull(3, 10) {
						l := rig.LaunchBy(t, before, p, slices.Concat(tt.args, []string{"--grace=1h", "--"}, rig.Mode("signals", "64"))...)
						command := l.Out.WantPID("ready ")
						asked := time.Now()
						if tt.group {
							rig.MustKill(t, -l.Launcher, syscall.SIGTERM)
						} else {
							rig.MustKill(t, l.Launcher, syscall.SIGKILL)
						}
						first, _ := l.Out.Next()
						rig.MustRecord(t, "the command says", []string{first}, tt.want)
						want := fmt.Sprintf("fini: stopping the command: its parent (exe, %d) has died; -p none keeps it", l.Launcher)
						if line, _ := l.Err.Next(); line != want {
							t.Errorf("says %q, want first %q", line, want)
						}
						rig.MustKill(t, command, 64) // which would come after another one
						rest := l.Out.Rest()
						if tt.group && time.Since(asked) >= time.Second && slices.Equal(rest, []string{tt.want, "signal 64"}) {
							continue // the launcher died a second after its signal, so this is a new request
						}
						rig.MustRecord(t, "and then", rest, "signal 64")
						l.MustVanish(0)
					}
				})
			}
		}
	})
}

// The launcher's death means nothing to a fini that is not bound to it: by a flag, or as nohup right before fini is meant
// for fini, and one further up is not.
func TestUnboundOutlivesItsLauncher(t *testing.T) {
	t.Parallel()
	const unbound = "fini: the command is not bound to the parent process: nohup started fini; -p TERM binds the command"
	nohup := []string{need.Program(t, "nohup")}
	ignores := []string{"/bin/sh", "-c", `trap "" HUP; exec "$@"`, "sh"} // executes the launcher
	refusals.WithAndWithoutPidfds(t, refusals.WithPidfds, func(t *testing.T, before []string) {
		for _, tt := range []struct {
			name     string
			launcher []string
			before   []string
			args     []string
			bound    bool
			says     bool
		}{
			{"-p none", nil, nil, []string{"-p", "none"}, false, false},
			{"nohup", nil, nohup, nil, false, true},
			// Nor can a parent be asked that has ended meanwhile, as a shell behind its "nohup fini &".
			{"nohup without a proc", nil, []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /proc && exec nohup "$@"`, "sh"}, nil, false, true},
			{"nohup, -p TERM", nil, nohup, []string{"-p", "TERM"}, true, false},
			{"further up", ignores, nil, nil, true, false},
			{"both", ignores, nohup, nil, true, false},
			{"neither", nil, nil, nil, true, false},
		} {
			for _, p := range rig.AloneOrPair(t, rig.Pair) {
				t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
					t.Parallel()
					if len(tt.before) > 1 {
						need.Root(t)
						need.Program(t, tt.before[0])
					}
					argv := p.Executed(nil, slices.Concat(tt.args, []string{"-v", "--grace=1h", "--"}, rig.Mode("signals", "15"))...).Args
					cmd := rig.CommandOf(slices.Concat(tt.launcher, rig.Mode("launcher"), tt.before, before, argv))
					cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
					l := rig.StartCmd(t, cmd)
					fini := l.Out.Launched()
					l.Out.Want("ready")
					l.Signal(syscall.SIGKILL)
					l.Wait()
					if !tt.bound {
						rig.MustKill(t, fini, syscall.SIGUSR1) // which would come after SIGTERM
						first, _ := l.Out.Next()
						rig.MustRecord(t, "the command says", []string{first}, "signal 10")
						rig.MustKill(t, fini, syscall.SIGTERM)
					}
					rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 15")
					rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
					text := l.Err.Whole()
					if strings.Contains(text, unbound) != tt.says || strings.Contains(text, "stopping the command") != tt.bound {
						t.Errorf("says %q", text)
					}
				})
			}
		}
	})
}

// With -p the command ends also with a launcher that is outside of the PID namespace, and has no pid in it.
func TestLauncherOutsideOfTheNamespaceDies(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	refusals.WithAndWithoutPidfds(t, refusals.WithoutPidfds, func(t *testing.T, before []string) {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				init := rig.Start(t, rig.PID1, "-P", "-v")
				init.Err.Want("fini: pausing")
				l := rig.LaunchBy(t, append(enter(init), before...), p, append([]string{"-p", "TERM", "--grace=1h", "--"}, rig.Mode("signals", "15")...)...)
				l.Out.Want("ready")
				rig.MustKill(t, l.Outer, syscall.SIGKILL) // nsenter, which has started fini
				rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 15")
				l.MustVanish(0)
				init.Signal(syscall.SIGTERM)
				init.MustEnd(0)
			})
		}
	})
}

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
