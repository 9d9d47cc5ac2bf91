package reaper

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	surroundings.Own()
	os.Exit(m.Run())
}

// start starts a command, which is gone with the test, and returns its pid. No test runs beside another, so this process has
// no other children.
func start(t *testing.T, args ...string) int {
	t.Helper()
	child, err := Spawn(Command{Args: args, Env: os.Environ(), Terminal: -1})
	check.NoError(t, err)
	t.Cleanup(func() {
		if child.FD >= 0 {
			_ = unix.PidfdSendSignal(child.FD, unix.SIGKILL, nil, 0)
			_, _ = unix.Wait4(child.Pid, nil, 0, nil)
		}
		calls.Close(child.FD)
	})
	return child.Pid
}

// mustReap wants these exits of Reap, and whether no child is left.
func mustReap(t *testing.T, name func(pid int) string, none bool, want ...Exit) {
	t.Helper()
	exits, isNone, err := Reap(name)
	check.NoError(t, err)
	check.Equal(t, "exits", exits, want)
	check.Equal(t, "no child is left", isNone, none)
}

// exited is what wait4(2) says of a process that exited with a status.
func exited(status int) syscall.WaitStatus { return syscall.WaitStatus(status << 8) }

func TestReapCommandAndOrphans(t *testing.T) {
	const orphans = 50
	check.NoError(t, Subreaper())
	fifo := filepath.Join(t.TempDir(), "until")
	check.NoError(t, unix.Mkfifo(fifo, 0o600))
	end := self.Open(t, fifo, os.O_RDWR)
	const script = `exec 3<"$1"; for n in $(seq $2); do read line <&3 & done; exit 7`
	child := start(t, "/bin/sh", "-c", script, "sh", fifo, strconv.Itoa(orphans))
	// Who has ended is asked for while its pid and its name are still its own.
	var asked []int
	ask := func(pid int) string {
		asked = append(asked, pid)
		check.Equal(t, "the state of one whose name is asked for", procfs.StatOf(pid).State(), byte('Z'))
		return strconv.Itoa(pid)
	}

	self.AwaitEnd(t, 0)
	mustReap(t, nil, false, Exit{Pid: child, Status: exited(7)})
	mustReap(t, ask, false) // nobody else has ended
	check.Equal(t, "whose names it was asked for", asked, []int(nil))

	_ = end.Close()
	var reaped []int
	for none := false; !none; {
		var exits []Exit
		self.AwaitEnd(t, 0)
		exits, none, _ = Reap(ask)
		for _, x := range exits {
			reaped = append(reaped, x.Pid)
			check.Equal(t, "one at the end of its input", x, Exit{x.Pid, exited(1), strconv.Itoa(x.Pid)})
		}
	}
	check.Equal(t, "whose names it was asked for", asked, reaped)
	slices.Sort(reaped)
	check.Equal(t, "the orphans that were reaped", len(slices.Compact(reaped)), orphans)
	mustReap(t, nil, true)
}

// How wait4(2) says that SIGSTOP has suspended a process, and that SIGCONT has continued it.
const stopped, continued = syscall.WaitStatus(unix.SIGSTOP)<<8 | 0x7f, syscall.WaitStatus(0xffff)

func TestReapTellsOfAStop(t *testing.T) {
	for called, name := range map[string]func(int) string{"": nil, "with names": func(int) string { return "with names" }} {
		t.Run(cmp.Or(called, "wait4"), func(t *testing.T) {
			child := start(t, "sleep", "1000")
			for _, c := range []struct {
				sig  syscall.Signal
				want syscall.WaitStatus
			}{{unix.SIGSTOP, stopped}, {unix.SIGCONT, continued}, {unix.SIGKILL, syscall.WaitStatus(unix.SIGKILL)}} {
				check.MustKill(t, child, c.sig)
				check.Until(t, "a change", func() bool {
					pid, _ := calls.WaitID(unix.P_PID, child, changes|unix.WEXITED|unix.WNOWAIT)
					return pid == child
				})
				mustReap(t, name, c.sig == unix.SIGKILL, Exit{child, c.want, called})
			}
		})
	}
}

// A child may be reaped by the kernel between the look at it and its reaping: see CLONE_AUTOREAP. That does not say that no
// child is left.
func TestReapWhatIsGone(t *testing.T) {
	stays := start(t, "sleep", "1000")
	start(t, "/bin/true")
	takes := func(pid int) string {
		_, err := unix.Wait4(pid, nil, 0, nil)
		check.NoError(t, err)
		return ""
	}
	self.AwaitEnd(t, 0)
	mustReap(t, takes, false)
	check.MustKill(t, stays, unix.SIGKILL)
	self.AwaitEnd(t, 0)
	mustReap(t, nil, true, Exit{Pid: stays, Status: syscall.WaitStatus(unix.SIGKILL)})
}
