package leftovers

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Each leftover says "ready" by descriptor 4, a pipe, once it is what its name says, and the command waits for
// that before it ends. All of them hold the witness, and all sleep far longer than any
// test may take.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		name   string
		script string // run in the background of the command
	}{
		{"background", `echo ready >&4; exec sleep 1000`},
		{"setsid", `exec setsid sh -c 'echo ready >&4; exec sleep 1000'`},
		{"daemon", `setsid sh -c 'sh -c "echo ready >&4; exec sleep 1000" & exit' & exit`},
		{"without streams", `exec setsid sh -c 'echo ready >&4; exec sleep 1000 </dev/null >/dev/null 2>&1 4>&-'`},
		{"ignores TERM", `trap "" TERM; echo ready >&4; sleep 1000`},
		{"stopped", `echo ready >&4; kill -STOP $(exec sh -c 'echo $PPID'); sleep 1000`},
		{"forks while it is stopped", `trap 'i=0; while [ $i -lt 50 ]; do setsid sleep 1000 & i=$((i+1)); done; exit' TERM
			echo ready >&4; while :; do sleep 0.01; done`},
		{"other uid", `exec setpriv --reuid 12345 --clear-groups sh -c 'echo ready >&4; exec sleep 1000'`},
	}
	var all []string
	for _, kind := range kinds {
		if kind.name != "other uid" || need.IsRoot() {
			all = append(all, kind.script)
		}
	}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		mustStop := func(t *testing.T, leftovers ...string) {
			t.Parallel()
			script := "dir=$(mktemp -d); mkfifo $dir/ready; exec 4<>$dir/ready; rm -r $dir\n"
			for _, leftover := range leftovers {
				script += "{ " + leftover + " ; } &\n"
			}
			script += strings.Repeat("read line <&4\n", len(leftovers)) + "echo end; exit 9\n"
			l := rig.Start(t, p, "--linger=100ms", "--grace=1s", "--", "/bin/sh", "-c", script)
			l.Out.Want("end")
			l.MustEnd(9)
			if said := l.Err.Whole(); !strings.Contains(said, "fini: stopping leftover ") {
				t.Errorf("says nothing of a leftover that it stopped: %q", said)
			}
		}
		for _, kind := range kinds {
			rig.Case(t, p == rig.Pair, kind.name, func(t *testing.T) { // all at once they are quick in each place
				if kind.name == "other uid" {
					need.Root(t)
				}
				mustStop(t, kind.script)
			})
		}
		t.Run("all at once", func(t *testing.T) { mustStop(t, all...) })
	})
}

// A signal ends the wait of --orphans=wait. That it waits is TestWaitsAsleep's.
func TestWaitEndsOnTERM(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "-v", "--orphans=wait", "--", "/bin/sh", "-c", `setsid sh -c 'echo ready; exec sleep 1000' & exit 5`)
		l.Out.Want("ready")
		l.Err.Want("fini: command ") // the main child has ended
		l.Signal(syscall.SIGTERM)
		l.MustEnd(5)
	})
}

// Who asks the command to exit does not want to wait for what it leaves, however the command takes it.
func TestWaitDoesNotOutlastTERM(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for name, tt := range map[string]struct {
			trap   string
			status int
		}{
			"the command dies of it":      {"", 128 + 15},
			"the command exits with 0":    {"trap 'exit 0' TERM", 0},
			"the command exits with 143":  {"trap 'exit 143' TERM", 143},
			"another signal that ends it": {"trap 'kill -KILL $$' TERM", 128 + 9},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, "--orphans=wait", "--linger=100ms", "--", "/bin/sh", "-c",
					tt.trap+"\nsetsid sh -c 'echo ready; exec sleep 1000' & while :; do sleep 0.01; done")
				l.Out.Want("ready")
				l.Signal(syscall.SIGTERM)
				l.MustEnd(tt.status)
				l.Err.Want("fini: stopping leftover ")
			})
		}
	})
}

// Under --orphans=leave fini does not name what is about to end of the signal that the command has got.
func TestLeaveNamesNobodyWhoEnds(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--orphans=leave", "--linger=1h", "--", "/bin/sh", "-c",
			`sh -c 'trap "sleep 0.3; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`)
		l.Out.Want("ready")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(128 + 15)
		for _, line := range l.Err.Rest() { // a shell may say that its sleep was terminated
			if strings.HasPrefix(line, "fini: ") {
				t.Errorf("fini says %q", line)
			}
		}
	})
}

// mustStayAlone asserts that these processes live, and that of the tree only they do.
func mustStayAlone(l *rig.Life, pids []int) {
	l.T.Helper()
	for _, pid := range pids {
		if state := procfs.Status(pid, "State"); state == "" || strings.HasPrefix(state, "Z") {
			l.T.Errorf("%d is gone (%q); stderr: %s", pid, state, l.Err.Text())
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	rig.Until(l.T, "the end of all: more than those has stayed", func() bool { return rig.HungUp(l.Witness) })
}
