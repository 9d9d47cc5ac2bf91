package bond

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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
)

// A command whose client holds its stdin and says nothing more is stopped, whatever runs beside it.
func TestIdle(t *testing.T) {
	t.Parallel()
	kinds := append(stdin.Kinds[:2:2], struct {
		Name string
		Make func(t testing.TB) (theirs, ours *os.File)
	}{"terminal", pty.Open})
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, kind := range kinds {
			t.Run(kind.Name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := kind.Make(t)
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
		theirs, ours := rig.Pipe(t)
		outR, outW := rig.Pipe(t)
		cmd := exec.Command(rig.Fini, "-q", fmt.Sprint("--idle=", idle), "--", "cat")
		cmd.Stdin, cmd.Stdout = theirs, outW
		l := rig.StartCmd(t, cmd)
		_, _ = theirs.Close(), outW.Close()
		answers := bufio.NewScanner(outR)
		// A busy machine may come to send SIGTERM only after a line or two that follow a long gap.
		gaps := [3]time.Duration{idle, idle, idle}
		for last := time.Now(); ; sent++ {
			time.Sleep(time.Duration(rand.Int64N(int64(idle / 4)))) // mostly: a line in ten comes late
			if rand.IntN(10) == 0 {
				time.Sleep(idle)
			}
			before := time.Now()
			_, _ = fmt.Fprintln(ours, sent)
			gap := time.Since(last) // of the command, at most: it read the line before after it was sent
			last, gaps[sent%3] = before, gap
			if answers.Scan() && answers.Text() == fmt.Sprint(sent) {
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
		_ = ours.Close()
		if status := l.Status(); status != 124 && status != 0 {
			t.Errorf("status %d", status)
		}
	}
	if t.Logf("%d lines, %d stops", lines, stops); stops == 0 {
		t.Error("no command was ever stopped")
	}
}

// fini looks at most eight times in the time of --idle.
func TestIdleLooksEightTimes(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	theirs, _ := rig.Pipe(t)
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-o", trace, "-e", "trace=openat,execve", rig.Fini, "--no-shield", "--idle=2s", "--", "cat")
	cmd.Stdin = theirs
	rig.StartCmd(t, cmd).MustEnd(124)
	// The first look finds what cat has read to start.
	if looks := strings.Count(rig.ReadFile(t, trace), `/io", O_RDONLY`); looks < 8 || looks > 10 {
		t.Errorf("%d looks, want 9", looks)
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
	need.That(t, os.Geteuid() == 0, "root, to make a program set-user-ID")
	cat := refusals.SetUserID(t, need.Program(t, "cat"))
	theirs, ours := rig.Pipe(t)
	cmd := users(t)[1].Command("--idle=80ms", "--", cat)
	cmd.Stdin = theirs
	l := rig.StartCmd(t, cmd)
	l.Err.Want("fini: cannot read what ")
	for range 3 { // as many looks as would stop it
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(ours, "line\n")
		l.Out.Want("line")
	}
	_ = ours.Close()
	l.MustEnd(0)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

// An account is one as which a test runs fini.
type account struct {
	Name string
	As   []string // what to put in front of a command
}

// users are root and somebody else, or whoever runs the tests.
func users(t *testing.T) []account {
	t.Helper()
	if os.Geteuid() != 0 {
		return []account{{"user", nil}}
	}
	return []account{
		{"root", nil},
		{"user", []string{need.Program(t, "setpriv"), "--reuid=12345", "--regid=12345", "--groups=12345,12346"}},
	}
}

func (u account) Command(args ...string) *exec.Cmd {
	words := slices.Concat(u.As, []string{rig.Fini}, args)
	return exec.Command(words[0], words[1:]...)
}
