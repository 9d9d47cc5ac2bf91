package leftovers

import (
	"fmt"
	"os"
	"path/filepath"
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

// A process that forks and exits, whose child does the same, and so on, is seen by no look that is too slow for it. It
// holds the output, so --orphans=pipes may not end before its last child: a look proves nothing while children come.
func TestHopsAreNotMissed(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) { // for PID 1 the kernel ends what is missed
		// The others make a look last. They have closed what is to reach its end: the streams and the witness.
		const program = `m: fork d; loop 150 m; fork b; exit 5
			d: close 3; close 1; close 2; setsid; pause
			b: setsid
			h: fork c; exit 0
			c: sleep 1; loop 60 h; pause`
		h, l := rig.StartInCgroup(t, p, append([]string{"--orphans=pipes", "--grace=2s", "--"}, rig.Mode("script", program)...)...)
		defer h.Kill()
		l.MustEnd(5)
	}
}

// What a process below another subreaper leaves does not come to fini. There too each process of a chain is gone before
// fini can ask it what it holds, until the last one stays.
func TestHopsBelowAnotherSubreaper(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		// As above, the others make a look last.
		const program = `m: fork d; loop 150 m; fork r; read; exit 5
			d: close 3; close 1; close 2; setsid; pause
			r: subreaper; ignore 17; setsid; fork b; close 3; close 1; close 2; pause
			b: setsid; say ready
			h: fork c; exit 0
			c: loop 400 h; pause`
		h, l := rig.StartInCgroup(t, p, append([]string{"--orphans=pipes", "--linger=10ms", "--grace=2s", "--"}, rig.Mode("script", program)...)...)
		defer h.Kill()
		l.Out.Want("ready")
		rig.Write(t, l, "go")
		l.MustHaveStatus(5)
		rig.MustRecord(t, "the reader has", l.Out.Rest()) // and EOF
	}
}

// An orphan that ends while fini reaps others is reaped too: its SIGCHLD comes between the last wait4 and the poll, which
// strace delays.
func TestReapedThoughItEndedBeforeThePoll(t *testing.T) {
	t.Parallel()
	l := rig.StartCmd(t, rig.Alone.Executed([]string{need.Program(t, "strace"), "-qq", "-o", os.DevNull, "-e", "inject=wait4:delay_exit=500000"},
		"--", "/bin/sh", "-c", `(sleep 0.1 & echo "orphan $!"); read end; exit 5`))
	orphan := l.Out.WantPID("orphan ")
	rig.Until(t, "its zombie is gone", func() bool { return procfs.StatOf(orphan).State() == 0 })
	rig.Write(t, l, "end\n")
	l.MustEnd(5)
}

// Under --orphans=wait nothing wakes fini but what happens.
func TestWaitsAsleep(t *testing.T) {
	rig.Serial(t, "it counts switches of an idle fini")
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, "--orphans=wait", "--", "/bin/sh", "-c", `exec 7<&0; (read end <&7) & echo ready; exit 5`)
		l.Out.Want("ready")
		pids := rest.Finis(l)
		rest.Settled(t, pids)
		rest.MustSleep(t, pids)
		rig.Write(t, l, "end\n")
		l.MustEnd(5)
	})
}

// Orphans that come and go all the time cost little, also where each of them might have a name that is left alone.
func TestWaitsAmongOrphans(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			// Those that stay make each look cost something.
			const program = `fork a
				m: fork e; loop 150 m; read; exit 5
				a: setsid; say ready
				b: fork c; wait; sleep 10; loop 200 b; say over; read; exit 0
				c: fork d; exit 0
				d: sleep 5; exit 0
				e: sleep 9000; exit 0`
			l := rig.Start(t, p, append([]string{"--orphans=wait", "--allow-orphan=nobody", "--"}, rig.Mode("script", program)...)...)
			l.Out.Want("ready")
			worker := l.Worker()
			rig.Write(t, l, "a")
			began, before := time.Now(), procfs.CPU(worker)
			l.Out.Want("over")
			took, used := time.Since(began), procfs.CPU(worker)-before
			t.Logf("%v in %v", used, took)
			if used > took/5 {
				t.Errorf("it took %v of a processor in %v", used, took)
			}
			rig.Write(t, l, "b")
			l.MustEnd(5)
		})
	}
}

// A leftover that is stopped gets SIGCONT after SIGTERM, so that it can act on that, even if its first thread has exited.
func TestStoppedWithoutFirstThread(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, append([]string{"--linger=0", "--orphans-grace=1h", "--", "/bin/sh", "-c", `setsid "$@" & read end; exit 5`, "sh"},
			rig.Mode("leaderless")...)...)
		l.Out.Want("ready")
		var pid int
		rig.Until(t, "the leftover is there", func() bool {
			for _, pid = range procfs.ChildrenOf(t, procfs.ChildrenOf(t, l.Worker())[0]) {
				if strings.HasPrefix(procfs.Status(pid, "State"), "Z") {
					return true
				}
			}
			return false
		})
		rig.MustKill(t, pid, syscall.SIGSTOP)
		rig.Until(t, "all its threads but the first are stopped", func() bool {
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			return len(tasks) > 1 && !slices.ContainsFunc(tasks, func(task string) bool {
				return filepath.Base(task) != strconv.Itoa(pid) && procfs.ReadStat(task+"/stat").State() != 'T'
			})
		})
		rig.Write(t, l, "end\n")
		l.MustEnd(5)
		if text := l.Err.Whole(); strings.Contains(text, "killing") {
			t.Errorf("it says %q", text)
		}
	})
}

// Nobody is told of the end of a process that is never a zombie: --orphans=wait looks for it.
func TestWaitsForOneThatIsNeverAZombie(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, append([]string{"--orphans=wait", "--"}, rig.Mode("autoreap")...)...)
		if line, _ := l.Out.Next(); strings.HasPrefix(line, "kernel: ") {
			need.Kernel(t, false, "CLONE_AUTOREAP ("+line+")")
		}
		rig.MustStay(t, "fini", l.PID())
		_ = l.Stdin.Close()
		l.MustEnd(5)
	})
}

// The outer fini of a pair inherits what its earlier children leave behind, and keeps no zombie of it.
func TestOuterReapsEarlierChildren(t *testing.T) {
	t.Parallel()
	const script = `exec 5<&0; (read go; i=0; while [ $i -lt 20 ]; do (sh -c : &); i=$((i+1)); done; echo made) <&5 & exec "$@" 5<&- </dev/null`
	l := rig.StartCmd(t, rig.CommandOf([]string{"/bin/sh", "-c", script, "sh", rig.Fini, "--grace=1h", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"}))
	l.Out.Want("ready")
	rig.Write(t, l, "go\n")
	l.Out.Want("made")
	rig.Until(t, "the inner fini is the only child", func() bool { return len(procfs.ChildrenOf(t, l.PID())) == 1 })
	l.Signal(15)
	l.MustEnd(128 + 15)
}
