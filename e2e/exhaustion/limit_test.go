package exhaustion

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// noDescriptors takes the limit of descriptors of a process away, as its command may do to it.
func noDescriptors(t *testing.T, pid, limit int) {
	t.Helper()
	rig.Succeed(t, rig.CommandOf([]string{need.Program(t, "prlimit"), fmt.Sprint("--pid=", pid), fmt.Sprint("--nofile=", limit)}))
}

// If the inner fini is killed, the outer one stops the tree of three generations that ignore SIGTERM, although it gets no
// descriptor any more.
func TestHeirWithoutDescriptors(t *testing.T) {
	t.Parallel()
	rig.Long(t)
	for _, tt := range []struct {
		streams, script string
		limit           int
	}{
		{"as they are", `exec "$@"`, 4},
		{"closed", `exec "$@" <&- 2>&-`, 0},
		{"non-blocking", `exec python3 -c 'import os, sys; os.set_blocking(2, False); os.execv(sys.argv[1], sys.argv[1:])' "$@"`, 0},
	} {
		// fini tries one pid after another, which takes a processor some seconds.
		t.Run(tt.streams, func(t *testing.T) { // one by one
			need.Program(t, "python3")
			l := rig.StartCmd(t, rig.Pair.Executed([]string{"/bin/sh", "-c", tt.script, "sh"}, "--grace=300ms", "--linger=0", "--", "/bin/sh", "-c",
				`trap "" TERM; setsid sh -c 'setsid sh -c "sleep 1000; :" & sleep 1000; :' & echo ready; sleep 1000; sleep 1000`))
			l.Out.Want("ready")
			l.Caught()
			inner := l.Worker()
			noDescriptors(t, l.PID(), tt.limit)
			rig.MustKill(t, inner, syscall.SIGKILL)
			l.MustEnd(128 + 9)
			mustNotAbort(t, l.Err.Whole())
		})
	}
}

// Without a limit of descriptors that allows one, poll(2) is refused. Each fini of a pair still hears of signals and of the
// parent's death, and sleeps meanwhile.
func TestNoDescriptorsDuringLife(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"outer", "inner", "both"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			l := rig.Launch(t, rig.Pair, append([]string{"--grace=1h", "--"}, rig.Mode("signals", "15")...)...)
			l.Out.Want("ready")
			inner := l.Inner()
			rig.WaitCaught(t, l.Outer, inner)
			for _, pid := range map[string][]int{"outer": {l.Outer}, "inner": {inner}, "both": {l.Outer, inner}}[who] {
				noDescriptors(t, pid, 0)
			}
			rig.MustKill(t, l.Outer, syscall.SIGUSR1)
			l.Out.Want("signal 10")
			const span = 2 * time.Second
			began, before := time.Now(), procfs.CPU(l.Outer, inner)
			rig.Until(t, "some time to spin in", func() bool { return time.Since(began) > span })
			if took := procfs.CPU(l.Outer, inner) - before; took > span/4 {
				t.Errorf("they took %v of CPU in %v", took, time.Since(began))
			}
			rig.MustKill(t, l.Launcher, syscall.SIGKILL)
			l.Out.Want("signal 15")
			l.MustVanish()
			if text := l.Err.Whole(); strings.Contains(text, "panic") {
				t.Errorf("says %q", text)
			}
		})
	}
}

// A limit of the stack under which true runs is enough for fini, which starts the Go runtime on memory of its own. Where
// the kernel puts the stack's end is a matter of chance.
func TestSmallStack(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(60, 200)
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				cmd := p.Executed([]string{need.Program(t, "bash"), "-c", `ulimit -Ss 16; exec "$0" "$@"`}, "--", "/bin/true")
				cmd.Env = []string{"X=" + strings.Repeat("x", 400)}
				rig.Succeed(t, cmd)
			}
		})
	}
}

// A zombie counts against the limits under which the command forks, so fini reaps at once. Each round of this script
// leaves one orphan. Beside tini, which is one task, 12 tasks are enough for it; fini has at most 7 threads and one more
// process.
func TestCommandCanFork(t *testing.T) {
	t.Parallel()
	const rounds, most, enough = 200, 3, 24 // without a reaper the table is full after twenty
	script := "i=0; while [ $i -lt " + strconv.Itoa(rounds) + " ]; do (:&); i=$((i+1)); done; exit 3"
	for _, b := range fullTables {
		rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
			rig.Case(t, b.name == fullTables[0].name, b.name, func(t *testing.T) {
				var refused []int
				// On a busy machine fini may have to wait for a processor.
				for len(refused) < 20 {
					h := rig.NewCgroup(t)
					tasks := enough
					if b.name == "cgroup" {
						h.Limit("pids.max", strconv.Itoa(tasks))
					}
					l := rig.StartCmd(t, h.Around(p, b.prefix(t, tasks), "--", need.Program(t, "dash"), "-c", script))
					status := l.Status()
					n := strings.Count(l.Err.Whole(), "Cannot fork")
					if status != 3 {
						n = rounds // the shell itself could not fork, and gave up
					}
					if refused = append(refused, n); n <= most {
						t.Logf("refused forks: %d", refused)
						return
					}
				}
				t.Errorf("refused forks: %d, want at most %d", refused, most)
			})
		})
	}
}
