package kill9

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// spin waits for less time than a sleep would take.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// PID 1 loses no signal that asks it to end, from its first system call on: the kernel drops what PID 1 does not catch.
func TestEarlySignalEndsPID1(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	none := strings.Repeat("0", 16)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			for range rig.QuickOrFull(25, 300) {
				cmd := exec.Command(rig.Fini, "-q", "--", "sleep", "1")
				rig.AsPID1(cmd)
				rig.NoError(t, cmd.Start())
				pid := cmd.Process.Pid
				rig.Until(t, "fini's first call", func() bool {
					return procfs.Status(pid, "SigBlk") != none || procfs.Status(pid, "SigCgt") != none
				})
				spin(time.Duration(rand.IntN(2500)) * time.Microsecond)
				_ = cmd.Process.Signal(sig)
				_ = cmd.Wait()
				if got := procfs.ShellStatus(cmd.ProcessState); got != 128+int(sig) {
					t.Fatalf("status %d, want %d", got, 128+int(sig))
				}
			}
		})
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
		spin(time.Duration(rand.IntN(3000)) * time.Microsecond)
		_ = l.Cmd.Process.Signal(syscall.SIGTERM)
		if status := l.Status(); status != 128+9 && status != 128+15 {
			t.Errorf("status %d", status)
		}
		if rig.HeldOpen(l.Witness) {
			t.Fatal("fini is gone and a process of its tree is alive")
		}
	}
}
