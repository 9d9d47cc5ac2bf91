package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// startInCgroup starts fini in a place, and all of it in a cgroup.
func startInCgroup(t testing.TB, p place, args ...string) (*cgroup, *life) {
	t.Helper()
	h := newCgroup(t)
	t.Cleanup(h.noMore)
	cmd := p.command(args...)
	cmd.Args[0] = cmd.Path
	if p.pid1 {
		cmd.Args[0] = mode("")[0]
	}
	cmd.Args = h.wrap(cmd.Args...)
	cmd.Path = cmd.Args[0]
	return h, startCmd(t, cmd)
}

// mustLeaveNothing asserts fini's status, and that at its end nothing of the cgroup is alive.
func (c *cgroup) mustLeaveNothing(t testing.TB, l *life, status int) {
	t.Helper()
	l.mustEnd(status)
	if names := c.names(); len(names) > 0 {
		t.Errorf("survivors: %v", names)
	}
}

// A snake is never the same process for long: each forks the next and ends. There is no moment at
// which a signal to a pid that was read in /proc is sure to find it.
func TestSnakes(t *testing.T) {
	serial(t, "on a busy machine their zombies are as many as there can be processes")
	kinds := []struct {
		name  string
		more  int // snakes beside the first
		first string
	}{
		{"one", 0, ""},
		{"one that ignores TERM", 0, "ignore 15"},
		{"ten", 9, ""},
		{"ten that ignore TERM", 9, "ignore 15"},
	}
	if full() { // they take all of a small machine
		kinds[2].name, kinds[2].more, kinds[3].name, kinds[3].more = "fifty", 49, "fifty that ignore TERM", 49
	}
	program := func(more int, first string) []string {
		return mode("script", fmt.Sprintf(`lay: fork snake
			loop %d lay
			sleep 50
			say laid
			exit 3
			snake: setsid
			%s
			coil: fork next
			exit 0
			next: setsid
			goto coil`, more, first))
	}
	t.Run("without fini", func(t *testing.T) {
		h := newCgroup(t)
		t.Cleanup(h.noMore)
		argv := h.wrap(program(0, "ignore 15")...)
		if err := exec.Command(argv[0], argv[1:]...).Run(); shellStatusOf(err) != 3 {
			t.Fatal(err)
		}
		// It lives, and under other pids all the time.
		seen := map[int]bool{}
		until(t, "the snake has had ten pids", func() bool {
			for _, pid := range h.alive() {
				seen[pid] = true
			}
			return len(seen) >= 10
		})
	})
	inPlaces(t, func(t *testing.T, p place) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				h, l := startInCgroup(t, p, append([]string{"-q", "--linger=0", "--grace=200ms", "--"}, program(kind.more, kind.first)...)...)
				l.Out.want("laid")
				start := time.Now()
				h.mustLeaveNothing(t, l, 3)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}

// shellStatusOf is the status of a command that was run.
func shellStatusOf(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok {
		return shellStatus(exit.ProcessState)
	}
	return -1
}

// Leftovers of which the kernel's own bookkeeping is unusual. Each says "ready", on which the command
// ends.
func TestUnusualLeftovers(t *testing.T) {
	t.Parallel()
	// script is a command that forks a leftover and waits for its word by the pipe that is its stdin.
	script := func(leftover string) []string { return mode("script", "fork x\nread\nexit 6\nx: "+leftover) }
	beside := func(helper ...string) []string {
		return append([]string{"/bin/sh", "-c", `"$@" & read go; exit 6`, "sh"}, helper...)
	}
	kinds := []struct {
		name    string
		command []string
		stays   bool // it has to be killed
	}{
		{"a subreaper with orphans of its own", script(`setsid
			subreaper
			fork a
			pause
			a: fork b
			exit 0
			b: setsid
			ignore 15
			say ready
			pause`), true},
		{"a subreaper that ends before its orphans", script(`setsid
			subreaper
			fork a
			wait
			exit 0
			a: fork b
			exit 0
			b: setsid
			subreaper
			fork c
			pause
			c: fork d
			exit 0
			d: say ready
			pause`), false},
		{"traced by another leftover", script(`setsid
			fork a
			seize
			say ready
			pause
			a: setsid
			pause`), false},
		{"traced, and the tracer ignores TERM and all that happens", script(`setsid
			ignore 15
			fork a
			seize
			say ready
			pause
			a: pause`), true},
		{"stopped for a tracer that does not look", script(`setsid
			ignore 15
			say ready
			fork a
			pause
			a: traceme
			kill 10
			pause`), true},
		{"stopped for a tracer in the command, which is gone", mode("script", `fork a
			read
			exit 6
			a: traceme
			say ready
			kill 10
			pause`), false},
		{"stopped", script("setsid; fork a; pause; a: ignore 15; say ready; kill 19; pause"), true},
		{"first thread ended", beside(mode("leaderless")...), false},
		{"first thread ended, ignores TERM", beside(mode("leaderless", "stays")...), true},
		{"in vfork", script(`setsid
			fork a
			pause
			a: clone 0x4000 b
			pause
			b: setsid
			ignore 15
			say ready
			pause`), true},
		{"a sister: CLONE_PARENT makes fini its parent", mode("script", `clone 0x8000 a
			read
			exit 6
			a: setsid
			clone 0x8000 b
			clone 0x8000 c
			pause
			b: ignore 15
			say ready
			pause
			c: exit 1`), true},
		{"forked by threads that have ended", beside(mode("threadforks")...), false},
	}
	const grace = 300 * time.Millisecond
	inPlaces(t, func(t *testing.T, p place) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				h, l := startInCgroup(t, p, append([]string{"--linger=0", "--grace=" + grace.String(), "--"}, kind.command...)...)
				l.Out.want("ready")
				if len(h.alive()) < 3 {
					t.Errorf("no leftover is there: %v", h.names())
				}
				start := time.Now()
				write(t, l, "go\n")
				if rest := l.Out.rest(); len(rest) > 0 { // to EOF
					t.Errorf("more output: %q", rest)
				}
				h.mustLeaveNothing(t, l, 6)
				if took := time.Since(start); kind.stays && took < grace {
					t.Errorf("took %v: it was not given its grace of %v", took, grace)
				}
			})
		}
	})
}

// A leftover that somebody outside the tree traces, as a debugger does, ends too: the tracer is not hit.
func TestLeftoverThatIsTracedFromOutside(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		h, l := startInCgroup(t, p, append([]string{"--linger=0", "--grace=200ms", "--"},
			mode("script", "fork a; read; exit 6; a: setsid; ignore 15; say ready; pause")...)...)
		l.Out.want("ready")
		var traced int
		until(t, "the leftover", func() bool {
			for _, pid := range h.alive() {
				if procStatus(pid, "NSpid") != "" && maskHas(procStatus(pid, "SigIgn"), syscall.SIGTERM) &&
					procStatus(pid, "Threads") == "1" {
					traced = pid
				}
			}
			return traced != 0
		})
		tracer := exec.Command(strace, "-qq", "-o", "/dev/null", "-p", fmt.Sprint(traced))
		if err := tracer.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the tracer traces", func() bool { return procStatus(traced, "TracerPid") == fmt.Sprint(tracer.Process.Pid) })
		write(t, l, "go\n")
		h.mustLeaveNothing(t, l, 6)
		if err := tracer.Wait(); err != nil {
			t.Errorf("the tracer: %v", err) // it ends with what it traces
		}
	})
}

// Two things at once: the main child ends, and something else happens around the same microsecond.
// The status is that of one or the other, and a leftover never lives on.
func TestTheEndAndSomethingElseAtOnce(t *testing.T) {
	t.Parallel()
	rounds := quickOrFull(5, 25)
	command := []string{"--", "/bin/sh", "-c", "sleep 1000 & echo ready; read go; exit 5"}
	kinds := []struct {
		name  string
		flags []string
		legal []int
		else_ func(l *life) // beside the line by which the command ends
		quiet bool          // that line is not sent
	}{
		{"a signal", nil, []int{5, 143}, func(l *life) { _ = l.cmd.Process.Signal(unix.SIGTERM) }, false},
		{"two signals", nil, []int{5, 143, 130}, func(l *life) {
			_ = l.cmd.Process.Signal(unix.SIGTERM)
			_ = l.cmd.Process.Signal(unix.SIGINT)
		}, false},
		{"the end of stdin", []string{"-i", "--grace=1ms"}, []int{5, 143, 137}, func(l *life) { _ = l.Stdin.Close() }, false},
		{"the end of stdin, which ends it", []string{"-i", "--grace=0"}, []int{5, 143, 137}, func(l *life) { _ = l.Stdin.Close() }, true},
		{"--kill-after", []string{"-k", "1ms"}, []int{5, 129, 137}, func(l *life) { _ = l.cmd.Process.Signal(unix.SIGHUP) }, false},
		{"--timeout", []string{"--timeout=25ms"}, []int{5, 124}, nil, false},
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				seen := map[int]int{}
				for range rounds {
					started := time.Now()
					l := start(t, p, append(append([]string{"-q", "--linger=0"}, kind.flags...), command...)...)
					if kind.else_ == nil {
						// The time is up from fini's start on, so the line is due at about that.
						time.Sleep(time.Until(started.Add(25*time.Millisecond + time.Duration(rand.IntN(8000))*time.Microsecond)))
					} else {
						l.Out.want("ready")
					}
					gate, done := make(chan struct{}), make(chan struct{})
					jitter := time.Duration(rand.IntN(600)) * time.Microsecond
					go func() {
						defer close(done)
						<-gate
						spin(jitter)
						if kind.else_ != nil {
							kind.else_(l)
						}
					}()
					close(gate)
					if !kind.quiet {
						spin(300 * time.Microsecond)
						_, _ = l.Stdin.Write([]byte("go\n"))
					}
					<-done
					status := l.status()
					seen[status]++
					l.mustEnd(status)
					legal := false
					for _, s := range kind.legal {
						legal = legal || s == status
					}
					if !legal {
						t.Errorf("status %d, want one of %v; stderr: %s", status, kind.legal, l.Err.text())
					}
					if out := l.Out.whole(); out != "ready\n" && !(kind.else_ == nil && out == "") {
						t.Errorf("output %q", out)
					}
				}
				t.Logf("statuses: %v", seen)
			})
		}
	})
}

// spin passes a time that is too short for a sleep.
func spin(long time.Duration) {
	for end := time.Now().Add(long); time.Now().Before(end); {
	}
}

// In a PID namespace that has only a hundred pids to give, each is given out again within a
// fraction of a second. Bystanders that come and go get the pids of leftovers that fini has seen,
// and are not hit.
func TestRecycledPids(t *testing.T) {
	t.Parallel()
	needPidNamespace(t)
	need.Root(t)
	need.That(t, pidMaxIsTheNamespaces(), "a kernel.pid_max for each PID namespace (Linux 6.14)")
	const limit = "400"
	before, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	for long := drawnFor(t, 2*time.Second); ; long *= 4 {
		runs, bystanders := reusePids(t, limit, long)
		t.Logf("%d runs of fini beside %d bystanders, with pids below %s", runs, bystanders, limit)
		if t.Failed() || runs >= 3 && bystanders >= 500 {
			break
		}
		if long > 4*patience {
			t.Fatal("too few to mean something")
		}
	}
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); string(after) != string(before) {
		t.Errorf("the test's own pid_max is %s, was %s", after, before)
	}
}

// reusePids does so for some time, and returns how many runs of fini and how many bystanders there were.
func reusePids(t *testing.T, limit string, long time.Duration) (runs, bystanders int) {
	t.Helper()
	argv := append([]string{mode("")[0], "@pid1"}, mode("pidReuse", limit, long.String(), finiPath)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	asPID1(cmd)
	l := startCmd(t, cmd)
	ended := make(chan struct{})
	go func() { l.wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(long + patience):
		t.Fatalf("has not ended; so far: %s %s", l.Out.text(), l.Err.text())
	}
	said := l.Out.whole()
	l.mustEnd(0)
	for line := range strings.Lines(said) {
		_, _ = fmt.Sscanf(line, "runs %d", &runs)
		_, _ = fmt.Sscanf(line, "bystanders %d", &bystanders)
		if strings.HasPrefix(line, "hit:") || strings.HasPrefix(line, "status") {
			t.Errorf("%s", line)
		}
	}
	return runs, bystanders
}

// pidMaxIsTheNamespaces reports whether to write kernel.pid_max in a namespace spares the others.
func pidMaxIsTheNamespaces() bool {
	var name unix.Utsname
	_ = unix.Uname(&name)
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
}

// A signal that comes while fini starts is not lost: it waits until there is a command, and is
// sent on to that, or it ends fini before fini's first instruction. All of them end the command.
func TestSignalWhileFiniStarts(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	for _, p := range []place{pair, alone} {
		for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGALRM, unix.SIGTERM, 40} {
			t.Run(fmt.Sprint(p.name, " ", sig), func(t *testing.T) {
				t.Parallel()
				for range quickOrFull(8, 20) {
					l := start(t, p, "--", "sleep", "1000")
					time.Sleep(rand.N(3 * time.Millisecond))
					l.signal(sig)
					l.mustEnd(128 + int(sig))
				}
			})
		}
	}
}
