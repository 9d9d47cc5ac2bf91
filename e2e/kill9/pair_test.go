package kill9

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// adopted starts a pair whose new parent, once the outer fini is gone, is of its session: so the kernel does not continue an inner
// fini that is stopped. Either is 0 where all is over before there is one.
func adopted(t *testing.T, args ...string) (l *rig.Life, outer, inner int) {
	t.Helper()
	cmd := rig.CommandOf(rig.Mode("adopter", append([]string{rig.Fini}, args...)...))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b := &rig.BoundLife{Life: rig.StartCmd(t, cmd)}
	if outer = b.ChildOf(b.PID()); outer != 0 {
		inner = b.ChildOf(outer)
	}
	return b.Life, outer, inner
}

// The inner fini of a pair that is stopped before it catches signals does not outlive the outer one, which is killed: nobody
// would continue it.
func TestInnerIsStoppedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	early := false
	for range rig.Rounds(t, 1, "the inner fini was stopped before it caught signals", func() bool { return early }) {
		l, outer, inner := adopted(t, "-q", "--", "/bin/sh", "-c", "exit 6")
		if inner != 0 { // else another one is drawn
			_ = syscall.Kill(inner, syscall.SIGSTOP)
			rig.Until(t, "it is stopped, or gone", func() bool { return procfs.IsStopped(inner) || procfs.StatOf(inner).Gone() })
			own := len(sockets(inner)) == 1 // before that it is a copy of the outer one
			early = procfs.IsStopped(inner) && own && !procfs.MaskHas(procfs.Status(inner, "SigCgt"), syscall.SIGUSR1)
			_ = syscall.Kill(outer, syscall.SIGKILL)
			if !early {
				_ = syscall.Kill(inner, syscall.SIGCONT)
			}
		}
		l.MustEnd(0) // with its last child
	}
}

// An inner fini that is suspended while the command runs is continued when the outer one is killed. And it says nothing of the
// signal.
func TestSuspendedInnerOutlivesTheOuter(t *testing.T) {
	t.Parallel()
	l, outer, inner := adopted(t, "--no-foreground", "--linger=0", "--", "/bin/sh", "-c", "echo ready $$; exec sleep 1000")
	l.Out.WantPID("ready ")
	rig.MustKill(t, inner, syscall.SIGSTOP)
	rig.Until(t, "the inner fini is suspended", func() bool { return procfs.IsStopped(inner) })
	rig.MustKill(t, outer, syscall.SIGKILL)
	l.MustEnd(0)
	if said := l.Err.Whole(); strings.Contains(said, "dropped") {
		t.Error(said)
	}
}

// If the outer fini is killed in its first milliseconds, the inner one says so, if it says anything.
func TestOuterIsKilledAtTheStart(t *testing.T) {
	t.Parallel()
	for range rig.QuickOrFull(30, 1000) {
		l := rig.Start(t, rig.Pair, "--", "/bin/sleep", "1000")
		for began, after := time.Now(), rand.N(6*time.Millisecond); time.Since(began) < after; { // less than a sleep would take
		}
		_ = l.Cmd.Process.Kill()
		l.MustHaveStatus(128 + 9)
		rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
		for _, said := range strings.Split(strings.TrimSpace(l.Err.Whole()), "\n") {
			if said != "" && !strings.Contains(said, "the outer fini") {
				t.Errorf("says %q", said)
			}
		}
	}
}

// A terminating signal for the outer fini that comes while it starts its runtime, to stop what a killed inner one has left
// behind, leaves nothing either.
func TestSignalWhileTheHeirStarts(t *testing.T) {
	t.Parallel()
	for range rig.QuickOrFull(20, 300) {
		l := rig.Start(t, rig.Pair, "-q", "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
			"trap '' TERM; setsid sh -c 'trap \"\" TERM; (setsid sleep 1000 &); sleep 1000; :' & echo ready; sleep 1000; sleep 1000")
		l.Out.Want("ready")
		inner := l.Worker()
		rig.MustKill(t, inner, syscall.SIGKILL)
		for began, after := time.Now(), rand.N(3*time.Millisecond); time.Since(began) < after; { // less than a sleep would take
		}
		_ = l.Cmd.Process.Signal(syscall.SIGTERM)
		if status := l.Status(); status != 128+9 && status != 128+15 {
			t.Errorf("status %d", status)
		}
		if rig.HeldOpen(l.Witness) {
			t.Fatal("fini is gone and a process of its tree is alive")
		}
	}
}

// Only one process of a pair is called fini, so that what kills all of that name leaves nothing: the other one ends the
// tree. It happens in a PID namespace, where no other fini is hit.
func TestKillByName(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, killer := range []string{"pkill -9 fini", "pkill -9 -x fini", "killall -9 fini"} {
		t.Run(killer, func(t *testing.T) {
			t.Parallel()
			need.Program(t, strings.Fields(killer)[0])
			const script = `"$0" --grace=300ms --linger=0 -- sh -c 'trap "" TERM; (setsid sleep 1000 &); echo ready; sleep 1000; sleep 1000' &
				read line; ` + "%s; echo killed; wait $!; until test -z \"$(pgrep sleep)\"; do sleep 0.01; done; echo nothing left"
			cmd := rig.CommandOf([]string{"/proc/self/exe", "@pid1", "/bin/sh", "-c", fmt.Sprintf(script, killer), rig.Fini})
			rig.AsPID1(cmd)
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.Out.Want("killed")
			l.Out.Want("nothing left")
			l.MustEnd(0)
		})
	}
}

// The inner fini has a name of its own, and its command line is fini's.
func TestNames(t *testing.T) {
	t.Parallel()
	l := rig.Start(t, rig.Pair, "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
	l.Out.Want("ready")
	outer, inner := l.PID(), l.Worker()
	outerLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", outer))
	innerLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", inner))
	if name := procfs.Status(inner, "Name"); procfs.Status(outer, "Name") != "fini" || name != "reaper" || string(innerLine) != string(outerLine) {
		t.Errorf("outer %q %q, inner %q %q", procfs.Status(outer, "Name"), outerLine, name, innerLine)
	}
	l.Signal(syscall.SIGTERM)
	l.MustEnd(128 + 15)
}

// A fini in a fini, below an agent that nohup has started: nohup has not started the second, whichever of them is a pair.
func TestNestedBelowNohupIsBound(t *testing.T) {
	t.Parallel()
	nohup := need.Program(t, "nohup")
	for _, outside := range []rig.Place{rig.Pair, rig.Alone} {
		for _, inside := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(outside.Name+" "+inside.Name, func(t *testing.T) {
				t.Parallel()
				argv := append([]string{nohup}, outside.Command(append([]string{"-p", "none", "--"}, inside.Command("-v", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000").Args...)...).Args...)
				l := rig.StartCmd(t, rig.CommandOf(argv))
				l.Out.Want("ready")
				l.Signal(syscall.SIGTERM)
				l.MustEnd(128 + 15)
				if text := l.Err.Whole(); strings.Contains(text, "nohup started fini") {
					t.Errorf("says %q", text)
				}
			})
		}
	}
}
