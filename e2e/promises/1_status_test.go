package promises

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 1, Status: the parent process gets the command's exit status, for all 256 codes. If a signal killed the command,
// fini dies by the same signal. PID 1 can't, and exits with 128+n for signal n.
func TestStatus(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for code := range 256 {
			if rig.Quick() && code%32 > 3 && code < 252 {
				continue // some of each 32, and the last
			}
			cmd := p.Command("--", "sh", "-c", fmt.Sprint("exit ", code))
			rig.Complete(t, cmd)
			if got := cmd.ProcessState.ExitCode(); got != code {
				t.Errorf("the command exits with %d, and fini with %d", code, got)
			}
		}
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGKILL, syscall.SIGUSR1, syscall.SIGTERM} {
			cmd := p.Command("--", "sh", "-c", fmt.Sprintf("kill -%d $$", sig))
			rig.Complete(t, cmd)
			status := cmd.ProcessState.Sys().(syscall.WaitStatus) // what wait4(2) tells the parent
			if p.PID1 && status.ExitStatus() != 128+int(sig) {
				t.Errorf("signal %d kills the command, and PID 1 exits with %d", sig, status.ExitStatus())
			}
			if !p.PID1 && (!status.Signaled() || status.Signal() != sig) {
				t.Errorf("signal %d kills the command, and of fini the parent gets %#x", sig, uint32(status))
			}
		}
	})
}
