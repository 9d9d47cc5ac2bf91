package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// What is not noise may not grow unnoticed. `make bench` measures the rest.

// quiet is a command that does nothing until its standard input ends, and then succeeds.
var quiet = []string{"--", "/bin/sh", "-c", "echo ready; exec cat"}

// finisOf are both of a pair, or the one.
func finisOf(l *life) []int {
	if worker := l.worker(); worker != l.pid() {
		return []int{l.pid(), worker}
	}
	return []int{l.pid()}
}

// switches adds up how often the threads of processes were put on a processor.
func switches(t testing.TB, pids []int) (sum int) {
	t.Helper()
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("process %d has no threads: %v", pid, err)
		}
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for line := range strings.Lines(string(text)) {
				if _, count, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok { // nonvoluntary too
					n, err := strconv.Atoi(strings.TrimSpace(count))
					if err != nil {
						t.Fatal(err)
					}
					sum += n
				}
			}
		}
	}
	return sum
}

// settled waits until processes have nothing left to do.
func settled(t testing.TB, pids []int) {
	t.Helper()
	last, since := -1, time.Now()
	until(t, fmt.Sprintf("processes %v are at rest", pids), func() bool {
		if now := switches(t, pids); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

func TestGuardBinarySize(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limit was measured")
	info, err := os.Stat(finiPath)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	const most = 4_620_000
	if info.Size() > most {
		t.Errorf("fini has %d bytes, more than %d", info.Size(), most)
	}
}

// idle starts fini with a command that does nothing, and waits until it does nothing either.
// The pids are those of all its processes.
func idle(t *testing.T, p place) (l *life, pids []int) {
	t.Helper()
	l = start(t, p, quiet...)
	l.Out.want("ready")
	l.caught()
	pids = finisOf(l)
	settled(t, pids)
	return l, pids
}

func TestGuardThreadsAndIdleness(t *testing.T) {
	serial(t, "it counts switches of an idle fini")
	// Each thread is a task that a pids limit has to allow for. How many the runtime makes before
	// all of its own are idle differs by one or two from run to run.
	most := map[place]int{alone: 12, pair: 13, pid1: 12, isolated: 24}
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		l, pids := idle(t, p)

		threads := 0
		for _, pid := range pids {
			n, err := strconv.Atoi(procStatus(pid, "Threads"))
			if err != nil {
				t.Fatal(err)
			}
			threads += n
		}
		t.Logf("%d threads", threads)
		if threads > most[p] {
			t.Errorf("%d threads, want at most %d", threads, most[p])
		}

		// What would wake it later than in a window below.
		for _, pid := range pids {
			if armed := alarms(t, pid); armed != nil {
				t.Errorf("idle, and an alarm rings in %v", armed)
			}
		}

		// Whatever wakes now and then does so in each of these windows. What the machine does
		// to a process once, such as stopping it to look at it, is not fini's.
		var woken []int
		if !poll(patience, func() bool {
			before := switches(t, pids)
			time.Sleep(1100 * time.Millisecond)
			woken = append(woken, switches(t, pids)-before)
			return woken[len(woken)-1] == 0
		}) {
			t.Errorf("idle, and put on a processor %v times in 1.1 seconds each", woken)
		}
		_ = l.Stdin.Close()
		l.mustEnd(0)
	})
}

// alarms are the times after which the timers of a process ring. See timerfd_create(2).
func alarms(t testing.TB, pid int) (armed []time.Duration) {
	t.Helper()
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if text, _ := os.Readlink(link); text != "anon_inode:[timerfd]" {
			continue
		}
		info, _ := os.ReadFile(strings.Replace(link, "/fd/", "/fdinfo/", 1))
		_, value, _ := strings.Cut(string(info), "it_value: (")
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
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		for _, tt := range []struct {
			flags  string
			script string
			begin  func(l *life) // what the alarm is set at
		}{
			{"--timeout=900", "echo leftover; exec sleep 1000", nil},
			{"--kill-after=900", stubborn + "wait; wait", func(l *life) { l.signal(syscall.SIGTERM) }},
			{"-i --grace=900", stubborn + "wait; wait", func(l *life) { _ = l.Stdin.Close() }},
			{"--linger=900", stubborn + "read line", func(l *life) { _ = l.Stdin.Close() }},
		} {
			args := slices.Concat(strings.Fields(tt.flags), []string{"--", "/bin/sh", "-c", tt.script})
			h := newCgroup(t)
			l := startCmd(t, h.around(p, nil, args...))
			l.Out.want("leftover")
			l.caught()
			if tt.begin != nil {
				tt.begin(l)
			}
			var armed []time.Duration
			if !poll(patience, func() bool {
				armed = alarms(t, l.worker())
				return len(armed) == 1 && armed[0] > 800*time.Second && armed[0] <= 900*time.Second
			}) {
				t.Errorf("%s: alarms ring in %v; stderr: %s", tt.flags, armed, l.Err.text())
			}
			h.kill()
			_ = l.status()
		}
	})
}

// What a start takes its time for is page faults, and most of them are memory that stays.
func TestGuardMemory(t *testing.T) {
	serial(t, "the runtime takes more memory where it has to wait for a processor")
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limits were measured")
	const (
		// 1.4 times what was measured: it grows with each thread that had something to do.
		mostMemory = 900 // kB, of each process with a runtime
		mostFaults = 340
		mostAsleep = 40 // of either, of an outer one
	)
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		var tooMuch []string
		for range 5 { // the least of some lives: how much one has depends on what it had to wait for
			if tooMuch = tooLargeFinis(t, p, mostMemory, mostFaults, mostAsleep); tooMuch == nil {
				return
			}
		}
		t.Error(tooMuch)
	})
}

// tooLargeFinis lists those of one life that have more kB, or page faults, than they may.
func tooLargeFinis(t *testing.T, p place, mostMemory, mostFaults, mostAsleep int) (tooMuch []string) {
	t.Helper()
	l, pids := idle(t, p)
	for i, pid := range pids {
		mostMemory, mostFaults := mostMemory, mostFaults
		if p == pair && i == 0 {
			mostMemory, mostFaults = mostAsleep, mostAsleep
		}
		memory := ownMemory(t, pid)
		faults := 0
		if !p.pid1 { // there it counts what the process was before
			faults = statOf(pid).number(10) // minflt
		}
		t.Logf("%d kB, %d page faults", memory, faults)
		if memory > mostMemory || faults > mostFaults {
			tooMuch = append(tooMuch, fmt.Sprintf("%d kB and %d page faults, want at most %d and %d", memory, faults, mostMemory, mostFaults))
		}
	}
	_ = l.Stdin.Close()
	l.mustEnd(0)
	return tooMuch
}

// ownMemory is the memory of a process's own, in kB: not what is private and dirty, which counts the pages of a file that
// was just written.
func ownMemory(t *testing.T, pid int) (kB int) {
	t.Helper()
	_, line, _ := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid)), "\nAnonymous:")
	kB, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// notCounted are the calls whose number is up to the scheduler, or to the signals that there are.
var notCounted = map[string]bool{
	"futex": true, "nanosleep": true, "sched_yield": true, "epoll_pwait": true, "tgkill": true, "getpid": true, "madvise": true,
	"rt_sigaction": true, "rt_sigprocmask": true, "rt_sigreturn": true, "restart_syscall": true,
}

// The limits are 1.3 times what was measured, without the calls of which the number varies.
func TestGuardSyscalls(t *testing.T) {
	serial(t, "how many calls the runtime makes depends on the load")
	need.That(t, runtime.GOARCH == "amd64", "the architecture for which the limits were measured")
	strace := need.Program(t, "strace")
	for name, c := range map[string]struct {
		flags []string
		most  int
	}{
		"no shield": {[]string{"--no-shield"}, 280},
		"pair":      {nil, 370},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := filepath.Join(t.TempDir(), "calls")
			l := startCmd(t, exec.Command(strace, append(append(
				[]string{"-f", "-c", "-o", table, finiPath}, c.flags...), "--", "/bin/true")...))
			l.mustEnd(0)
			calls := countCalls(t, table)
			t.Logf("%d system calls", calls)
			if calls > c.most {
				text, _ := os.ReadFile(table)
				t.Errorf("%d system calls, want at most %d\n%s", calls, c.most, text)
			}
		})
	}
}

// countCalls adds up the calls of a table that strace -c made.
func countCalls(t *testing.T, table string) (sum int) {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		// % time, seconds, usecs/call, calls, errors if there are any, and the name.
		words := strings.Fields(line)
		if len(words) < 5 || notCounted[words[len(words)-1]] || words[len(words)-1] == "total" {
			continue
		}
		if calls, err := strconv.Atoi(words[3]); err == nil {
			sum += calls
		}
	}
	if sum < 20 {
		t.Fatalf("strace counted %d calls:\n%s", sum, text)
	}
	return sum
}

// storm is a shell that makes orphans as fast as it can, each by a child that ends first, when
// it is told to.
const storm = `echo ready; read go; i=0; while [ $i -lt 3000 ]; do (: &); i=$((i+1)); done; echo made; read end`

// Orphans share wake-ups: fini makes a look, rests and looks again, while tini wakes for each.
func TestGuardSwitchesPerOrphan(t *testing.T) {
	serial(t, "it compares how often two processes are put on a processor")
	tini := need.Program(t, "tini-static")
	// It is 0.2 to 0.4, and more on a busy machine; the obvious way, a SIGCHLD for each, is at 7.
	const orphans, most = 3000, 1.0
	reap := func(t *testing.T, cmd *exec.Cmd) float64 {
		l := startCmd(t, cmd)
		l.Out.want("ready")
		pids := []int{l.pid()}
		settled(t, pids)
		before := switches(t, pids)
		write(t, l, "go\n")
		l.Out.want("made")
		until(t, "all orphans are reaped", func() bool { return len(childrenOf(t, l.pid())) == 1 })
		after := switches(t, pids)
		write(t, l, "end\n")
		l.mustEnd(0)
		return float64(after-before) / orphans
	}
	// A machine that is busy lets orphans gather before tini runs, and so share its wake-ups too.
	var ratios []float64
	for end := time.Now().Add(2 * patience); time.Now().Before(end); {
		fini := reap(t, alone.command("--", "/bin/sh", "-c", storm))
		other := reap(t, exec.Command(tini, "-s", "--", "/bin/sh", "-c", storm))
		ratios = append(ratios, fini/other)
		t.Logf("context switches for each orphan: fini %.2f, tini-static %.2f, ratio %.2f", fini, other, fini/other)
		if fini/other <= most {
			return
		}
	}
	t.Errorf("fini switches %.2f times as often for each orphan as tini-static, want at most %.1f", ratios, most)
}
