package bond

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// The parent death signal of the kernel fires at the end of a thread. fini's bond does not.
func TestEndOfTheLaunchersThreadStopsNothing(t *testing.T) {
	t.Parallel()
	// It starts a command from a thread that ends, as often as it is told, and talks to it afterwards.
	const oneThreadEach = `
import os, subprocess, sys, threading, time
for n in range(int(sys.argv[1])):
    started = []
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(sys.argv[2:], stdin=-1, stdout=-1, bufsize=0)))
    thread.start()
    thread.join()
    while os.path.exists("/proc/self/task/%d" % thread.native_id):
        time.sleep(.001)
    for line in b"one\n", b"two\n":
        started[0].stdin.write(line)
        assert started[0].stdout.readline() == line
    started[0].stdin.close()
    assert started[0].wait() == 0
    print("round", n, flush=True) # all of them together may take longer than a line may
print("all alive")`
	refusals.WithAndWithoutPidfds(t, refusals.WithPidfds, func(t *testing.T, before []string) {
		argv := []string{need.Program(t, "python3"), "-c", oneThreadEach, strconv.Itoa(rig.QuickOrFull(20, 100))}
		l := rig.StartCmd(t, rig.CommandOf(slices.Concat(argv, before, []string{rig.Fini, "--", "cat"})))
		l.Out.Want("all alive")
		l.MustEnd(0)
	})
}

// The launcher dies within microseconds around fini's start: before fini is executed, before it can know its parent, before it
// has started the command, or after.
func TestLauncherDiesAroundTheStart(t *testing.T) {
	t.Parallel()
	refusals.WithAndWithoutPidfds(t, refusals.WithoutPidfds, func(t *testing.T, before []string) {
		within := 12 * time.Millisecond
		if before != nil {
			within = 40 * time.Millisecond // it takes its time until it executes fini
		}
		launcher := append([]string{"/bin/sh", "-c", `"$@" & wait`, "sh"}, before...)
		for range rig.QuickOrFull(60, 500) {
			cmd := rig.CommandOf(append(launcher, rig.Fini, "-q", "--", "sleep", "1000"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as in rig.Launch
			l := rig.StartCmd(t, cmd)
			time.Sleep(rand.N(within)) // it is the test: the launcher dies at any moment of the start
			l.Signal(syscall.SIGKILL)
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
		}
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
						want := fmt.Sprintf("fini: stopping the command: fini's parent (exe, %d) has died; -p none prevents this", l.Launcher)
						if line, _ := l.Err.Next(); line != want {
							t.Errorf("says %q, want first %q", line, want)
						}
						rig.MustKill(t, command, 64) // which would come after another one
						rest := l.Out.Rest()
						if tt.group && time.Since(asked) >= time.Second && slices.Equal(rest, []string{tt.want, "signal 64"}) {
							continue // the launcher died a second after its signal, so this is a new request
						}
						rig.MustRecord(t, "and then", rest, "signal 64")
						l.MustVanish()
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
	const unbound = "fini: the command will keep running if fini's parent dies, because nohup started fini; -p TERM prevents this"
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
				l.MustVanish()
				init.Signal(syscall.SIGTERM)
				init.MustEnd(0)
			})
		}
	})
}

// A launcher that lives is never refused, whatever session it has moved to.
func TestLauncherMovesToASession(t *testing.T) {
	t.Parallel()
	const moves = `(until test "$(cut -d " " -f 6 /proc/$$/stat)" = $$; do :; done; exec "$@") & exec setsid sleep 1000 3>&- >&-`
	rounds := rig.QuickOrFull(30, 100)
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				fini := p.Command("--", "/bin/sh", "-c", "echo started; exec sleep 1000").Args
				l := rig.StartCmd(t, rig.CommandOf(append([]string{"/bin/sh", "-c", moves, "sh"}, fini...)))
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

// While the inner fini is stopped, the outer one watches the parent process and takes signals. Either may come before it is told
// of the stop.
func TestLauncherOfAStoppedInnerDies(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"plain": nil, "report": {"--report=" + t.TempDir() + "/report"}} {
		for _, asked := range []string{"the launcher dies", "the outer fini is asked"} {
			t.Run(name+"/"+asked, func(t *testing.T) {
				t.Parallel()
				for round := range rig.QuickOrFull(4, 50) {
					l := rig.Launch(t, rig.Pair, slices.Concat(flags, []string{"--grace=1h", "--"}, rig.Mode("signals", "15"))...)
					l.Out.Want("ready")
					inner := l.Inner()
					rig.WaitCaught(t, l.Outer, inner)
					rig.MustKill(t, inner, syscall.SIGSTOP)
					if round%2 == 0 {
						rig.Until(t, "it is stopped", func() bool { return procfs.IsStopped(inner) })
					}
					if asked == "the launcher dies" {
						rig.MustKill(t, l.Launcher, syscall.SIGKILL)
					} else {
						rig.MustKill(t, l.Outer, syscall.SIGTERM)
					}
					l.Out.Want("signal 15")
					l.MustVanish()
				}
			})
		}
	}
}

// A launcher that ends once fini is bound to it, as setsid -f does on a busy machine, is a
// launcher that has died: fini says so, and how not to.
func TestLauncherEndsAtOnce(t *testing.T) {
	t.Parallel()
	need.Program(t, "setsid")
	const said = " has died; -p none prevents this\n"
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name+"/before or after it is bound", func(t *testing.T) {
			t.Parallel()
			for range 10 {
				fini := p.Command(append([]string{"-v", "--grace=1h", "--"}, rig.Mode("signals", "12")...)...).Args
				l := rig.StartCmd(t, rig.CommandOf(rig.Mode("adopter", append([]string{"setsid", "-f"}, fini...)...)))
				rig.Until(t, "the command is ready, and the launcher gone, or all is over", func() bool {
					text := l.Out.Text()
					return strings.Contains(text, "ready ") && strings.Contains(text, "launcher ") || rig.HungUp(l.Witness)
				})
				for _, fini := range procfs.ChildrenOf(t, l.PID()) {
					_ = syscall.Kill(fini, syscall.SIGUSR2)
				}
				got := l.Out.Rest()
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
	}
}

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
			for _, sig := range []string{"KILL", "USR1"} {
				t.Run(p.Name+"/SIG"+sig, func(t *testing.T) {
					t.Parallel()
					l := rig.LaunchBy(t, append([]string{setpriv, "--pdeathsig", sig}, before...), p, record...)
					command := l.Out.WantPID("ready ")
					rig.MustKill(t, l.Launcher, syscall.SIGKILL)
					said := func(line string) func() bool { return func() bool { return strings.Contains(l.Out.Text(), line) } }
					if sig == "KILL" {
						rig.Until(t, "the end of the outer or only fini", func() bool { return procfs.StatOf(l.Outer).Gone() })
					} else {
						rig.Until(t, "the kept signal", said("signal 10\n"))
					}
					if sig == "USR1" || !p.Alone {
						rig.Until(t, "SIGTERM", said("signal 15\n"))
						rig.MustKill(t, command, 64)
					}
					l.MustVanish()
					// The kernel itself may send the kept signal once for each thread of the launcher.
					if text := l.Out.Whole(); sig == "USR1" && strings.Count(text, "signal 15\n") != 1 {
						t.Errorf("the command says %q, want SIGTERM once", text)
					}
				})
			}
		})
	}
	t.Run("-P", func(t *testing.T) {
		t.Parallel()
		l := rig.LaunchBy(t, []string{setpriv, "--pdeathsig", "KILL"}, rig.Pair, "-P", "-v")
		l.Err.Want("fini: pausing")
		rig.MustKill(t, l.Launcher, syscall.SIGKILL)
		l.MustVanish()
		if text := l.Err.Whole(); strings.Contains(text, "has died") {
			t.Errorf("says %q, but SIGKILL comes first", text)
		}
	})
}

// In a shell line, exec leaves no shell between the host and fini: the host's death stops the command.
func TestExecInAShellLine(t *testing.T) {
	t.Parallel()
	l := rig.StartCmd(t, rig.CommandOf([]string{"/bin/sh", "-c",
		`sh -c 'exec "$0" -q -- sh -c "echo up; exec sleep 1000"' "$0" & read go`, rig.Fini}))
	l.Out.Want("up")
	l.Signal(syscall.SIGKILL)
	rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
}
