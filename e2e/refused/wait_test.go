package refused

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

const cannotWait = "fini: cannot wait for children: operation not permitted"

// failing is a fini for which calls fail when they are made the nth time, or from that time on.
func failing(t *testing.T, calls, when string, flags ...string) *exec.Cmd {
	t.Helper()
	inject := []string{need.Program(t, "strace"), "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=EPERM:when=" + when}
	return rig.Alone.Executed(inject, append(flags, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
		`for n in 1 2 3 4 5 6 7 8 9 10; do (:&); (:&); sleep 0.01; done; setsid sh -c 'trap "" TERM; echo ready; exec sleep 1000' & read line; exit 3`)...)
}

// Only ECHILD says that no child is left. Whichever call of wait4(2) fails for once, fini goes on to the end.
func TestWaitFailsOnce(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		for _, call := range []string{"wait4", "waitid"} {
			t.Run(fmt.Sprintf("%s %d", call, n), func(t *testing.T) {
				t.Parallel()
				goOn(t, failing(t, call, fmt.Sprint(n), "-q")).MustEnd(3)
			})
		}
	}
}

// If both calls are refused from some moment on, fini says so once, kills what is there, and gives up within its bounds.
func TestWaitFailsForGood(t *testing.T) {
	t.Parallel()
	rig.Long(t)
	l := goOn(t, failing(t, "wait4,waitid", "8+"))
	l.MustEnd(l.Status())
	rig.WantOnce(t, l.Err.Whole(), cannotWait)
}

// Without any call that waits for children there is no command.
func TestNoWait(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.StartCmd(t, under("wait4,waitid:EPERM", p, "--", "/bin/echo", "started"))
		l.MustEnd(125)
		rig.MustRecord(t, "the command says", l.Out.Rest())
		rig.WantOnce(t, l.Err.Whole(), cannotWait)
	})
}

// A filter may refuse kill(2) and let pidfd_send_signal(2) pass. Then the command still gets its signals, and a leftover
// that ignores SIGTERM its SIGKILL, be it a child of fini's or not.
func TestKillIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} { // PID 1 ends its namespace
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l := goOn(t, under("kill:EPERM", p, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
				"trap 'exit 7' TERM; "+strings.Replace(leftover, "exit 3", "echo main; while :; do sleep .01; done", 1)))
			l.Out.Want("main")
			l.Signal(syscall.SIGTERM)
			l.MustEnd(7)
			var want []string
			if p == rig.Pair {
				want = []string{noPair}
			}
			rig.MustRecord(t, "fini says", complaints(l.Err.Whole()), want...)
		})
	}
}
