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
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// fini waits 10 s for each that is stuck, and nobody has anything to do meanwhile: all of them wait at one time.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "64")
	rig.Main(m)
}

// ways are all that ends a command, or a fini.
var stuckWays = []struct {
	name  string
	flag  string
	end   func(l *stuckLife)
	not   []rig.Place // where there is no such way
	code  int
	count int  // of those that are stuck; 0 is one
	slow  bool // fini waits twice: make test does not
}{
	{name: "the command ends", flag: "--linger=0", end: func(l *stuckLife) { rig.Write(l.Life.T, l.Life, "end\n") }, code: 5},
	{name: "lingering", flag: "--linger=100ms", end: func(l *stuckLife) { rig.Write(l.Life.T, l.Life, "end\n") }, code: 5},
	{name: "four are stuck", flag: "--linger=0", end: func(l *stuckLife) { rig.Write(l.Life.T, l.Life, "end\n") }, code: 5, count: 4},
	{name: "TERM", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGTERM) }, code: 128 + 15},
	{name: "timeout", end: func(*stuckLife) {}, code: 124, slow: true},
	{name: "the launcher dies", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.PID(), syscall.SIGKILL) }, not: []rig.Place{rig.PID1}, code: 128 + 9},
	{name: "the inner one is killed", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.worker, syscall.SIGKILL) }, not: []rig.Place{rig.PID1, rig.Alone}, code: 128 + 9},
	{name: "the outer one is killed", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGKILL) }, not: []rig.Place{rig.PID1, rig.Alone}, code: 128 + 9},
	{name: "the main child is stuck", flag: "--kill-after=1s", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGTERM) }, code: 128 + 9, slow: true},
}

// A stuckLife is a fini and its command, of which some are stuck.
type stuckLife struct {
	*rig.Life
	*deadend.DeadEnd
	outer, worker int
}

func (l *stuckLife) kill(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

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
	want := []string{"below asked", "below done", "beside asked", "beside done"}
	var got []string
	for len(got) < len(want) {
		line, ok := l.Out.Next()
		if !ok {
			t.Fatalf("EOF after %q; stderr: %s", got, l.Err.Text())
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("those that are not stuck say %q, want %q", got, want)
	}
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
		flushes := 0
		for flushes < count && e.Flushed.Scan() {
			flushes++
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
