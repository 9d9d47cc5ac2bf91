package cost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A clean command adds no wait: what reads its end reads fini's end at most 20 ms later, in most of eleven rounds. Without
// fini it reads it in turn, on the same machine.
func TestCleanCommandAddsNoWait(t *testing.T) {
	rig.Serial(t, "it measures milliseconds")
	took := func(t *testing.T, cmd *exec.Cmd) time.Duration {
		status, stdout, _ := rig.Ask(t, cmd)
		after := time.Now().UnixNano()
		before, err := strconv.ParseInt(strings.TrimSpace(stdout), 10, 64)
		if err != nil || status != 0 {
			t.Fatalf("status %d, %q: %v", status, stdout, err)
		}
		return time.Duration(after - before)
	}
	measure := func(t *testing.T, p rig.Place, prefix ...string) {
		rest.Typically(t, "no wait", func() (bool, string) {
			const rounds = 11
			var with, without []time.Duration
			for range rounds {
				with = append(with, took(t, p.Executed(prefix, "--", "date", "+%s%N")))
				without = append(without, took(t, exec.Command("date", "+%s%N")))
			}
			slices.Sort(with)
			slices.Sort(without)
			return with[rounds/2]-without[rounds/2] <= 20*time.Millisecond, fmt.Sprintf("%v, without fini %v", with[rounds/2], without[rounds/2])
		})
	}
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) { measure(t, p) })
	// The kernel would keep no status of the inner fini, for which the outer one would wait. dash ignores no SIGCHLD.
	t.Run("SIGCHLD is ignored", func(t *testing.T) {
		out, err := exec.Command("env", "--ignore-signal=CHLD", "true").CombinedOutput()
		need.That(t, err == nil, "env of GNU coreutils, which ignores signals: "+string(out))
		measure(t, rig.Pair, "env", "--ignore-signal=CHLD")
	})
}

// What is not noise may not grow unnoticed. `make bench` measures the rest.

// quiet is a command that does nothing until its standard input ends, and then succeeds.
var quiet = []string{"--", "/bin/sh", "-c", "echo ready; exec cat"}

func TestGuardBinarySize(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limit was measured")
	info, err := os.Stat(rig.Fini)
	rig.NoError(t, err)
	t.Logf("%d bytes", info.Size())
	const most = 4_720_000
	if info.Size() > most {
		t.Errorf("fini has %d bytes, more than %d", info.Size(), most)
	}
}

// idle starts fini with a command that does nothing, and waits until it does nothing either.
// The pids are those of all its processes.
func idle(t *testing.T, p rig.Place) (l *rig.Life, pids []int) {
	t.Helper()
	l = rig.Start(t, p, quiet...)
	l.Out.Want("ready")
	l.Caught()
	pids = rest.Finis(l)
	rest.Settled(t, pids)
	return l, pids
}

func TestGuardThreadsAndIdleness(t *testing.T) {
	rig.Serial(t, "it counts switches of an idle fini")
	// Each thread is a task that a pids limit has to allow for. An outer fini has one.
	most := map[rig.Place]int{rig.Alone: 6, rig.Pair: 7, rig.PID1: 6}
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l, pids := idle(t, p)

		threads := 0
		for _, pid := range pids {
			n, err := strconv.Atoi(procfs.Status(pid, "Threads"))
			rig.NoError(t, err)
			threads += n
		}
		t.Logf("%d threads", threads)
		if threads > most[p] {
			t.Errorf("%d threads, want at most %d", threads, most[p])
		}

		// What would wake it later than it is looked at below.
		for _, pid := range pids {
			if armed := alarms(t, pid); armed != nil {
				t.Errorf("idle, and an alarm rings in %v", armed)
			}
		}

		rest.MustSleep(t, pids)
		_ = l.Stdin.Close()
		l.MustEnd(0)
	})
}

// With --orphan-timeout fini wakes up twice in that time.
func TestGuardIdlenessWithOrphanTimeout(t *testing.T) {
	rig.Serial(t, "it counts switches of an idle fini")
	const timeout = 600 * time.Millisecond
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--orphan-timeout="+timeout.String(), "--", "/bin/sh", "-c", "echo ready; exec cat")
		l.Out.Want("ready")
		l.Caught()
		rest.MustWake(t, l.Worker(), timeout/2)
		_ = l.Stdin.Close()
		l.MustEnd(0)
	})
}

// alarms are the times after which the timers of a process ring. See timerfd_create(2).
func alarms(t testing.TB, pid int) (armed []time.Duration) {
	t.Helper()
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, info := range infos {
		text, _ := os.ReadFile(info)
		_, value, _ := strings.Cut(string(text), "it_value: (") // of a timer alone
		var seconds, nanoseconds int64
		if n, _ := fmt.Sscanf(value, "%d, %d", &seconds, &nanoseconds); n == 2 && seconds+nanoseconds > 0 {
			armed = append(armed, time.Duration(seconds)*time.Second+time.Duration(nanoseconds))
		}
	}
	return armed
}

// Each duration of the command line is that of an alarm of the kernel's, however busy the machine is
// when it rings.
func TestAlarmsAreThoseOfTheFlags(t *testing.T) {
	t.Parallel()
	const stubborn = `trap "" TERM HUP; sh -c 'echo leftover; exec sleep 1000' & `
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, tt := range []struct {
			flags  string
			script string
			begin  func(l *rig.Life) // what the alarm is set at
			least  time.Duration     // the waits of a stop look at the clock 64 times
		}{
			{"--timeout=900", "echo leftover; exec sleep 1000", nil, 800 * time.Second},
			{"--kill-after=900", stubborn + "wait; wait", func(l *rig.Life) { l.Signal(syscall.SIGTERM) }, time.Second},
			{"-i --grace=900", stubborn + "wait; wait", func(l *rig.Life) { _ = l.Stdin.Close() }, time.Second},
			{"--linger=900", stubborn + "read line", func(l *rig.Life) { _ = l.Stdin.Close() }, time.Second},
		} {
			h, l := rig.StartInCgroup(t, p, append(strings.Fields(tt.flags), "--", "/bin/sh", "-c", tt.script)...)
			l.Out.Want("leftover")
			l.Caught()
			if tt.begin != nil {
				tt.begin(l)
			}
			var armed []time.Duration
			if !rig.Await(rig.Enough, func() bool {
				armed = alarms(t, l.Worker())
				return len(armed) == 1 && armed[0] > tt.least && armed[0] <= 900*time.Second
			}) {
				t.Errorf("%s: alarms ring in %v; stderr: %s", tt.flags, armed, l.Err.Text())
			}
			h.Kill()
			_ = l.Status()
		}
	})
}

// What a start takes its time for is page faults, and most of them are memory that stays.
func TestGuardMemory(t *testing.T) {
	rig.Long(t)
	rig.Serial(t, "the runtime takes more memory where it has to wait for a processor")
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limits were measured")
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		// How much one has depends on what it had to wait for: it grows with each thread that had something to do.
		rest.Typically(t, "small enough", func() (ok bool, found string) {
			l, pids := idle(t, p)
			ok = true
			for i, pid := range pids {
				mostMemory, mostFaults := 1200, 440 // kB, of each process with a runtime: 1.3 times what was measured
				if p == rig.Pair && i == 0 {
					mostMemory, mostFaults = 40, 40 // of an outer one
				}
				memory, faults := ownMemory(t, pid), 0
				if !p.PID1 { // there it counts what the process was before
					faults = procfs.StatOf(pid).Number(10) // minflt
				}
				found += fmt.Sprintf("%d kB of at most %d and %d page faults of at most %d; ", memory, mostMemory, faults, mostFaults)
				ok = ok && memory <= mostMemory && faults <= mostFaults
			}
			_ = l.Stdin.Close()
			l.MustEnd(0)
			return ok, found
		})
	})
}

// ownMemory is the memory of a process's own, in kB: not what is private and dirty, which counts the pages of a file that
// was just written.
func ownMemory(t *testing.T, pid int) (kB int) {
	t.Helper()
	_, line, _ := strings.Cut(rig.ReadFile(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid)), "\nAnonymous:")
	kB, err := strconv.Atoi(strings.Fields(line)[0])
	rig.NoError(t, err)
	return kB
}

// notCounted are the calls whose number is up to the scheduler, or to the signals that there are.
const notCounted = "futex,nanosleep,sched_yield,epoll_pwait,tgkill,getpid,madvise,rt_sigaction,rt_sigprocmask,rt_sigreturn,restart_syscall"

// The limits are 1.3 times what was measured, without the calls of which the number varies.
func TestGuardSyscalls(t *testing.T) {
	rig.Long(t)
	rig.Serial(t, "how many calls the runtime makes depends on the load")
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limits were measured")
	strace := need.Program(t, "strace")
	for p, most := range map[rig.Place]int{rig.Alone: 280, rig.Pair: 370} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			trace := filepath.Join(t.TempDir(), "calls")
			rig.StartCmd(t, p.Executed([]string{strace, "-f", "-e", "trace=!" + notCounted, "-o", trace}, "--", "/bin/true")).MustEnd(0)
			text := rig.ReadFile(t, trace)
			// A line is the pid and the call, or how a call ends whose line another thread has interrupted.
			calls := len(regexp.MustCompile(`(?m)^\d+ +\w+\(`).FindAllString(text, -1))
			t.Logf("%d system calls", calls)
			if calls < 20 || calls > most {
				t.Errorf("%d system calls, want at most %d\n%s", calls, most, text)
			}
		})
	}
}
