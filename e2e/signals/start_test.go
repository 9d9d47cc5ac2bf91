package signals

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// A signal that comes while fini starts is not lost: it waits until there is a command, and is sent on to that, or it ends fini
// before fini's first instruction. All of them end the command. The kernel drops what PID 1 does not catch: from fini's first
// system call on, PID 1 loses no signal that asks for the end.
func TestSignalWhileFiniStarts(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	none := strings.Repeat("0", 16)
	for _, p := range append(rig.AloneOrPair(t, rig.Pair), rig.PID1) {
		sigs := []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGALRM, 40}
		if p.PID1 {
			sigs = sigs[:3]
		}
		for _, sig := range sigs {
			t.Run(fmt.Sprint(p.Name, " ", sig), func(t *testing.T) {
				t.Parallel()
				for range rig.QuickOrFull(12, 100) {
					cmd := p.Executed(nil, "-q", "--", "sleep", "1000")
					if p.PID1 {
						rig.NeedPidNamespace(t)
						cmd = exec.Command(rig.Fini, "-q", "--", "sleep", "1000") // at once, without what mounts /proc
						rig.AsPID1(cmd)
					}
					l := rig.StartCmd(t, cmd)
					rig.Until(t, "fini's first call", func() bool {
						return !p.PID1 || procfs.Status(l.PID(), "SigBlk") != none || procfs.Status(l.PID(), "SigCgt") != none
					})
					for began, after := time.Now(), rand.N(3*time.Millisecond); time.Since(began) < after; { // less than a sleep would take
					}
					l.Signal(sig)
					l.MustEnd(128 + int(sig))
				}
			})
		}
	}
}

// A write lease of this process keeps the command's execve(2) waiting until it is given back: see fcntl(2). A signal
// waits with it, and then reaches the command: as another signal, so that the status shows it. But a terminating signal
// ends a pair, and the command is not executed.
func TestSignalWhileExecveHangs(t *testing.T) {
	rig.Serial(t, "a fork beside it would hold the program open for writing")
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	shell, err := os.ReadFile("/bin/sh")
	rig.NoError(t, err)
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for _, c := range []struct {
			sig     syscall.Signal
			rewrite string
			as      syscall.Signal // it reaches the command
		}{
			{unix.SIGUSR1, "USR1:TERM", unix.SIGTERM},
			{unix.SIGTERM, "TERM:USR1", unix.SIGUSR1},
		} {
			t.Run(fmt.Sprint(p.Name, " ", c.sig), func(t *testing.T) {
				program := filepath.Join(t.TempDir(), "sh")
				rig.NoError(t, os.WriteFile(program, shell, 0o755))
				held, err := os.Open(program)
				rig.NoError(t, err)
				defer func() { _ = held.Close() }()
				_, err = unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				need.That(t, err != unix.EINVAL && leaseBreakTime() >= 10, "a file system with leases, and time to break one (fs.lease-break-time)")
				rig.NoError(t, err)

				l := rig.Start(t, p, "-r", c.rewrite, "--", program, "-c", "echo executed; sleep 1000")
				rig.Until(t, "the start of execve", func() bool {
					lease, err := unix.FcntlInt(held.Fd(), unix.F_GETLEASE, 0)
					return err == nil && lease == unix.F_RDLCK // what the kernel waits for
				})
				l.Signal(c.sig)
				if c.sig == unix.SIGTERM && !p.Alone {
					l.MustEnd(128 + int(unix.SIGTERM))
					if said := l.Out.Rest(); len(said) > 0 {
						t.Errorf("the command said %q", said)
					}
					return
				}
				_ = held.Close()
				l.MustEnd(128 + int(c.as))
			})
		}
	}
}

// leaseBreakTime is how many seconds execve(2) waits for a lease. See proc_sys_fs(5).
func leaseBreakTime() (seconds int) {
	text, _ := os.ReadFile("/proc/sys/fs/lease-break-time")
	_, _ = fmt.Sscan(string(text), &seconds)
	return seconds
}
