package stuck

import (
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/deadend"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// fini waits 10 s for each that is stuck, and nobody has anything to do meanwhile: all of them wait at one time.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "64")
	rig.Main(m)
}

// stuckWays are all that ends a command, or a fini.
var stuckWays = []struct {
	name  string
	flag  string
	end   func(l *stuckLife)
	not   []rig.Place // where there is no such way
	code  int
	count int  // of those that are stuck; 0 is one
	slow  bool // fini waits twice: make test does not
}{
	{name: "the command ends", flag: "--linger=0", end: line, code: 5},
	{name: "lingering", flag: "--linger=100ms", end: line, code: 5},
	{name: "four are stuck", flag: "--linger=0", end: line, code: 5, count: 4},
	{name: "TERM", flag: "--linger=0", end: term, code: 128 + 15},
	{name: "timeout", end: func(*stuckLife) {}, code: 124, slow: true},
	{name: "the launcher dies", flag: "--linger=0", end: func(l *stuckLife) { kill(l.PID()) }, not: []rig.Place{rig.PID1}, code: 128 + 9},
	{name: "the inner one is killed", flag: "--linger=0", end: func(l *stuckLife) { kill(l.worker) }, not: []rig.Place{rig.PID1, rig.Alone}, code: 128 + 9},
	{name: "the outer one is killed", flag: "--linger=0", end: func(l *stuckLife) { kill(l.outer) }, not: []rig.Place{rig.PID1, rig.Alone}, code: 128 + 9},
	{name: "the main child is stuck", flag: "--kill-after=1s", end: term, code: 128 + 9, slow: true},
}

// A stuckLife is a fini and its command, of which some are stuck.
type stuckLife struct {
	*rig.Life
	*deadend.DeadEnd
	outer, worker int
}

func line(l *stuckLife) { rig.Write(l.Life.T, l.Life, "end\n") }
func term(l *stuckLife) { _ = syscall.Kill(l.outer, syscall.SIGTERM) }
func kill(pid int)      { _ = syscall.Kill(pid, syscall.SIGKILL) }

func TestStuckInExec(t *testing.T) {
	rig.Serial(t, "who else reads /proc/*/stat waits too")
	for _, way := range stuckWays {
		rig.Case(t, !way.slow, way.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) { // fini waits 10 s for each
				if slices.Contains(way.not, p) {
					return
				}
				t.Parallel()
				l := startStuck(t, p, way.name, way.flag, max(way.count, 1))
				defer l.Abort()
				way.end(l)
				l.cleaned(t)
				l.Err.Want("fini: gave up on leftovers ")
				if p.PID1 {
					l.Abort() // for a PID namespace the kernel waits until all in it have ended
				}
				l.MustHaveStatus(way.code)
				rig.Until(t, "the end of fini", func() bool {
					state := procfs.Status(l.outer, "State") + procfs.Status(l.worker, "State")
					return strings.Trim(state, "Z (zombie)") == ""
				})
				l.Abort()
				rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
			})
		})
	}
}

// cleaned waits until those that are not stuck have been asked and have done their clean-up.
func (l *stuckLife) cleaned(t *testing.T) {
	t.Helper()
	var got []string
	for range 4 {
		line, _ := l.Out.Next()
		got = append(got, line)
	}
	slices.Sort(got)
	rig.MustRecord(t, "those that are not stuck say", got, "below asked", "below done", "beside asked", "beside done")
}

// startStuck returns when all are stuck that are to be.
func startStuck(t *testing.T, p rig.Place, way, flag string, count int) *stuckLife {
	t.Helper()
	// The shell keeps nothing that the tree has, but for the streams.
	const launcher = `exec 5<&0; "$0" "$@" <&5 5<&- & exec 3>&- 4>&- 5<&-; echo fini $!; wait`
	for timeout := 4 * time.Second; ; timeout *= 4 {
		e := deadend.New(t, "execve")
		e.Command = rig.Mode("in-exec", t.TempDir(), way, fmt.Sprint(count))
		if way == "timeout" {
			flag = "--timeout=" + timeout.String()
		}
		fini := p.Command(append([]string{"--grace=3s", flag, "--"}, e.Command...)...)
		launched := way == "the launcher dies"
		if launched {
			fini = exec.Command("/bin/sh", append([]string{"-c", launcher}, fini.Args...)...)
		}
		l := &stuckLife{Life: e.Start(fini), DeadEnd: e}
		l.outer = l.PID()
		if launched {
			l.outer = l.Out.Launched()
		}
		for flushes := 0; flushes < count && e.Flushed.Scan(); flushes++ {
		}
		for range 2 {
			l.Out.Want("ready")
		}
		l.worker = l.outer
		if !p.Alone && !p.PID1 {
			l.worker = procfs.ChildrenOf(t, l.outer)[0]
		}
		if way != "timeout" || !strings.Contains(l.Err.Text(), "--timeout") || timeout > rig.Patience {
			return l
		}
		e.Abort()
		_ = l.Status()
	}
}

// A child from before, which is stuck, is none of the command's, and holds up neither start nor end.
func TestChildFromBeforeIsStuckInExec(t *testing.T) {
	rig.Serial(t, "who else reads /proc/*/stat waits too")
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			e := deadend.New(t, "execve")
			stuck := rig.Mode("in-exec", t.TempDir(), "earlier", "1")
			args := slices.Concat([]string{"-c", `"$1" "$2" "$3" "$4" "$5" & echo earlier $!; read go; shift 5; exec "$@" 4>&-`, "sh"}, stuck,
				p.Command("--linger=0", "--", "/bin/sh", "-c", `setsid sh -c 'trap "echo asked; exit" TERM; echo ready; while :; do sleep 0.1; done' & read end; exit 3`).Args)
			l := e.Start(exec.Command("/bin/sh", args...))
			earlier := l.Out.WantPID("earlier ")
			if !e.Flushed.Scan() {
				t.Fatalf("nobody is stuck; stderr: %s", l.Err.Text())
			}
			rig.Write(t, l, "go\n")
			l.Out.Want("ready")
			rig.Write(t, l, "end\n")
			l.Out.Want("asked")
			l.MustHaveStatus(3)
			if text := l.Err.Text(); strings.Contains(text, "in-exec") || strings.Contains(text, "gave up") {
				t.Errorf("it says %q", text)
			}
			if state := procfs.Status(l.PID(), "State"); state != "" {
				t.Errorf("fini is %q", state)
			}
			if rig.HungUp(l.Witness) {
				t.Error("the child from before has ended")
			}
			_ = syscall.Kill(earlier, syscall.SIGKILL)
			e.Abort()
			rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
		})
	}
}

// A snake is never the same process for long: each forks the next and ends. There is no moment at
// which a signal to a pid that was read in /proc is sure to find it.
func TestSnakes(t *testing.T) {
	rig.Serial(t, "on a busy machine their zombies are as many as there can be processes")
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
	if rig.Full() { // they take all of a small machine
		kinds[2].name, kinds[2].more, kinds[3].name, kinds[3].more = "fifty", 49, "fifty that ignore TERM", 49
	}
	program := func(more int, first string) []string {
		return rig.Mode("script", fmt.Sprintf(`lay: fork snake
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
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, kind := range kinds {
			rig.Case(t, kind.more == 0 && kind.first != "", kind.name, func(t *testing.T) {
				h, l := rig.StartInCgroup(t, p, append([]string{"-q", "--linger=0", "--grace=200ms", "--"}, program(kind.more, kind.first)...)...)
				l.Out.Want("laid")
				start := time.Now()
				h.MustLeaveNothing(t, l, 3)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}
