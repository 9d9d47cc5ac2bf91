package bond

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// A command that does not mind its stdin has the end of it, then SIGTERM, then SIGKILL.
func TestClosedStdinStopsTheCommand(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	half := func(t testing.TB) (*os.File, *os.File) { o, th := rig.Socketpair(t); return th, o }
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name  string
			make  func(t testing.TB) (*os.File, *os.File)
			close func(f *os.File) error
		}{
			{"pipe", rig.StdinKinds[0].Make, (*os.File).Close},
			{"socketpair", rig.StdinKinds[1].Make, (*os.File).Close},
			{"half-closed socketpair", half, func(f *os.File) error { return unix.Shutdown(int(f.Fd()), unix.SHUT_WR) }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := tt.make(t)
				l := rig.StartWithStdin(t, p, theirs, append([]string{"-i", "--grace=" + grace.String(), "--"}, rig.Mode("signals")...)...)
				l.Out.Want("ready")
				closed := time.Now()
				if err := tt.close(ours); err != nil {
					t.Fatal(err)
				}
				if line, _ := l.Out.Next(); line != "signal 15" || time.Since(closed) < grace {
					t.Errorf("%q came %v after the end of stdin, want SIGTERM after %v", line, time.Since(closed), grace)
				}
				if more := l.Out.Rest(); len(more) > 0 || time.Since(closed) < 2*grace {
					t.Errorf("%q came, and the end %v after that of stdin, want none and %v", more, time.Since(closed), 2*grace)
				}
				l.MustEnd(128 + 9)
			})
		}
		t.Run("with data that nobody reads", func(t *testing.T) {
			t.Parallel()
			theirs, ours := rig.Pipe(t)
			l := rig.StartWithStdin(t, p, theirs, "-i", "--grace=500ms", "--", "sleep", "1000")
			_, _ = ours.Write(make([]byte, 1000))
			_ = ours.Close()
			l.MustEnd(128 + 15)
		})
		t.Run("/dev/null", func(t *testing.T) {
			null, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			rig.StartWithStdin(t, p, null, "-i", "--grace=500ms", "--", "sleep", "1000").MustEnd(128 + 15)
		})
		t.Run("a terminal that hangs up", func(t *testing.T) {
			theirs, ours := rig.Terminal(t)
			l := rig.StartWithStdin(t, p, theirs, "-i", "--grace=500ms", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
			l.Out.Want("ready")
			_ = ours.Close()
			l.MustEnd(128 + 15)
		})
		t.Run("a command that ends with it", func(t *testing.T) {
			theirs, ours := rig.Pipe(t)
			l := rig.StartWithStdin(t, p, theirs, "-i", "--", "cat")
			_, _ = io.WriteString(ours, "last\n")
			_ = ours.Close()
			if got := l.Out.Rest(); !slices.Equal(got, []string{"last"}) {
				t.Errorf("got %q", got)
			}
			l.MustEnd(0)
			if said := l.Err.Whole(); said != "" {
				t.Errorf("says %q", said)
			}
		})
	})
}
