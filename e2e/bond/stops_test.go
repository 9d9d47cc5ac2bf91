package bond

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

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
				for idle := time.Second; ; idle *= 4 {
					theirs, ours := open(t)
					report := reports.Path(t)
					_, _ = io.WriteString(ours, "hello\n") // the command isn't idle until it has read that
					began := time.Now()
					// What has another stdin may read and write all the time, and a shell that waits may hold it.
					l := stdin.Start(t, p, theirs, "--idle="+idle.String(), "--report="+report, "--", "/bin/sh", "-c",
						`perl -e 'while (1) { syswrite(STDOUT, "x"); select(undef, undef, undef, 0.01) }' </dev/null >/dev/null & sh -c 'cat; :'; :`)
					if line, _ := l.Out.Next(); line != "hello" && idle < rig.EnoughNow()/4 {
						_ = l.Status() // the machine has stopped cat, which had read it, for that long
						continue
					}
					l.MustEnd(124)
					if took := time.Since(began); took < idle {
						t.Errorf("idle after %v, want %v", took, idle)
					}
					rig.MustRecord(t, "fini says", l.Err.Rest()[:1], fmt.Sprintf("fini: stopping the command: no process with its standard input has read or written anything for %v (--idle)", idle))
					if r := reports.MustHave(t, report); r.Stopped != "idle" || r.Status != 124 {
						t.Errorf("reports %v", r)
					}
					_ = ours.Close()
					return
				}
			})
		}
	})
}

// What can't be watched is refused, or left alone, as is a command that has not read all that was sent.
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
	unread, ours := rig.Pipe(t)
	_, _ = ours.WriteString("a line")
	for _, theirs := range []*os.File{null, unread} {
		l = stdin.Start(t, rig.Pair, theirs, "--idle=1ms", "--", "sleep", "0.5") // twice as long as 8 looks at least
		l.MustEnd(0)
		rig.MustRecord(t, "fini says", l.Err.Rest())
	}
}

// Where fini may not see whether a command reads and writes, it says so once, and stops nothing.
func TestIdleOfAnotherUser(t *testing.T) {
	t.Parallel()
	argv := as(t, "12345", rig.Fini, "--idle=80ms", "--") // root may make a program set-user-ID
	l := rig.StartCmd(t, rig.CommandOf(append(argv, refusals.SetUserID(t, need.Program(t, "cat")))))
	l.Err.Want("fini: cannot read what ")
	for range 3 { // meanwhile, a command that fini may look at is stopped
		rig.Start(t, rig.Pair, "--idle=80ms", "--", "cat").MustEnd(124)
		rig.Write(t, l, "line\n")
		l.Out.Want("line")
	}
	_ = l.Stdin.Close()
	l.MustEnd(0)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for name, script := range map[string]string{
			"ends on TERM":      "echo ready; exec sleep 1000",
			"ends well":         "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
			"ignores TERM":      "trap '' TERM; echo ready; sleep 1000; sleep 1000",
			"leaves a leftover": "setsid sh -c 'trap \"\" TERM; echo ready; sleep 1000; sleep 1000' & exec sleep 1000",
			"is stopped":        "trap 'exit 0' TERM; echo ready; kill -STOP $$; sleep 1000",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
					return rig.Start(t, p, timeout, "--grace=100ms", "--linger=0", "--", "/bin/sh", "-c", script)
				}).MustEnd(124)
			})
		}
	})
}

// fini's own stops send the signals of --stop-signal, and not that of -p, with --grace behind each.
func TestStopSignals(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		want := []string{"signal 3", "signal 10"}
		for grace := time.Second; ; grace *= 4 {
			l := rig.Start(t, p, append([]string{"-i", "--stop-signal=QUIT,USR1", "-p", "INT", "--grace=" + grace.String(), "--"}, rig.Mode("signals")...)...)
			l.Out.Want("ready")
			_ = l.Stdin.Close()
			got := l.Out.Rest()
			l.MustEnd(128 + 9)
			if slices.Equal(got, want[:len(got)%len(want)]) && grace < rig.EnoughNow()/4 {
				continue // the machine has stopped the command for that long, so that it could not say all
			}
			rig.MustRecord(t, "the command says", got, want...)
			return
		}
	})
}

// The end of stdin gives the command --grace before the stop signal, even if a signal that it survived has started -k.
func TestClosedStdinAfterKillAfterBegan(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		const grace = time.Second
		l := rig.Start(t, p, append([]string{"-i", "-k", "1h", "--grace=" + grace.String(), "--"}, rig.Mode("signals")...)...)
		l.Out.Want("ready")
		l.Caught()
		l.Signal(syscall.SIGTERM)
		l.Out.Want("signal 15")
		closed := time.Now()
		_ = l.Stdin.Close()
		l.Out.Want("signal 15")
		if took := time.Since(closed); took < grace {
			t.Errorf("the stop signal came %v after the end of stdin, want %v", took, grace)
		}
		l.MustEnd(128 + 9)
	})
}

// A signal that came for something else, just before fini stops the command for a reason of its own, is not its stop signal.
func TestStopSignalComesAfterAReload(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		const reload = 40
		l := rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
			return rig.Start(t, p, append([]string{timeout, "--stop-signal=40", "--grace=1h", "--"}, rig.Mode("signals", "12")...)...)
		})
		l.Caught()
		want := fmt.Sprint("signal ", reload)
		l.Signal(reload)
		l.Out.Want(want)
		if !strings.Contains(l.Err.Text(), "--timeout=") { // otherwise Go may have merged both in the command
			l.Out.Want(want)
		}
		l.Signal(syscall.SIGUSR2)
		l.Out.Rest()
		l.MustEnd(124)
	})
}

// A parent process outside of the PID namespace does not die because a process inside sends the signal that would say so.
func TestSignalOfAnotherIsNoDeath(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	l := rig.Start(t, rig.PID1, "-c", "-p", "TERM", "--", "/bin/sh", "-c", "trap 'exit 3' USR1; kill -64 1; kill -USR1 1; while :; do sleep 0.01; done")
	l.MustEnd(3)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

// Without a command fini reaps what it is given, until it is told to end.
func TestPause(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
			l := rig.Start(t, p, "-P", "-v")
			l.Err.Want("fini: pausing")
			l.Signal(syscall.SIGUSR1)
			l.Signal(sig)
			l.MustEnd(0)
		}
	})
	t.Run("a wrapper ends with what it is bound to", func(t *testing.T) {
		other := rig.Bystander(t)
		for victim, l := range map[int]*rig.BoundLife{
			other.Process.Pid: rig.Launch(t, rig.Pair, "-P", "-v", fmt.Sprintf("--bind=%d", other.Process.Pid)),
			0:                 rig.Launch(t, rig.Pair, "-P", "-v"),
		} {
			l.Err.Want("fini: pausing")
			rig.MustKill(t, cmp.Or(victim, l.Launcher), syscall.SIGKILL)
			l.MustVanish()
		}
	})
	t.Run("reaps", func(t *testing.T) {
		rig.NeedPidNamespace(t)
		l := rig.Start(t, rig.PID1, "-P", "-v", "-w")
		l.Err.Want("fini: pausing")
		// Whoever enters the namespace leaves its orphans to fini.
		rig.Succeed(t, rig.CommandOf(append(enter(l), "/bin/sh", "-c", "(sleep 0.1 &)")))
		l.Err.Want("fini: reaped zombie")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(0)
	})
}

// A suspended command is continued to act on the SIGTERM that fini sends it, in each of the ways in which fini may learn that
// it is suspended.
func TestSuspendedCommandActsOnItsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, flags []string }{
		"by wait4":      {nil, nil},
		"-w, by waitid": {nil, []string{"-w"}},
	} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				l := rig.LaunchBy(t, tt.before, p, append(tt.flags, "--grace=1h", "--", "/bin/sh", "-c",
					`trap "echo asked; exit 6" TERM; echo ready $$; kill -STOP $$; while :; do sleep 0.01; done`)...)
				command := l.Out.WantPID("ready ")
				rig.Until(t, "the command is suspended", func() bool { return procfs.CountStopped([]int{command}) == 1 })
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				l.Out.Want("asked") // before the grace is over
				l.MustVanish()
			})
		}
	}
}

// enter is the words before those of a command by which it runs in the namespaces of a PID 1.
func enter(l *rig.Life) []string {
	l.T.Helper()
	into := []string{need.Program(l.T, "nsenter"), "-t", strconv.Itoa(l.PID()), "-p", "-m"}
	if os.Geteuid() != 0 {
		into = append(into, "-U", "--preserve-credentials") // see AsPID1
	}
	return append(into, "--")
}
