package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var stdinKinds = []struct {
	name string
	make func(t testing.TB) (theirs, ours *os.File)
}{
	{"pipe", func(t testing.TB) (*os.File, *os.File) { return pipe(t) }},
	{"socketpair", func(t testing.TB) (*os.File, *os.File) { o, th := socketpair(t); return th, o }},
}

// startWithStdin runs fini with the given end of a pipe or socketpair as its stdin.
func startWithStdin(t testing.TB, p place, stdin *os.File, args ...string) *life {
	t.Helper()
	cmd := p.command(args...)
	cmd.Stdin = stdin
	l := startCmd(t, cmd)
	_ = stdin.Close()
	return l
}

// Every byte of stdin is the command's, also when it reads slowly and the far end has
// closed long before.
func TestWatchedStdinLosesNoByte(t *testing.T) {
	t.Parallel()
	size := quickOrFull(8<<20, 64<<20)
	payload := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(payload)
	want := fmt.Sprintf("%x  -", sha256.Sum256(payload))
	inPlaces(t, func(t *testing.T, p place) {
		for _, kind := range stdinKinds {
			t.Run(kind.name, func(t *testing.T) {
				theirs, ours := kind.make(t)
				l := startWithStdin(t, p, theirs, "-i", "--grace=1s", "--", "sha256sum")
				if _, err := ours.Write(payload); err != nil {
					t.Fatal(err)
				}
				_ = ours.Close()
				l.Out.want(want)
				l.mustEnd(0)
			})
			t.Run("slow reader of a "+kind.name, func(t *testing.T) {
				t.Parallel()
				// It takes several times the grace for what the far end left behind, but not for a line. A
				// machine that takes that long to start sleep is given more of both.
				const lines = 16
				for slower := 1; ; slower *= 4 {
					theirs, ours := kind.make(t)
					l := startWithStdin(t, p, theirs, "-i", fmt.Sprintf("--grace=%dms", 1500*slower), "--", "/bin/sh", "-c",
						fmt.Sprintf("while read line; do sleep %.1f; echo $line; done; echo end", 0.2*float64(slower)))
					if _, err := io.WriteString(ours, strings.Repeat("line\n", lines)); err != nil {
						t.Fatal(err)
					}
					_ = ours.Close()
					if got := l.Out.rest(); len(got) == lines+1 && got[lines] == "end" {
						l.mustEnd(0)
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

// A command that does not mind its stdin has the end of it, then SIGTERM, then SIGKILL.
func TestClosedStdinStopsTheCommand(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	half := func(t testing.TB) (*os.File, *os.File) { o, th := socketpair(t); return th, o }
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range []struct {
			name  string
			make  func(t testing.TB) (*os.File, *os.File)
			close func(f *os.File) error
		}{
			{"pipe", stdinKinds[0].make, (*os.File).Close},
			{"socketpair", stdinKinds[1].make, (*os.File).Close},
			{"half-closed socketpair", half, func(f *os.File) error { return unix.Shutdown(int(f.Fd()), unix.SHUT_WR) }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := tt.make(t)
				l := startWithStdin(t, p, theirs, append([]string{"-i", "--grace=" + grace.String(), "--"}, mode("signals")...)...)
				l.Out.want("ready")
				closed := time.Now()
				if err := tt.close(ours); err != nil {
					t.Fatal(err)
				}
				if line, _ := l.Out.next(); line != "signal 15" || time.Since(closed) < grace {
					t.Errorf("%q came %v after the end of stdin, want SIGTERM after %v", line, time.Since(closed), grace)
				}
				if more := l.Out.rest(); len(more) > 0 || time.Since(closed) < 2*grace {
					t.Errorf("%q came, and the end %v after that of stdin, want none and %v", more, time.Since(closed), 2*grace)
				}
				l.mustEnd(128 + 9)
			})
		}
		t.Run("with data that nobody reads", func(t *testing.T) {
			t.Parallel()
			theirs, ours := pipe(t)
			l := startWithStdin(t, p, theirs, "-i", "--grace=500ms", "--", "sleep", "1000")
			_, _ = ours.Write(make([]byte, 1000))
			_ = ours.Close()
			l.mustEnd(128 + 15)
		})
		t.Run("/dev/null", func(t *testing.T) {
			null, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			startWithStdin(t, p, null, "-i", "--grace=500ms", "--", "sleep", "1000").mustEnd(128 + 15)
		})
		t.Run("a terminal that hangs up", func(t *testing.T) {
			theirs, ours := terminal(t)
			l := startWithStdin(t, p, theirs, "-i", "--grace=500ms", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
			l.Out.want("ready")
			_ = ours.Close()
			l.mustEnd(128 + 15)
		})
		t.Run("a command that ends with it", func(t *testing.T) {
			theirs, ours := pipe(t)
			l := startWithStdin(t, p, theirs, "-i", "--", "cat")
			_, _ = io.WriteString(ours, "last\n")
			_ = ours.Close()
			if got := l.Out.rest(); !slices.Equal(got, []string{"last"}) {
				t.Errorf("got %q", got)
			}
			l.mustEnd(0)
			if said := l.Err.whole(); said != "" {
				t.Errorf("says %q", said)
			}
		})
	})
}

// terminal opens a pty.
func terminal(t testing.TB) (theirs, ours *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}

func TestUnwatchedStdinMayEnd(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--grace=0", "--", "/bin/sh", "-c", "cat; echo ready; exec "+strings.Join(mode("signals", "10"), " "))
		_ = l.Stdin.Close()
		l.Out.want("ready")
		l.Out.want("ready")
		l.signal(syscall.SIGUSR1)
		if got := l.Out.rest(); !slices.Equal(got, []string{"signal 10"}) {
			t.Errorf("got %q", got)
		}
		l.mustEnd(7)
	})
}

func TestStdinThatCannotBeWatchedIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, name := range []string{file, t.TempDir(), "/dev/zero"} {
			in, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			cmd := p.command("-i", "--", "echo", "started")
			cmd.Stdin = in
			status, stdout, stderr := ask(t, cmd)
			_ = in.Close()
			if status != 125 || stdout != "" || !strings.HasPrefix(stderr, "fini: --stdin-eof: cannot watch standard input: ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
			}
		}
	})
}
