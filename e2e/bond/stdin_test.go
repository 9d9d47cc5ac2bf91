package bond

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
	"golang.org/x/sys/unix"
)

// A command that does not mind its stdin has the end of it, then SIGTERM, then SIGKILL.
func TestClosedStdinStopsTheCommand(t *testing.T) {
	t.Parallel()
	half := func(t testing.TB) (*os.File, *os.File) { o, th := rig.Socketpair(t); return th, o }
	shut := func(f *os.File) error { return unix.Shutdown(int(f.Fd()), unix.SHUT_WR) }
	full := func(t testing.TB) (*os.File, *os.File) {
		theirs, ours := rig.Pipe(t)
		_, _ = ours.Write(make([]byte, 1000)) // which nobody reads
		return theirs, ours
	}
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for name, tt := range map[string]struct {
			make  func(t testing.TB) (theirs, ours *os.File)
			close func(f *os.File) error
		}{
			"pipe":                     {stdin.Kinds[0].Make, (*os.File).Close},
			"pipe with data":           {full, (*os.File).Close},
			"socketpair":               {stdin.Kinds[1].Make, (*os.File).Close},
			"half-closed socketpair":   {half, shut},
			"a terminal that hangs up": {pty.Open, (*os.File).Close},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				const grace = 3 * time.Second
				theirs, ours := tt.make(t)
				l := stdin.Start(t, p, theirs, append([]string{"-i", "--grace=" + grace.String(), "--"}, rig.Mode("signals")...)...)
				l.Out.Want("ready")
				closed := time.Now()
				rig.NoError(t, tt.close(ours))
				if line, _ := l.Out.Next(); line != "signal 15" || time.Since(closed) < grace {
					t.Errorf("%q came %v after the end of stdin, want SIGTERM after %v", line, time.Since(closed), grace)
				}
				if more := l.Out.Rest(); len(more) > 0 || time.Since(closed) < 2*grace {
					t.Errorf("%q came, and the end %v after that of stdin, want none and %v", more, time.Since(closed), 2*grace)
				}
				l.MustEnd(128 + 9)
			})
		}
		t.Run("/dev/null", func(t *testing.T) {
			null, err := os.Open(os.DevNull)
			rig.NoError(t, err)
			stdin.Start(t, p, null, "-i", "--grace=500ms", "--", "sleep", "1000").MustEnd(128 + 15)
		})
		t.Run("a command that ends with it", func(t *testing.T) {
			theirs, ours := rig.Pipe(t)
			l := stdin.Start(t, p, theirs, "-i", "--", "cat")
			_, _ = io.WriteString(ours, "last\n")
			_ = ours.Close()
			rig.MustRecord(t, "the command says", l.Out.Rest(), "last")
			l.MustEnd(0)
			rig.MustRecord(t, "fini says", l.Err.Rest())
		})
	})
}

// fini's own stops send the signals of --stop-signal, with --grace behind each; the parent's death has the signal of -p.
func TestStopSignals(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		const grace = 300 * time.Millisecond
		flags := []string{"--stop-signal=QUIT,USR1", "-p", "INT", "--grace=" + grace.String()}
		for flag, rungs := range map[string]time.Duration{"-i": 3, "--timeout=5s": 2} { // -i waits first
			l := rig.Start(t, p, append(append(flags, flag, "--"), rig.Mode("signals")...)...)
			closed := time.Now()
			_ = l.Stdin.Close()
			said := l.Out.Rest()
			if took := time.Since(closed); len(said) > 2 && took < rungs*grace {
				t.Errorf("%s: it took %v, want %v", flag, took, rungs*grace)
			}
			if len(said) > 0 && said[0] != "signal 3" {
				said = said[1:] // ready
			}
			rig.MustRecord(t, flag+": the command says", said, "signal 3", "signal 10")
			l.MustEnd(map[bool]int{true: 128 + 9, false: 124}[flag == "-i"])
		}
	})
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		l := rig.Launch(t, p, append([]string{"--stop-signal=QUIT,USR1", "-p", "INT", "--"}, rig.Mode("signals", "2")...)...)
		l.Out.Want("ready")
		rig.MustKill(t, l.Launcher, syscall.SIGKILL)
		rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 2")
	}
}

// A parent process outside of the PID namespace does not die because a process inside sends the signal that would say so.
func TestSignalOfAnotherIsNoDeath(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	l := rig.Start(t, rig.PID1, "-c", "-p", "TERM", "--", "/bin/sh", "-c", "trap 'exit 3' USR1; kill -64 1; kill -USR1 1; while :; do sleep 0.01; done")
	l.MustEnd(3)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}
