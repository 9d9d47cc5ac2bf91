package refused

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Only ECHILD says that no child is left. Whichever call of wait4(2) fails for once, fini goes on to the end.
func TestWaitFailsOnce(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	for n := 1; n <= 6; n++ {
		for _, call := range []string{"wait4", "waitid"} {
			t.Run(fmt.Sprintf("%s %d", call, n), func(t *testing.T) {
				t.Parallel()
				h := rig.NewCgroup(t)
				argv := h.Wrap(strace, "-o", "/dev/null", "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:error=EPERM:when=%d", call, n),
					rig.Fini, "--no-shield", "-q", "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
					`(:&); setsid sh -c 'trap "" TERM; echo ready; exec sleep 1000' & read line; exit 7`)
				l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
				l.Out.Want("ready")
				rig.Write(t, l, "go\n")
				l.MustEnd(7)
				h.MustBeEmpty()
			})
		}
	}
}

// If both calls are refused from some moment on, fini says so once, kills what is there, and gives up within its bounds.
func TestWaitFailsForGood(t *testing.T) {
	t.Parallel()
	rig.Long(t)
	h := rig.NewCgroup(t)
	argv := h.Wrap(need.Program(t, "strace"), "-o", "/dev/null", "-e", "trace=wait4,waitid", "-e", "inject=wait4,waitid:error=EPERM:when=8+",
		rig.Fini, "--no-shield", "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", `for n in 1 2 3 4 5 6 7 8 9 10; do (:&); (:&); sleep 0.01; done; setsid sh -c 'trap "" TERM; echo ready; exec sleep 1000' & read line; exit 7`)
	l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
	l.Out.Want("ready")
	rig.Write(t, l, "go\n")
	_ = l.Status()
	h.MustBeEmpty()
	if said := l.Err.Whole(); strings.Count(said, "fini: cannot wait for children: operation not permitted\n") != 1 {
		t.Errorf("says %q, want once that it can't wait", said)
	}
}

// Without any call that waits for children there is no command.
func TestNoWait(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		h := rig.NewCgroup(t)
		l := rig.StartCmd(t, h.Around(p, rig.Mode("refuse", "wait4,waitid:EPERM"), "--", "/bin/echo", "started"))
		l.MustEnd(125)
		if out, said := l.Out.Whole(), l.Err.Whole(); out != "" || !strings.Contains(said, "fini: cannot wait for children: operation not permitted\n") {
			t.Errorf("stdout has %q, stderr %q", out, said)
		}
	})
}

// A filter may refuse kill(2) and let pidfd_send_signal(2) pass. Then the command still gets its signals, and a leftover
// that ignores SIGTERM its SIGKILL, be it a child of fini's or not.
func TestKillIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} { // PID 1 ends its namespace
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			h := rig.NewCgroup(t)
			l := rig.StartCmd(t, h.Around(p, rig.Mode("refuse", "kill:EPERM"), "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", `
				trap 'exit 7' TERM
				setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' &
				read line; echo main; while :; do sleep .01; done`))
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.Out.Want("main")
			l.Signal(syscall.SIGTERM)
			l.MustEnd(7)
			h.MustBeEmpty()
			var said []string
			for line := range strings.Lines(l.Err.Whole()) {
				if !ofLeftovers.MatchString(line) {
					said = append(said, line)
				}
			}
			var want []string
			if p == rig.Pair {
				want = []string{"fini: cannot fork: operation not permitted: going on without a shield\n"}
			}
			if !slices.Equal(said, want) {
				t.Errorf("says %q, want %q", said, want)
			}
		})
	}
}
