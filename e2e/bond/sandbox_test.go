package bond

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

const rtmin3 = syscall.Signal(37) // which queues, so that the kernel never merges two

// comesIn starts a command from outside in the PID namespace of a PID 1, as docker exec does.
func comesIn(l *rig.Life, argv ...string) *rig.Life {
	l.T.Helper()
	return rig.StartCmd(l.T, rig.CommandOf(append(enter(l), argv...)))
}

// As PID 1 a pause is ended by nobody in its PID namespace, and by each terminating signal from outside.
func TestSandbox(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, rtmin3} {
		l := rig.Start(t, rig.PID1, "-P", "-v")
		l.Err.Want("fini: pausing")
		rig.Succeed(t, rig.CommandOf(append(enter(l), "/bin/sh", "-c", fmt.Sprintf("kill -%d 1", sig))))
		rig.Succeed(t, rig.CommandOf(append(enter(l), rig.Mode("forge", fmt.Sprint(int(sig)))...)))
		l.Err.Want("fini: ignored ")
		rig.Succeed(t, rig.CommandOf(append(enter(l), "/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do kill 1; i=$((i+1)); done")))
		// What is inside may still be pending, and the kernel would merge another TERM with it.
		l.Signal(unix.SIGUSR1)
		rig.Until(t, "no signal is pending", func() bool { return procfs.Status(l.PID(), "ShdPnd") == "0000000000000000" })
		l.Signal(sig)
		l.MustEnd(0)
		said := l.Err.Whole()
		for line, want := range map[string]int{"fini: ignored SIG": 1, "fini: ending the pause: ": 1, "fini: ignored at least ": 1} {
			rig.Equal(t, fmt.Sprintf("how many lines begin with %q in %q", line, said), strings.Count("\n"+said, "\n"+line), want)
		}
	}
}

// Beside a loop of `kill 1` the kernel may merge SIGTERM from outside with one from inside. A real-time signal queues.
func TestSandboxBesideALoop(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for range rig.QuickOrFull(5, 20) {
		l := rig.Start(t, rig.PID1, "-P", "-v", "--linger=0")
		l.Err.Want("fini: pausing")
		loop := comesIn(l, "/bin/sh", "-c", "echo ready; while :; do kill 1; done")
		loop.Out.Want("ready")
		l.Signal(rtmin3)
		l.MustEnd(0)
		rig.WantOnce(t, l.Err.Whole(), "fini: ending the pause: SIGRTMIN+3")
	}
}

// Those who came in from outside are asked, then what they leave, and what they run themselves is theirs to end.
func TestSandboxAsksWhoCameIn(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	const asked = `trap "echo asked; read line; exit" TERM; echo ready; while :; do sleep 1000 & wait; done`
	report := reports.Path(t)
	l := rig.Start(t, rig.PID1, "-P", "-v", "--linger=0", "--grace=1h", "--report="+report)
	l.Err.Want("fini: pausing")
	bare := comesIn(l, "/bin/sh", "-c", `(trap "echo left asked; exit" TERM; echo ready; while :; do sleep 1000 & wait; done) & `+strings.Replace(asked, "echo ready; ", "", 1))
	wrapped := comesIn(l, rig.Fini, "--", "/bin/sh", "-c", asked)
	for _, one := range []*rig.Life{bare, wrapped} {
		one.Out.Want("ready")
	}
	l.Signal(unix.SIGTERM)
	for _, one := range []*rig.Life{wrapped, bare} {
		one.Out.WantNext("asked")
		rig.Write(t, one, "\n")
	}
	bare.Out.Want("left asked")
	l.MustEnd(0)
	for what, one := range map[string]*rig.Life{"asked\nleft asked\n": bare, "asked\n": wrapped} {
		rig.Equal(t, "what it says", strings.TrimPrefix(one.Out.Whole(), "ready\n"), what)
	}
	said := l.Err.Whole()
	rig.Equal(t, "how many came in from outside in "+said, strings.Count(said, "started from outside"), 2)
	leftovers := reports.MustHave(t, report).Leftovers
	for _, left := range leftovers {
		rig.Equal(t, "what fini has sent "+left.Command, fmt.Sprint(left.Sent), "[SIGTERM]")
	}
	if len(leftovers) < 3 { // and perhaps a sleep of the one that is left
		t.Errorf("leftovers %+v, want 3", leftovers)
	}
}

// Who does not go is killed, and named, with what it has started.
func TestSandboxKillsWhoCameIn(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	l := rig.Start(t, rig.PID1, "-P", "-v", "--linger=0", "--grace=100ms")
	l.Err.Want("fini: pausing")
	one := comesIn(l, "/bin/sh", "-c", `trap "" TERM; sh -c 'echo ready; while :; do sleep 1000; done'; exit`)
	one.Out.Want("ready")
	l.Signal(unix.SIGTERM)
	l.MustEnd(0)
	for _, line := range []string{"fini: stopping leftover ", "fini: killing leftover ", "fini: killing leftover "} {
		if !strings.Contains(l.Err.Want(line), "(") {
			t.Errorf("no name in a line that begins with %q", line)
		}
	}
}

// A PID 1 that may not signal another user's process says so, and ends.
func TestSandboxOfAnotherUser(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	need.Root(t, "to be another user")
	user := []string{need.Program(t, "setpriv"), "--reuid=1000", "--clear-groups", "--"}
	l := rig.StartCmd(t, rig.PID1.Executed(user, "-P", "-v", "--linger=0", "--grace=100ms"))
	l.Err.Want("fini: pausing")
	rig.Succeed(t, rig.CommandOf(append(enter(l), "/bin/sh", "-c", "kill 1; kill -37 1")))
	one := comesIn(l, "/bin/sh", "-c", "echo ready $$; exec sleep 1000")
	pid := one.Out.WantPID("ready ")
	own := comesIn(l, append(user, "/bin/sh", "-c", `trap "echo asked; exit" TERM; echo ready; while :; do sleep 1000 & wait; done`)...)
	own.Out.Want("ready")
	l.Signal(rtmin3)
	own.Out.WantNext("asked")
	l.MustEnd(0)
	l.Err.Want("fini: ignored SIGTERM")
	l.Err.Want(fmt.Sprintf("fini: cannot signal %d (sleep): operation not permitted", pid))
}
