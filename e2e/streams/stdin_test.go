package streams

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
)

// Every byte of stdin is the command's, also when it reads slowly and the far end has
// closed long before.
func TestWatchedStdinLosesNoByte(t *testing.T) {
	t.Parallel()
	size := rig.QuickOrFull(8<<20, 64<<20)
	payload := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(payload)
	want := fmt.Sprintf("%x  -", sha256.Sum256(payload))
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, kind := range stdin.Kinds {
			t.Run(kind.Name, func(t *testing.T) {
				theirs, ours := kind.Make(t)
				l := stdin.Start(t, p, theirs, "-i", "--grace=5m", "--", "sha256sum")
				if _, err := ours.Write(payload); err != nil {
					t.Fatal(err)
				}
				_ = ours.Close()
				l.Out.Want(want)
				l.MustEnd(0)
			})
			t.Run("slow reader of a "+kind.Name, func(t *testing.T) {
				t.Parallel()
				// It takes several times the grace for what the far end left behind, but not for a line. A
				// machine that takes that long to start sleep is given more of both.
				const lines = 16
				for slower := 1; ; slower *= 4 {
					theirs, ours := kind.Make(t)
					l := stdin.Start(t, p, theirs, "-i", fmt.Sprintf("--grace=%dms", 1500*slower), "--", "/bin/sh", "-c",
						fmt.Sprintf("while read line; do sleep %.1f; echo $line; done; echo end", 0.2*float64(slower)))
					if _, err := io.WriteString(ours, strings.Repeat("line\n", lines)); err != nil {
						t.Fatal(err)
					}
					_ = ours.Close()
					if got := l.Out.Rest(); len(got) == lines+1 && got[lines] == "end" {
						l.MustEnd(0)
						break
					} else if slower == 16 {
						t.Errorf("got %d lines of %d", len(got), lines+1)
						break
					}
				}
			})
		}
	})
}

func TestUnwatchedStdinMayEnd(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for name, c := range map[string]struct {
			flag   string
			atOnce bool // stdin has ended before the start
		}{
			"no flag":                {"--grace=0", false},
			"--idle":                 {"--idle=1h", false},
			"--idle, from /dev/null": {"--idle=1h", true},
		} {
			t.Run(name, func(t *testing.T) {
				cmd := p.Command(c.flag, "--grace=0", "--", "/bin/sh", "-c", "cat; echo ready; exec "+strings.Join(rig.Mode("signals", "10"), " "))
				if c.atOnce {
					null, err := os.Open(os.DevNull)
					rig.NoError(t, err)
					defer func() { _ = null.Close() }()
					cmd.Stdin = null
				}
				l := rig.StartCmd(t, cmd)
				_ = l.Stdin.Close()
				l.Out.Want("ready")
				l.Out.Want("ready")
				l.Signal(syscall.SIGUSR1)
				rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 10")
				l.MustEnd(7)
			})
		}
	})
}

func TestStdinThatCannotBeWatchedIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	rig.NoError(t, os.WriteFile(file, []byte("text"), 0o644))
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, name := range []string{file, t.TempDir(), "/dev/zero", "a datagram socket"} {
			in, err := os.Open(name)
			if name == "a datagram socket" {
				var pair [2]int
				pair, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
				in = os.NewFile(uintptr(pair[0]), name)
				defer func() { _ = syscall.Close(pair[1]) }()
			}
			rig.NoError(t, err)
			cmd := p.Command("-i", "--", "echo", "started")
			cmd.Stdin = in
			status, stdout, stderr := rig.Ask(t, cmd)
			_ = in.Close()
			if status != 125 || stdout != "" || !strings.HasPrefix(stderr, "fini: --stdin-eof: cannot watch standard input: ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
			}
		}
	})
}
