package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// A process that forks and exits, whose child does the same, and so on, is seen by no look that is too slow for it. It
// holds the output, so --orphans=pipes may not end before its last child: a look proves nothing while children come.
func TestHopsAreNotMissed(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		if p.pid1 || p.isolated {
			return // the kernel ends what is missed
		}
		// The others make a look last. They have closed what is to reach its end: the streams and the witness.
		const program = `m: fork d
			loop 150 m
			fork b
			exit 5
			d: close 1
			close 2
			close 3
			setsid
			pause
			b: setsid
			h: fork c
			exit 0
			c: sleep 1
			loop 60 h
			pause`
		h, l := startInCgroup(t, p, append([]string{"--orphans=pipes", "--grace=2s", "--"}, mode("script", program)...)...)
		defer h.kill()
		l.mustEnd(5)
	})
}

// Under --orphans=wait nothing wakes fini but what happens.
func TestWaitsAsleep(t *testing.T) {
	serial(t, "it counts switches of an idle fini")
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		l := start(t, p, "--orphans=wait", "--", "/bin/sh", "-c", `exec 7<&0; (read end <&7) & echo ready; exit 5`)
		l.Out.want("ready")
		pids := finisOf(l)
		var woken []int
		if !poll(patience/10, func() bool {
			before := switches(t, pids)
			time.Sleep(2200 * time.Millisecond) // it was woken once a second
			woken = append(woken, switches(t, pids)-before)
			return woken[len(woken)-1] == 0
		}) {
			t.Errorf("put on a processor %v times in 2.2 seconds each", woken)
		}
		write(t, l, "end\n")
		l.mustEnd(5)
	})
}

// Orphans that come and go all the time cost little, also where each of them might have a name that is left alone.
func TestWaitsAmongOrphans(t *testing.T) {
	t.Parallel()
	for _, p := range aloneOrPair {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			// Those that stay make each look cost something.
			const program = `fork a
				m: fork e
				loop 150 m
				read
				exit 5
				a: setsid
				say ready
				b: fork c
				wait
				sleep 10
				loop 200 b
				say over
				read
				exit 0
				c: fork d
				exit 0
				d: sleep 5
				exit 0
				e: sleep 9000
				exit 0`
			l := start(t, p, append([]string{"--orphans=wait", "--allow-orphan=nobody", "--"}, mode("script", program)...)...)
			l.Out.want("ready")
			worker := l.worker()
			write(t, l, "a")
			began, before := time.Now(), processorTime(worker)
			l.Out.want("over")
			took, used := time.Since(began), processorTime(worker)-before
			t.Logf("%v in %v", used, took)
			if used > took/5 {
				t.Errorf("it took %v of a processor in %v", used, took)
			}
			write(t, l, "b")
			l.mustEnd(5)
		})
	}
}

// processorTime is what a process has used.
func processorTime(pid int) time.Duration {
	stat := statOf(pid)
	return time.Duration(stat.number(14)+stat.number(15)) * 10 * time.Millisecond
}

// Without /proc no process has a name, so none is left alone. It is said once.
func TestAllowOrphanWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	argv := []string{need.Program(t, "unshare"), "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@"`,
		finiPath, "--linger=0", "--grace=10s", "--allow-orphan=sleep", "--", "/bin/sh", "-c",
		`setsid sh -c 'echo ready; exec sleep 1000' & setsid sh -c 'echo ready; exec sleep 1000' & read go; exit 3`}
	l := startCmd(t, exec.Command(argv[0], argv[1:]...))
	l.Out.want("ready")
	l.Out.want("ready")
	write(t, l, "go\n")
	l.mustEnd(3)
	const want = "fini: --allow-orphan leaves no process alone: without /proc nobody can tell its name"
	if text := l.Err.whole(); strings.Count(text, want) != 1 {
		t.Errorf("it says %q, want once %q", text, want)
	}
}

// A leftover that is stopped gets SIGCONT after SIGTERM, so that it can act on that, even if its first thread has exited.
func TestStoppedWithoutFirstThread(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		l := start(t, p, append([]string{"--linger=0", "--grace=3s", "--", "/bin/sh", "-c", `setsid "$@" & read end; exit 5`, "sh"},
			mode("leaderless")...)...)
		l.Out.want("ready")
		var pid int
		until(t, "the leftover is there", func() bool {
			for _, pid = range childrenOf(t, childrenOf(t, l.worker())[0]) {
				if strings.HasPrefix(procStatus(pid, "State"), "Z") {
					return true
				}
			}
			return false
		})
		mustKill(t, pid, syscall.SIGSTOP)
		until(t, "all its threads are stopped", func() bool { return threadsAre(t, pid, 'T') })
		write(t, l, "end\n")
		l.mustEnd(5)
		if text := l.Err.whole(); strings.Contains(text, "killing") {
			t.Errorf("it says %q", text)
		}
	})
}

// threadsAre reports whether each thread of a process but the first is in this state.
func threadsAre(t *testing.T, pid int, state byte) bool {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, task := range tasks {
		if filepath.Base(task) != strconv.Itoa(pid) && readStat(task+"/stat").state() != state {
			return false
		}
	}
	return true
}
