package e2e

import (
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
)

// Each tree says "ready" when all of it runs, and its main child then waits for a line.
// At the end of stdin it goes on: only a signal ends it.
var trees = []struct{ name, script string }{
	// npx: the client, npm exec, sh -c and the server.
	{"npx", `sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' & read go || sleep 1000`},
	{"holder", `setsid sh -c '(echo ready; exec sleep 1000); :' & read go || sleep 1000`},
	{"quiet", `mkfifo $DIR/f; setsid sh -c 'echo >$DIR/f; exec sleep 1000 </dev/null >/dev/null 2>&1' &
		read x <$DIR/f; echo ready; read go || sleep 1000`},
	{"stubborn", `trap "" TERM INT HUP; setsid sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' &
		read go || { sleep 1000; sleep 1000; }`},
}

// A stubborn leftover keeps fini at stopping it.
const stubbornLeftover = `setsid sh -c 'trap "" TERM; (echo stubborn; exec sleep 1000); :' & `

// A bound life is one whose launcher is a process of its own, and can be killed.
type boundLife struct {
	*life
	launcher int
	outer    int // 0 until its line was read
}

// launch starts a launcher in a session of its own, which starts fini. Were it in the session
// of the process that inherits fini, a launcher that was gone before fini's first instruction
// would go unnoticed, as the README says.
func launch(t testing.TB, p place, args ...string) *boundLife {
	t.Helper()
	return launchBy(t, nil, p, args...)
}

// launchBy has words before those of fini, which execute it.
func launchBy(t testing.TB, before []string, p place, args ...string) *boundLife {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", slices.Concat([]string{"@launcher"}, before, p.command(args...).Args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
	l := &boundLife{life: startCmd(t, cmd)}
	l.launcher = l.pid()
	l.outer = l.Out.launched()
	return l
}

// mustVanish waits until everything has ended, a ladder after it was told to.
func (l *boundLife) mustVanish(ladder time.Duration) {
	l.t.Helper()
	if !poll(ladder+patience, func() bool { return hungUp(l.witness) }) {
		l.t.Fatalf("the tree has not ended, where one ladder is %v; stderr: %s", ladder, l.Err.text())
	}
}

// inner finds the inner fini, as soon as there is one.
func (l *boundLife) inner() int { return l.childOf(l.outer) }

// main finds the main child. The first child of the outer fini may leave all to another one.
func (l *boundLife) main() (pid int) {
	until(l.t, "the main child", func() bool {
		for _, inner := range childrenOf(l.t, l.outer) {
			for _, pid = range childrenOf(l.t, inner) {
				return true
			}
		}
		return hungUp(l.witness)
	})
	return pid
}

// childOf is 0 where all is over before there is one.
func (l *boundLife) childOf(pid int) int {
	var children []int
	until(l.t, fmt.Sprintf("a child of %d", pid), func() bool {
		children = childrenOf(l.t, pid)
		return len(children) > 0 || hungUp(l.witness)
	})
	if len(children) == 0 {
		return 0
	}
	return children[0]
}

var victims = []struct {
	name string
	pids func(l *boundLife) []int // negative for a process group
}{
	{"launcher", func(l *boundLife) []int { return []int{l.launcher} }},
	{"outer fini", func(l *boundLife) []int { return []int{l.outer} }},
	{"inner fini", func(l *boundLife) []int { return []int{l.inner()} }},
	{"main child", func(l *boundLife) []int { return []int{l.main()} }},
	{"launcher's group", func(l *boundLife) []int { return []int{-l.launcher} }},
	{"launcher and outer fini", func(l *boundLife) []int { return []int{l.launcher, l.outer} }},
}

// The moments at which a victim is killed. Each returns when it has come.
var moments = []struct {
	name string
	come func(l *boundLife)
}{
	{"at the start", func(*boundLife) {}},
	{"running", func(l *boundLife) { l.Out.want("ready") }},
	{"in the ladder", func(l *boundLife) {
		l.Out.want("ready")
		_ = l.Stdin.Close()
		l.Err.want("fini: waiting for the command: its standard input has closed")
	}},
	{"stopping leftovers", func(l *boundLife) {
		for range 2 { // "stubborn" and "ready", in any order
			l.Out.next()
		}
		write(l.t, l.life, "go\n")
		l.Err.want("fini: stopping leftover")
	}},
}

func TestKillMatrix(t *testing.T) {
	t.Parallel()
	killMatrix(t, nil, func(v, m, n, g int) bool { return (v+m+n+g)%2 == 0 })
}

// The same where the kernel is old, or a sandbox or a filter has less: nothing is lost.
func TestKillMatrixWithoutPidfds(t *testing.T) {
	t.Parallel()
	for k, kind := range []string{"ENOSYS", "EPERM"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			// Every victim at every moment, and every tree, in each group.
			killMatrix(t, mode("refuse", beforePidfds+":"+kind), func(v, m, n, g int) bool { return n == (v+m+2*k)%4 && g == (v+k)%2 })
		})
	}
}

// killMatrix kills each victim at each moment. before are the words that start fini; drawn are the cases that
// are run if not all are.
func killMatrix(t *testing.T, before []string, drawn func(victim, moment, tree, group int) bool) {
	const grace, linger = 300 * time.Millisecond, 50 * time.Millisecond
	for v, victim := range victims {
		for m, moment := range moments {
			for n, tree := range trees {
				if victim.name == "main child" && moment.name == "stopping leftovers" {
					continue // it is gone by then
				}
				for g, group := range []string{"own", "job"} {
					if !full() && !drawn(v, m, n, g) {
						continue
					}
					t.Run(victim.name+"/"+moment.name+"/"+tree.name+"/"+group+" group", func(t *testing.T) {
						t.Parallel()
						for range quickOrFull(1, 20) {
							script := tree.script
							if moment.name == "stopping leftovers" {
								script = stubbornLeftover + script
							}
							l := launchBy(t, before, pair, "-v", "-i", "--foreground="+strconv.FormatBool(group == "job"),
								"--grace="+grace.String(), "--linger="+linger.String(), "--", "/bin/sh", "-c", script)
							moment.come(l)
							for _, pid := range victim.pids(l) {
								// On a busy machine the ladder may have come to its end by now.
								if pid == 0 {
									continue
								}
								if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
									t.Fatal(err)
								}
							}
							l.mustVanish(linger + 2*grace)
							_ = l.Stdin.Close() // lets the launcher end
							l.wait()
						}
					})
				}
			}
		}
	}
}

// As PID 1 fini's death is the namespace's, and no launcher's death is.
func TestKillMatrixAsPID1(t *testing.T) {
	t.Parallel()
	needPidNamespace(t)
	for _, tree := range trees {
		for _, victim := range []string{"fini", "main child"} {
			t.Run(victim+"/"+tree.name, func(t *testing.T) {
				t.Parallel()
				cmd := pid1.command("--grace=300ms", "--linger=50ms", "--", "/bin/sh", "-c", tree.script)
				cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
				l := &boundLife{life: startCmd(t, cmd)}
				l.outer = l.pid()
				l.Out.want("ready")
				pid := l.outer
				if victim == "main child" {
					pid = l.childOf(pid)
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				l.mustVanish(650 * time.Millisecond)
				if got := l.status(); got != 128+9 {
					t.Errorf("status %d, want 137", got)
				}
			})
		}
	}
}

// No policy leaves anything to a launcher that is gone, nor to a fini that was killed.
func TestDeathOverrulesThePolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"leave", "wait", "pipes"} {
		for _, victim := range victims[:3] {
			t.Run(policy+"/"+victim.name, func(t *testing.T) {
				t.Parallel()
				l := launch(t, pair, "--orphans="+policy, "--grace=300ms", "--linger=50ms", "--", "/bin/sh", "-c", trees[2].script)
				l.Out.want("ready")
				if err := syscall.Kill(victim.pids(l)[0], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				l.mustVanish(650 * time.Millisecond)
				_ = l.Stdin.Close()
				l.wait()
			})
		}
	}
}

// What can't be had outside a PID namespace: nobody is left to end the tree. The kernel
// still asks the command, as its parent dies.
func TestBothOfThePairKilledAtOnce(t *testing.T) {
	t.Parallel()
	l := launch(t, pair, append([]string{"--"}, mode("signals")...)...)
	command := l.Out.wantPid("ready ")
	inner := l.inner()
	// Stopped, neither can act on the other's death.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range []int{l.outer, inner} {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Out.want("signal 15")
	if hungUp(l.witness) {
		t.Error("a command that ignores SIGTERM is gone: the README says that it stays")
	}
	if err := syscall.Kill(command, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// The parent death signal of the kernel fires at the end of a thread. fini's bond does not.
func TestEndOfTheLaunchersThreadStopsNothing(t *testing.T) {
	t.Parallel()
	rounds := quickOrFull(20, 100)
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
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		fini := append(before, finiPath, "--", "cat")
		t.Run("python", func(t *testing.T) {
			l := startCmd(t, exec.Command(need.Program(t, "python3"), append([]string{"-c", python}, fini...)...))
			l.Out.want("all alive")
			l.mustEnd(0)
		})
		t.Run("go", func(t *testing.T) {
			argv := mode("threads", append([]string{strconv.Itoa(rounds)}, fini...)...)
			l := startCmd(t, exec.Command(argv[0], argv[1:]...))
			l.Out.want("all alive")
			l.mustEnd(0)
		})
	})
}

// The launcher dies within microseconds around fini's start: before fini is executed,
// before it can know its parent, before it has started the command, or after.
func TestLauncherDiesAroundTheStart(t *testing.T) {
	t.Parallel()
	rounds := quickOrFull(100, 500)
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
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		within := "0.012"
		if before != nil {
			within = "0.04" // it takes its time until it executes fini
		}
		l := startCmd(t, exec.Command(need.Program(t, "python3"), slices.Concat([]string{"-c", script, within}, before, []string{finiPath, "-q", "--", "sleep", "1000"})...))
		line := "round"
		for strings.HasPrefix(line, "round") {
			line, _ = l.Out.next()
		}
		if line != "none alive" {
			t.Fatalf("%q; stderr: %s", line, l.Err.text())
		}
		l.mustEnd(0)
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
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range []place{pair, alone} {
			for _, tt := range tests {
				t.Run(p.name+"/"+tt.name, func(t *testing.T) {
					t.Parallel()
					l := launchBy(t, before, p, slices.Concat(tt.args, []string{"--grace=300ms", "--"}, mode("signals"))...)
					l.Out.want("ready")
					_ = syscall.Kill(l.launcher, syscall.SIGKILL)
					if got := l.Out.rest(); len(got) != 1 || got[0] != tt.want {
						t.Errorf("the command got %q, want %s once", got, tt.want)
					}
					l.mustVanish(2 * time.Second)
					want := fmt.Sprintf("fini: stopping the command: its parent (exe, %d) has died; -p none keeps it\n", l.launcher)
					if said := l.Err.whole(); !strings.HasPrefix(said, want) {
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
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range []place{pair, alone} {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				for range quickOrFull(3, 10) {
					l := launchBy(t, before, p, append([]string{"--grace=300ms", "--"}, mode("signals")...)...)
					l.Out.want("ready")
					_ = syscall.Kill(-l.launcher, syscall.SIGTERM)
					if got := l.Out.rest(); len(got) != 1 || got[0] != "signal 15" {
						t.Fatalf("the command got %q, want SIGTERM once", got)
					}
					l.mustVanish(2 * time.Second)
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
		for _, p := range []place{pair, alone} {
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				if len(tt.before) > 0 {
					need.Program(t, tt.before[0])
					if tt.before[0] == "unshare" {
						need.Root(t)
					}
				}
				args := append(append(tt.args, "--"), mode("signals", "15")...)
				cmd := p.command(args...)
				argv := append(tt.before, cmd.Args...)
				launcher := exec.Command("/proc/self/exe", append([]string{"@launcher"}, argv...)...)
				l := &boundLife{life: startCmd(t, launcher)}
				l.outer = l.Out.launched()
				l.Out.want("ready")
				_ = syscall.Kill(l.pid(), syscall.SIGKILL)
				l.wait()
				// The launcher is gone, as wait has seen. Were fini bound, the first
				// that arrives would be SIGTERM.
				if err := syscall.Kill(l.outer, syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				if line, _ := l.Out.next(); line != "signal 10" {
					t.Errorf("got %q, want the sentinel", line)
				}
				_ = syscall.Kill(l.outer, syscall.SIGTERM)
				l.mustVanish(0)
				if said := l.Err.whole(); strings.Contains(said, "stopping") {
					t.Errorf("says %q", said)
				}
			})
		}
	}
}

// With -p the command ends also with a launcher that is outside of the PID namespace, and has no pid in it.
func TestLauncherOutsideOfTheNamespaceDies(t *testing.T) {
	t.Parallel()
	needPidNamespace(t)
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, p := range []place{pair, alone} {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				init := start(t, pid1, "-P", "-v")
				init.Err.want("fini: pausing")
				l := launchBy(t, append(init.enter(), before...), p, append([]string{"-p", "TERM", "--grace=1s", "--"}, mode("signals", "15")...)...)
				l.Out.want("ready")
				mustKill(t, l.outer, syscall.SIGKILL) // nsenter, which has started fini
				if got := l.Out.rest(); len(got) != 1 || got[0] != "signal 15" {
					t.Errorf("the command got %q, want SIGTERM", got)
				}
				l.mustVanish(2 * time.Second)
				_ = l.Stdin.Close()
				l.wait()
				init.signal(syscall.SIGTERM)
				init.mustEnd(0)
			})
		}
	})
}

// withAndWithoutPidfds runs a test where fini has pidfds, and where it has not. before are the words that
// execute fini.
func withAndWithoutPidfds(t *testing.T, test func(t *testing.T, before []string)) {
	t.Helper()
	t.Run("with pidfds", func(t *testing.T) { test(t, nil) })
	t.Run("without pidfds", func(t *testing.T) { test(t, mode("refuse", beforePidfds)) })
}

// Whoever may look at fini may open what its descriptors are once more: neither process may have one by which
// that hides an end, or tells one that has not been.
func TestTreeCannotOpenWhatThePairTells(t *testing.T) {
	t.Parallel()
	l := launchBy(t, nil, pair, "--grace=1s", "--", "python3", "-c", `
import os, signal
inner = os.getppid()
outer = int(open("/proc/%d/stat" % inner).read().rsplit(")", 1)[1].split()[1])
for pid in inner, outer:
    for fd in os.listdir("/proc/%d/fd" % pid):
        path = "/proc/%d/fd/%s" % (pid, fd)
        try:
            if int(fd) < 3 or os.readlink(path).split(":")[0] not in ("pipe", "socket"):
                continue
            taken = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            os.write(taken, bytes(12))
        except OSError:
            pass
print("ready", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
`)
	l.Out.want("ready")
	mustKill(t, l.outer, syscall.SIGKILL)
	l.mustVanish(2 * time.Second)
}

// The inner fini notices the end of the outer one by a socket, of which nobody else has the other end: whoever
// had it would hide that end.
func TestOnlyTheOuterHoldsTheLifeline(t *testing.T) {
	t.Parallel()
	withAndWithoutPidfds(t, func(t *testing.T, before []string) {
		for _, group := range []string{"own", "job"} {
			t.Run(group+" group", func(t *testing.T) {
				t.Parallel()
				l := launchBy(t, before, pair, "--foreground="+strconv.FormatBool(group == "job"), "--", "/bin/sh", "-c",
					`setsid sh -c 'echo ready; exec sleep 1000' & read go; exec sleep 1000`)
				l.Out.want("ready")
				inner, main := l.inner(), l.main()
				var own []string
				until(t, "the outer one has let go of what it inherited", func() bool {
					own = sockets(l.outer)
					return len(own) == 1 // of the line
				})
				for _, pid := range append(childrenOf(t, main), main, inner) {
					for _, end := range sockets(pid) {
						if slices.Contains(own, end) || pid != inner {
							t.Errorf("%d of the tree has %s, which is an end of the outer one's %q or the inner one's", pid, end, own)
						}
					}
				}
				mustKill(t, l.launcher, syscall.SIGKILL)
				l.mustVanish(10 * time.Second)
			})
		}
	})
}

// sockets are those that a process has besides its standard streams.
func sockets(pid int) (found []string) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		link, _ := os.Readlink(dir + entry.Name())
		if n, _ := strconv.Atoi(entry.Name()); n >= 3 && strings.HasPrefix(link, "socket:") {
			found = append(found, link)
		}
	}
	return found
}

func TestNestedFinis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		kill func(l *boundLife) int
		sig  syscall.Signal
	}{
		{"TERM", func(l *boundLife) int { return l.outer }, syscall.SIGTERM},
		{"launcher", func(l *boundLife) int { return l.launcher }, syscall.SIGKILL},
		{"outermost", func(l *boundLife) int { return l.outer }, syscall.SIGKILL},
		{"second", func(l *boundLife) int { return l.inner() }, syscall.SIGKILL},
		{"third", func(l *boundLife) int { return l.main() }, syscall.SIGKILL},
		{"innermost", func(l *boundLife) int { return l.childOf(l.main()) }, syscall.SIGKILL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := launch(t, pair, "--grace=300ms", "--", finiPath, "--grace=300ms", "--", "/bin/sh", "-c", trees[1].script)
			l.Out.want("ready")
			if err := syscall.Kill(tt.kill(l), tt.sig); err != nil {
				t.Fatal(err)
			}
			l.mustVanish(2 * time.Second)
		})
	}
	t.Run("status", func(t *testing.T) {
		status, stdout, stderr := ask(t, exec.Command(finiPath, "--", finiPath, "--", finiPath, "/bin/sh", "-c", "echo out; exit 42"))
		if status != 42 || stdout != "out\n" || stderr != "" {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	})
}

// outOfTime starts a life with a timeout that runs out after the life has said "ready": with a longer one
// if it did before that.
func outOfTime(t testing.TB, start func(t testing.TB, timeout string) *life) (l *life) {
	t.Helper()
	for timeout := time.Second; timeout < 2*patience; timeout *= 4 {
		l = start(t, "--timeout="+timeout.String())
		if line, _ := l.Out.next(); line == "ready" {
			return l
		}
		_ = l.status()
	}
	t.Fatalf("no time is long enough; stderr: %s", l.Err.text())
	return nil
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		for name, script := range map[string]string{
			"ends on TERM":      "echo ready; exec sleep 1000",
			"ends well":         "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
			"ignores TERM":      "trap '' TERM; echo ready; sleep 1000; sleep 1000",
			"leaves a leftover": "setsid sh -c 'trap \"\" TERM; echo ready; sleep 1000; sleep 1000' & exec sleep 1000",
			"is stopped":        "trap 'exit 0' TERM; echo ready; kill -STOP $$; sleep 1000",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				outOfTime(t, func(t testing.TB, timeout string) *life {
					return start(t, p, timeout, "--grace=100ms", "--linger=0", "--", "/bin/sh", "-c", script)
				}).mustEnd(124)
			})
		}
		t.Run("in time", func(t *testing.T) {
			t.Parallel()
			start(t, p, "--timeout=1h", "--", "/bin/sh", "-c", "exit 3").mustEnd(3)
		})
	})
}

// A graceful shutdown after a forwarded TERM takes the time that its sender gives it.
func TestForwardedSignalStartsNoLadder(t *testing.T) {
	t.Parallel()
	const graceful = `trap 'sleep %s; echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done`
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("without -k", func(t *testing.T) {
			t.Parallel()
			l := start(t, p, "--grace=100ms", "--", "/bin/sh", "-c", fmt.Sprintf(graceful, "0.5"))
			l.Out.want("ready")
			l.signal(syscall.SIGTERM)
			l.Out.want("saved")
			l.mustEnd(5)
		})
		t.Run("with -k", func(t *testing.T) {
			t.Parallel()
			l := start(t, p, "-k", "200ms", "--", "/bin/sh", "-c", fmt.Sprintf(graceful, "1000"))
			l.Out.want("ready")
			l.signal(syscall.SIGTERM)
			if got := l.Out.rest(); len(got) > 0 {
				t.Errorf("got as far as %q", got)
			}
			l.mustEnd(128 + 9)
		})
	})
}

// Without a command fini reaps what it is given, until it is told to end.
func TestPause(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			l := start(t, p, "-P", "-v")
			l.Err.want("fini: pausing")
			l.signal(syscall.SIGUSR1)
			l.signal(sig)
			l.mustEnd(0)
		}
	})
	t.Run("a wrapper ends with what it is bound to", func(t *testing.T) {
		other := exec.Command("sleep", "1000")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		l := start(t, pair, "-P", "-v", fmt.Sprintf("--bind=%d", other.Process.Pid))
		l.Err.want("fini: pausing")
		_, _ = other.Process.Kill(), other.Wait()
		l.mustEnd(0)

		b := launch(t, pair, "-P", "-v")
		b.Err.want("fini: pausing")
		_ = syscall.Kill(b.launcher, syscall.SIGKILL)
		b.mustVanish(0)
	})
	t.Run("reaps", func(t *testing.T) {
		needPidNamespace(t)
		l := start(t, pid1, "-P", "-v", "-w")
		l.Err.want("fini: pausing")
		// Whoever enters the namespace leaves its orphans to fini.
		l.inside("sleep 0 &")
		l.Err.want("fini: reaped zombie")
		l.signal(syscall.SIGTERM)
		l.mustEnd(0)
	})
}
