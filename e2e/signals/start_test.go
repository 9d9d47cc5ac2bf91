package signals

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// A signal that comes while fini starts is not lost: it waits until there is a command, and is
// sent on to that, or it ends fini before fini's first instruction. All of them end the command.
func TestSignalWhileFiniStarts(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	for _, p := range rig.AloneOrPair(t) {
		for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGALRM, unix.SIGTERM, 40} {
			t.Run(fmt.Sprint(p.Name, " ", sig), func(t *testing.T) {
				t.Parallel()
				for range rig.QuickOrFull(8, 20) {
					l := rig.Start(t, p, "--", "sleep", "1000")
					time.Sleep(rand.N(3 * time.Millisecond))
					l.Signal(sig)
					l.MustEnd(128 + int(sig))
				}
			})
		}
	}
}

// A write lease of this process keeps the command's execve(2) waiting until it is given back: see fcntl(2). A signal
// waits with it, and then reaches the command. But a terminating signal ends a pair, and the command is not executed.
func TestSignalWhileExecveHangs(t *testing.T) {
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	shell, err := os.ReadFile("/bin/sh")
	must(err)
	for _, p := range rig.AloneOrPair(t) {
		for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGTERM} {
			t.Run(fmt.Sprint(p.Name, " ", sig), func(t *testing.T) {
				program := filepath.Join(t.TempDir(), "sh")
				must(os.WriteFile(program, shell, 0o755))
				held, err := os.Open(program)
				must(err)
				defer func() { _ = held.Close() }()
				_, err = unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				must(err)

				l := rig.Start(t, p, "--", program, "-c", "echo executed; sleep 1000")
				rig.Until(t, "the start of execve", func() bool {
					lease, err := unix.FcntlInt(held.Fd(), unix.F_GETLEASE, 0)
					return err == nil && lease == unix.F_RDLCK // what the kernel waits for
				})
				l.Signal(sig)
				if sig == unix.SIGUSR1 || p.Alone {
					_ = held.Close()
				}
				l.MustEnd(128 + int(sig))
				if said := l.Out.Rest(); len(said) > 0 && sig == unix.SIGTERM && !p.Alone {
					t.Errorf("the command said %q", said)
				}
			})
		}
	}
}
