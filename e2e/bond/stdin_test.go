package bond

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
	"golang.org/x/sys/unix"
)

// A command that does not mind its stdin has the end of it, then SIGTERM, then SIGKILL.
func TestClosedStdinStopsTheCommand(t *testing.T) {
	t.Parallel()
	half := func(t testing.TB) (*os.File, *os.File) { o, th := rig.Socketpair(t); return th, o }
	shut := func(f *os.File) error { return unix.Shutdown(int(f.Fd()), unix.SHUT_WR) }
	full := func(t testing.TB) (theirs, ours *os.File) {
		theirs, ours = rig.Pipe(t)
		_, _ = ours.Write(make([]byte, 1000)) // which nobody reads
		return theirs, ours
	}
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for name, tt := range map[string]struct {
			make  func(t testing.TB) (theirs, ours *os.File)
			close func(f *os.File) error
		}{
			"pipe":                     {rig.Pipe, (*os.File).Close},
			"pipe with data":           {full, (*os.File).Close},
			"socketpair":               {half, (*os.File).Close},
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

// A command whose client holds its stdin and says nothing more is stopped, whatever runs beside it.
func TestIdle(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		kinds := map[string]func(t testing.TB) (theirs, ours *os.File){"pipe": rig.Pipe, "socketpair": rig.Socketpair, "terminal": pty.Open}
		for name, open := range kinds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := open(t)
				report := reports.Path(t)
				began := time.Now()
				// What has another stdin may read and write all the time, and a shell that waits may hold it.
				l := stdin.Start(t, p, theirs, "--idle=1s", "--report="+report, "--", "/bin/sh", "-c",
					`perl -e 'while (1) { syswrite(STDOUT, "x"); select(undef, undef, undef, 0.01) }' </dev/null >/dev/null & sh -c 'cat; :'; :`)
				_, _ = io.WriteString(ours, "hello\n")
				l.Out.Want("hello")
				l.MustEnd(124)
				if took := time.Since(began); took < time.Second {
					t.Errorf("idle after %v", took)
				}
				rig.MustRecord(t, "fini says", l.Err.Rest()[:1], "fini: stopping the command: no process with its standard input has read or written anything for 1s (--idle)")
				if r := reports.MustHave(t, report); r.Stopped != "idle" || r.Status != 124 {
					t.Errorf("reports %v", r)
				}
				_ = ours.Close()
			})
		}
	})
}

// Whatever is sent within the time of --idle after the line before is answered. A line that comes later may find the
// command stopped, and then there is another.
func TestIdleLosesNoLine(t *testing.T) {
	t.Parallel()
	const idle = 100 * time.Millisecond
	lines, stops := rig.QuickOrFull(600, 10_000), 0
	for sent := 0; sent < lines; {
		l := rig.Start(t, rig.Pair, "-q", fmt.Sprint("--idle=", idle), "--", "cat")
		// A busy machine may come to send SIGTERM only after a line or two that follow a long gap.
		gaps := [3]time.Duration{idle, idle, idle}
		for last := time.Now(); ; sent++ {
			time.Sleep(time.Duration(rand.Int64N(int64(idle / 4)))) // mostly: a line in ten comes late
			if rand.IntN(10) == 0 {
				time.Sleep(idle)
			}
			before := time.Now()
			_, _ = fmt.Fprintln(l.Stdin, sent)
			gap := time.Since(last) // of the command, at most: it read the line before after it was sent
			last, gaps[sent%3] = before, gap
			if line, _ := l.Out.Next(); line == fmt.Sprint(sent) {
				if sent < lines {
					continue
				}
			} else if slices.Max(gaps[:]) < idle {
				t.Errorf("line %d was not answered, and no gap before it was longer than %v", sent, slices.Max(gaps[:]))
			} else {
				stops++
			}
			break
		}
		_ = l.Stdin.Close()
		if status := l.Status(); status != 124 && status != 0 {
			t.Errorf("status %d", status)
		}
	}
	if t.Logf("%d lines, %d stops", lines, stops); stops == 0 {
		t.Error("no command was ever stopped")
	}
}

// What can't be watched is refused, or left alone.
func TestIdleOfOtherInput(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.Args[0])
	rig.NoError(t, err)
	l := stdin.Start(t, rig.Pair, file, "--idle=1s", "--", "/bin/sh", "-c", "echo started")
	l.MustEnd(125)
	if said := l.Err.Whole(); !strings.HasPrefix(said, "fini: --idle: cannot watch standard input: ") || strings.Contains(l.Out.Text(), "started") {
		t.Errorf("says %q", said)
	}
	null, err := os.Open(os.DevNull)
	rig.NoError(t, err)
	l = stdin.Start(t, rig.Pair, null, "--idle=1ms", "--", "sleep", "0.5") // twice as long as 8 looks at least
	l.MustEnd(0)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

// Where fini may not see whether a command reads and writes, it says so once, and stops nothing.
func TestIdleOfAnotherUser(t *testing.T) {
	t.Parallel()
	argv := as(t, "12345", rig.Fini, "--idle=80ms", "--") // root may make a program set-user-ID
	l := rig.StartCmd(t, rig.CommandOf(append(argv, refusals.SetUserID(t, need.Program(t, "cat")))))
	l.Err.Want("fini: cannot read what ")
	for range 3 { // as many looks as would stop it
		time.Sleep(100 * time.Millisecond)
		rig.Write(t, l, "line\n")
		l.Out.Want("line")
	}
	_ = l.Stdin.Close()
	l.MustEnd(0)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}
