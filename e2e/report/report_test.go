package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The command's own end, and why fini stopped it.
func TestReportOfTheCommand(t *testing.T) {
	t.Parallel()
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	ready := func(l *rig.Life) { l.Out.Want("ready") }
	tests := []struct {
		name    string
		flags   []string
		command []string
		drive   func(l *rig.Life)
		status  int
		want    string
		signals []string
	}{
		{"clean", nil, sh(""), nil, 0, "0 exit 0", nil},
		{"status", nil, sh("exit 200"), nil, 200, "200 exit 200", nil},
		{"remapped", []string{"-e", "200"}, sh("exit 200"), nil, 0, "0 exit 200", nil},
		{"signal", nil, sh("kill -TERM $$"), nil, 143, "143 SIGTERM", nil},
		{"killed", nil, sh("kill -KILL $$"), nil, 137, "137 SIGKILL", nil},
		{"timeout", nil, sh("echo ready; exec sleep 1000"), nil, 124, "124 SIGTERM for timeout", nil},
		{"timeout and SIGKILL", []string{"--grace=50ms"}, sh(`trap "" TERM; echo ready; sleep 1000; :`), nil, 124, "124 SIGKILL for timeout", nil},
		// Its leftover is ready when the command has been reaped.
		{"timeout after the end", []string{"--linger=1h"}, sh(`(while test -e /proc/$$; do sleep 0.01; done; echo ready; exec sleep 1000) & exit 3`),
			nil, 3, "3 exit 3 for timeout", nil},
		{"stdin closed", []string{"-i", "--grace=500ms"}, sh("echo ready; exec sleep 1000"), func(l *rig.Life) {
			l.Out.Want("ready")
			_ = l.Stdin.Close()
		}, 143, "143 SIGTERM for stdin", nil},
		{"stdin not watched", nil, sh("read line || exit 4"), func(l *rig.Life) { _ = l.Stdin.Close() }, 4, "4 exit 4", nil},
		{"signals", nil, rig.Mode("signals", "10"), func(l *rig.Life) {
			ready(l)
			l.Caught()
			for _, sig := range []syscall.Signal{unix.SIGUSR2, unix.SIGHUP, 37} {
				l.Signal(sig)
				l.Out.Want(fmt.Sprint("signal ", int(sig)))
			}
			l.Signal(unix.SIGUSR1)
		}, 7, "7 exit 7", []string{"SIGUSR2", "SIGHUP", "SIGRTMIN+3", "SIGUSR1"}},
		{"rewritten signal", []string{"-r", "TERM:USR1"}, rig.Mode("signals", "10"), func(l *rig.Life) {
			ready(l)
			l.Signal(unix.SIGTERM)
		}, 7, "7 exit 7", []string{"SIGTERM"}},
	}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var path string
				before := time.Now()
				begin := func(t testing.TB, flag string) *rig.Life {
					path = rig.ReportPath(t)
					return rig.Start(t, p, slices.Concat([]string{flag, "--report=" + path}, tt.flags, []string{"--"}, tt.command)...)
				}
				var l *rig.Life
				if strings.HasPrefix(tt.name, "timeout") {
					l = rig.OutOfTime(t, begin)
				} else {
					l = begin(t, "--timeout=1h")
				}
				if tt.drive != nil {
					tt.drive(l)
				}
				l.MustEnd(tt.status)
				r := rig.MustHaveReport(t, path)
				if got := r.String(); got != tt.want {
					t.Errorf("reports %q, want %q", got, tt.want)
				}
				if !slices.Equal(r.Command, tt.command) || r.Pid <= 0 || r.Ended == nil {
					t.Errorf("command %q, pid %d, ended %v", r.Command, r.Pid, r.Ended)
				}
				if r.Started.Before(before.Round(0)) || r.Finished.After(time.Now().Round(0)) {
					t.Errorf("from %v to %v, the test is from %v to now", r.Started, r.Finished, before)
				}
				var signals []string
				for _, s := range r.Signals {
					signals = append(signals, s.Signal)
					if s.At.Before(r.Started) || s.At.After(r.Finished) {
						t.Errorf("%s came at %v, the run is from %v to %v", s.Signal, s.At, r.Started, r.Finished)
					}
					// From outside its PID namespace nobody has a pid, or a name.
					if known := s.Sender != nil && s.Sender.Pid == os.Getpid() && s.Sender.Name != ""; known == (p == rig.PID1 || p == rig.Isolated) {
						t.Errorf("%s was sent by %+v, this is %d", s.Signal, s.Sender, os.Getpid())
					}
				}
				if !slices.Equal(signals, tt.signals) {
					t.Errorf("signals %q, want %q", signals, tt.signals)
				}
				if leftovers := len(r.Leftovers); leftovers > 0 && tt.name != "timeout after the end" && tt.name != "timeout and SIGKILL" {
					t.Errorf("leftovers: %+v", r.Leftovers)
				}
			})
		}
	})
}

func TestReportOfTheLaunchersDeath(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			l := rig.Launch(t, p, "--report="+path, "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
			l.Out.Want("ready")
			_ = syscall.Kill(l.Launcher, syscall.SIGKILL)
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
			untilReported(t, path)
			if got := rig.MustHaveReport(t, path).String(); got != "143 SIGTERM for launcher" {
				t.Errorf("reports %q", got)
			}
		})
	}
}

// untilReported waits for a report where nobody can wait for the fini that writes it.
func untilReported(t testing.TB, path string) {
	t.Helper()
	rig.Until(t, "the report", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.HasSuffix(text, []byte("\n}\n"))
	})
}

// Whichever of a pair is killed, the other one writes.
func TestReportOfAPairThatLosesOne(t *testing.T) {
	t.Parallel()
	const script = `sh -c 'trap "" TERM; echo leftover $$; while :; do sleep 1000; done' & echo command $$; wait; exec sleep 1000`
	run := func(t *testing.T) (l *rig.Life, path string, command, leftover int) {
		path = rig.ReportPath(t)
		l = rig.Start(t, rig.Pair, "--grace=100ms", "--linger=0", "--report="+path, "--", "/bin/sh", "-c", script)
		for command == 0 || leftover == 0 { // they speak in any order
			line, ok := l.Out.Next()
			if !ok {
				t.Fatalf("EOF; stderr: %s", l.Err.Text())
			}
			_, _ = fmt.Sscanf(line, "command %d", &command)
			_, _ = fmt.Sscanf(line, "leftover %d", &leftover)
		}
		l.Caught() // so the inner one has told the outer one of the command
		return l, path, command, leftover
	}
	t.Run("inner", func(t *testing.T) {
		t.Parallel()
		l, path, command, leftover := run(t)
		_ = syscall.Kill(l.Worker(), syscall.SIGKILL)
		l.MustEnd(137)
		r := rig.MustHaveReport(t, path)
		if got := r.String(); got != "137 SIGTERM" || r.Pid != command {
			t.Errorf("reports %q, pid %d, want the command's pid %d", got, r.Pid, command)
		}
		r.Leftover(t, leftover).MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
	})
	t.Run("outer", func(t *testing.T) {
		t.Parallel()
		l, path, command, leftover := run(t)
		l.Signal(syscall.SIGKILL)
		if got := l.Status(); got != 137 {
			t.Errorf("status %d", got)
		}
		rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
		untilReported(t, path)
		r := rig.MustHaveReport(t, path)
		if got := r.String(); got != "143 SIGTERM for fini" || r.Pid != command {
			t.Errorf("reports %q, pid %d, want %d", got, r.Pid, command)
		}
		r.Leftover(t, leftover).MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
	})
}

// Each leftover prints its pid behind its word, in its PID namespace, when it is what it is to be.
func TestReportOfLeftovers(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals"), " ")
	rig.InPlacesButIsolated(t, "the command tells pids inside, and the report those outside: see TestIsolatedReport", func(t *testing.T, p rig.Place) {
		if p.Alone && !rig.All() {
			return // it does what the inner one of a pair does
		}
		run := func(t *testing.T, flags, leftovers string, words ...string) (r rig.Reported, pids map[string]int, l *rig.Life) {
			t.Helper()
			path, before := rig.ReportPath(t), time.Now()
			l = rig.Start(t, p, slices.Concat([]string{"--report=" + path}, strings.Fields(flags), []string{"--", "/bin/sh", "-c",
				leftovers + "\nread go; exit 9"})...)
			pids = map[string]int{}
			for len(pids) < len(words) {
				line, ok := l.Out.Next()
				if !ok {
					t.Fatalf("EOF; stderr: %s", l.Err.Text())
				}
				var word string
				var pid int
				if _, err := fmt.Sscan(line, &word, &pid); err == nil && slices.Contains(words, word) {
					pids[word] = pid
				}
			}
			rig.Write(t, l, "go\n")
			l.MustEnd(9)
			r = rig.MustHaveReport(t, path)
			if got := r.String(); got != "9 exit 9" {
				t.Errorf("reports %q", got)
			}
			for _, left := range r.Leftovers {
				// A start is told to 10 ms, cut off and rounded.
				if left.Started.Before(before.Add(-20*time.Millisecond)) || left.Started.After(r.Finished.Add(20*time.Millisecond)) {
					t.Errorf("leftover %d started at %v; fini ran from %v to %v", left.Pid, left.Started, r.Started, r.Finished)
				}
			}
			return r, pids, l
		}
		t.Run("ends on SIGTERM", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0", `setsid sleep 1000 & `+rig.UntilSleeps+`; echo sleeps $!`, "sleeps")
			left := r.Leftover(t, pids["sleeps"])
			left.MustBe(t, "SIGTERM", "SIGTERM")
			if left.Group != left.Pid || left.Session != left.Pid || len(left.StartedBy) > 0 || len(r.Leftovers) != 1 || r.Reaped != 1 {
				t.Errorf("it is %+v, one of %d; reaped %d", left, len(r.Leftovers), r.Reaped)
			}
		})
		t.Run("needs SIGKILL", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0 --grace=50ms", signals+" &", "ready")
			left := r.Leftover(t, pids["ready"])
			left.MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
			if left.Command != signals || left.Group != r.Pid {
				t.Errorf("it is %+v, want %q in group %d", left, signals, r.Pid)
			}
		})
		t.Run("exits", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0", signals+" 15 &", "ready")
			r.Leftover(t, pids["ready"]).MustBe(t, "SIGTERM", "exit 7")
		})
		// Its stdin ends with the command.
		const ends = `dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; echo made $$`
		t.Run("ends within linger", func(t *testing.T) {
			t.Parallel()
			r, _, l := run(t, "--linger=1h", ends, "made")
			if said := l.Err.Whole(); len(r.Leftovers) > 0 || r.Reaped != 1 || said != "" {
				t.Errorf("leftovers %+v, reaped %d, says %q", r.Leftovers, r.Reaped, said)
			}
		})
		t.Run("is waited for", func(t *testing.T) {
			t.Parallel()
			if r, _, _ := run(t, "--orphans=wait", ends, "made"); len(r.Leftovers) > 0 || r.Reaped != 1 {
				t.Errorf("leftovers %+v, reaped %d, want none and 1", r.Leftovers, r.Reaped)
			}
		})
		t.Run("chain", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0 --grace=50ms",
				`sh -c 'trap "" TERM; echo top $$; sh -c "echo middle \$\$; $0 & wait; :"; :' "`+signals+`" &`, "top", "middle", "ready")
			for word, above := range map[string][]string{"top": {}, "middle": {"top"}, "ready": {"middle", "top"}} {
				left := r.Leftover(t, pids[word])
				var want, got []int
				for _, a := range above {
					want = append(want, pids[a])
				}
				for _, a := range left.StartedBy {
					got = append(got, a.Pid)
					if a.Name != "sh" {
						t.Errorf("%s was started by %q", word, a.Name)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s was started by %v, want %v", word, got, want)
				}
			}
		})
		for _, holds := range []struct{ redirect, want string }{
			{"2>/dev/null", "stdout"}, {">&2 2>/dev/null", "stderr"}, {"", "stdout stderr"}, {">/dev/null 2>&1", ""},
		} {
			t.Run("holds "+holds.want, func(t *testing.T) {
				t.Parallel()
				r, _, l := run(t, "--linger=0",
					`sleep 1000 `+holds.redirect+` & `+rig.UntilSleeps+`; echo holds $!`, "holds")
				if len(r.Leftovers) != 1 || strings.Join(r.Leftovers[0].Holds, " ") != holds.want {
					t.Errorf("leftovers %+v, want one that holds %q", r.Leftovers, holds.want)
				}
				if line := l.Err.Whole(); strings.Contains(line, "which holds") != (holds.want != "" && !p.PID1) {
					t.Errorf("says %q", line)
				}
			})
		}
		t.Run("25", func(t *testing.T) {
			t.Parallel()
			r, _, l := run(t, "--linger=0", `for i in $(seq 25); do sleep 1000 & `+rig.UntilSleeps+`; done; echo made $$`, "made")
			if len(r.Leftovers) != 25 || r.Reaped != 25 {
				t.Errorf("%d leftovers, reaped %d, want 25", len(r.Leftovers), r.Reaped)
			}
			for _, left := range r.Leftovers {
				left.MustBe(t, "SIGTERM", "SIGTERM")
			}
			said := l.Err.Whole()
			if lines := strings.Count(said, "stopping leftover"); lines != 20 || !strings.HasSuffix(said, "fini: stopped 25 leftovers in all\n") {
				t.Errorf("says %d of 25: %s", lines, said)
			}
		})
		// It had SIGTERM with the group: fini sends none, and the report has it once.
		t.Run("had SIGTERM with the group", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			l := rig.Start(t, p, "--linger=0", "--grace=1s", "--report="+path, "--", "/bin/sh", "-c",
				`trap "exit 3" TERM; `+signals+` & while :; do wait; done`)
			pid := l.Out.WantPID("ready ")
			rig.UntilOlder(t)
			l.Signal(syscall.SIGTERM)
			if got := l.Out.Rest(); !slices.Equal(got, []string{"signal 15"}) {
				t.Errorf("the leftover got %q, want SIGTERM once", got)
			}
			l.MustEnd(3)
			rig.MustHaveReport(t, path).Leftover(t, pid).MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
		})
	})
}

// What a command line holds arrives as it is, but for what can't be in JSON.
func TestReportOfOddArguments(t *testing.T) {
	t.Parallel()
	odd := []string{"", `"`, `\`, "a\nb", "\x01\x1b[31m", "\xff\xfe\xc3", "é ünd 漢", "<&>", "\u2028", "\ufffd", strings.Repeat("x", 100_000)}
	want := slices.Clone(odd)
	want[5] = "\ufffd\ufffd\ufffd"
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		path := rig.ReportPath(t)
		// The leftover has the same arguments, but for the long one.
		last := len(odd) - 1
		script := `f() { last=$1; setsid sh -c 'echo ready; read x; :' "$@" <"$0" & }; shift; f "$@"; read go; exit 0`
		g := rig.NewGate(t)
		l := rig.Start(t, p, slices.Concat([]string{"--linger=0", "--report=" + path, "--", "/bin/sh", "-c", script, g.Name, odd[last]}, odd[:last])...)
		l.Out.Want("ready")
		rig.Write(t, l, "go\n")
		l.MustEnd(0)
		r := rig.MustHaveReport(t, path)
		if want := slices.Concat([]string{"/bin/sh", "-c", script, g.Name, want[last]}, want[:last]); !slices.Equal(r.Command, want) {
			t.Errorf("the command is %.3000q, want %.3000q", r.Command, want)
		}
		if len(r.Leftovers) != 1 {
			t.Fatalf("leftovers: %+v", r.Leftovers)
		}
		if got, want := r.Leftovers[0].Command, "sh -c echo ready; read x; : "+strings.Join(want[:last], " "); got != want {
			t.Errorf("the leftover is %q, want %q", got, want)
		}
		if said := l.Err.Whole(); strings.Count(said, "\n") != 1 || strings.ContainsAny(said, "\x01\x1b\u2028") {
			t.Errorf("says %q, want one line", said)
		}
	})
}

func TestReportOfUsage(t *testing.T) {
	t.Parallel()
	burn := strings.Join(rig.Mode("burn"), " ")
	scripts := map[string]string{
		"command": "exec " + burn,
		"child":   burn,
		// Its parent does not wait for it; fini does.
		"orphan": "exec setsid sh -c '" + burn + " & read x; exit' & exit",
	}
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := rig.ReportPath(t)
				l := rig.Start(t, p, "--linger=1h", "--report="+path, "--", "/bin/sh", "-c", script)
				burnt := time.Duration(l.Out.WantPID("burnt ")) // a number
				_ = l.Stdin.Close()
				l.MustEnd(0)
				usage := rig.MustHaveReport(t, path).Usage
				took := time.Duration((usage.UserSeconds + usage.SystemSeconds) * 1e9)
				if took < burnt-time.Millisecond || took > 2*burnt+time.Second {
					t.Errorf("reports %v of processor time, the command has used %v: %+v", took, burnt, usage)
				}
				if usage.MaxRSSBytes < rig.BurntBytes || usage.MaxRSSBytes > 4*rig.BurntBytes {
					t.Errorf("reports %d bytes, the command has used %d", usage.MaxRSSBytes, rig.BurntBytes)
				}
			})
		}
	})
}

// The file is there, and empty, as long as the command runs, and if fini is killed.
func TestReportIsEmptyUntilTheEnd(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		path := rig.ReportPath(t)
		l := rig.Start(t, p, "--report="+path, "--", "/bin/sh", "-c", `test -f "$0" && test ! -s "$0" && exit 5`, path)
		l.MustEnd(5)
		rig.MustHaveReport(t, path)
	})
	path := rig.ReportPath(t)
	l := rig.Start(t, rig.Alone, "--report="+path, "--", "/bin/sh", "-c", `kill -KILL $PPID; read x`)
	l.MustEnd(137)
	if text := rig.ReadFile(t, path); text != "" {
		t.Errorf("a fini that was killed has left %q", text)
	}
	rig.MustHaveOnly(t, path)
}

// Where the report goes.
func TestReportFile(t *testing.T) {
	t.Parallel()
	// exits runs a command that ends with 5, and asserts that and what fini says, which may be nothing.
	exits := func(t *testing.T, cmd *exec.Cmd, says string) *rig.Life {
		t.Helper()
		l := rig.StartCmd(t, cmd)
		l.MustEnd(5)
		said := l.Err.Whole()
		if says == "" && said != "" || says != "" && (strings.Count(said, "\n") != 1 ||
			!strings.HasPrefix(said, "fini: --report: cannot write ") || !strings.HasSuffix(said, ": "+says+"\n")) {
			t.Errorf("says %q, want one line with %q", said, says)
		}
		if got := l.Out.Whole(); got != "" {
			t.Errorf("stdout: %q", got)
		}
		return l
	}
	five := []string{"--", "/bin/sh", "-c", "exit 5"}
	to := func(p rig.Place, path string) *exec.Cmd {
		return p.Command(append([]string{"--report=" + path}, five...)...)
	}
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Run("relative path", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			cmd := p.Command("--report=report.json", "--", "/bin/sh", "-c", "cd /; exit 5")
			cmd.Dir = filepath.Dir(path)
			exits(t, cmd, "")
			rig.MustHaveReport(t, path)
		})
		t.Run("FINI_REPORT", func(t *testing.T) {
			t.Parallel()
			path, other := rig.ReportPath(t), rig.ReportPath(t)
			cmd := p.Command(five...)
			cmd.Env = append(os.Environ(), "FINI_REPORT="+path)
			exits(t, cmd, "")
			rig.MustHaveReport(t, path)
			cmd = to(p, other)
			cmd.Env = append(os.Environ(), "FINI_REPORT=/none/such")
			exits(t, cmd, "")
			rig.MustHaveReport(t, other)
		})
		// It is written, whatever names lead to then, and nothing of what was in it is left.
		t.Run("existing file", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			if err := os.WriteFile(path, []byte(strings.Repeat("old", 100_000)), 0o600); err != nil {
				t.Fatal(err)
			}
			exits(t, p.Command("--report="+path, "--", "/bin/sh", "-c", `mv "$0" "$0.moved"; echo new >"$0"; exit 5`, path), "")
			if text := rig.ReadFile(t, path); text != "new\n" {
				t.Errorf("what has the name has %q", text)
			}
			rig.MustBeReport(t, []byte(rig.ReadFile(t, path+".moved")))
		})
		t.Run("file that is removed", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			exits(t, p.Command("--report="+path, "--", "/bin/sh", "-c", `rm "$0"; exit 5`, path), "it was removed meanwhile")
		})
		t.Run("long name", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), strings.Repeat("x", 255)) // NAME_MAX
			exits(t, to(p, path), "")
			rig.MustHaveReport(t, path)
		})
		t.Run("/dev/null", func(t *testing.T) {
			t.Parallel()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{rig.Device(t, "/dev/null")}
			exits(t, cmd, "")
		})
		t.Run("/dev/full", func(t *testing.T) {
			t.Parallel()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{rig.Device(t, "/dev/full")}
			exits(t, cmd, "no space left on device")
		})
		t.Run("FIFO", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			text := fifoWithReader(t, path)
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{w}
			l := rig.StartCmd(t, cmd)
			_ = w.Close()
			l.MustEnd(5)
			rig.MustBeReport(t, text())
		})
		// One of messages, too, takes what it can at once.
		for name, kind := range map[string]int{"socket": unix.SOCK_STREAM, "socket of messages": unix.SOCK_SEQPACKET} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ends, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				r, w := os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
				defer func() { _ = r.Close() }()
				cmd := p.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000))
				cmd.ExtraFiles = []*os.File{w}
				l := rig.StartCmd(t, cmd)
				_ = w.Close()
				var text []byte
				for page := make([]byte, 1<<16); ; {
					n, err := r.Read(page)
					if text = append(text, page[:max(n, 0)]...); n == 0 || err != nil {
						break
					}
				}
				l.MustEnd(5)
				rig.MustBeReport(t, text)
			})
		}
		// The reader has all of it, more than a pipe takes at once, and then EOF, though a
		// leftover had inherited the pipe.
		t.Run("descriptor", func(t *testing.T) {
			t.Parallel()
			r, w := rig.Pipe(t)
			cmd := p.Command("-q", "--linger=0", "--report=/dev/fd/4", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 5",
				strings.Repeat("x", 100_000), strings.Repeat("y", 100_000))
			cmd.ExtraFiles = []*os.File{w}
			l := rig.StartCmd(t, cmd)
			_ = w.Close()
			got := rig.NewLines(t, r).Whole()
			l.MustEnd(5)
			if r := rig.MustBeReport(t, []byte(got)); len(r.Leftovers) != 1 || len(r.Command) != 5 {
				t.Errorf("%d leftovers, a command of %d words", len(r.Leftovers), len(r.Command))
			}
		})
		t.Run("descriptor of a file", func(t *testing.T) {
			t.Parallel()
			path := rig.ReportPath(t)
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{file}
			exits(t, cmd, "")
			rig.MustHaveReport(t, path)
		})
		t.Run("descriptor whose reader is gone", func(t *testing.T) {
			t.Parallel()
			r, w := rig.Pipe(t)
			_ = r.Close()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{w}
			exits(t, cmd, "broken pipe")
		})
	})
	for _, p := range rig.AloneOrPair(t) {
		t.Run("full disk "+p.Name, func(t *testing.T) {
			need.Root(t)
			t.Parallel()
			// One page of the two is an older report's. The new one needs more, and no half of it stays.
			cmd := exec.Command(need.Program(t, "unshare"), slices.Concat([]string{"-m", "/bin/sh", "-c", `
				mount -t tmpfs -o size=8k none . && cd "$PWD" && echo old >report.json && head -c 4096 /dev/zero >rest
				"$@"; status=$?; ls -A; cat report.json; exit $status`, "sh"}, to(p, "report.json").Args, []string{strings.Repeat("x", 10_000)})...)
			cmd.Dir = t.TempDir()
			l := rig.StartCmd(t, cmd)
			if got := l.Out.Whole(); got != "report.json\nrest\n" {
				t.Errorf("afterwards: %q", got)
			}
			l.MustEnd(5)
			if said := l.Err.Whole(); said != "fini: --report: cannot write \"report.json\": no space left on device\n" {
				t.Errorf("says %q", said)
			}
		})
		// A stream by its name in /dev is a descriptor too. Here root has a /dev of its own,
		// for a link that is taken for a file's would be replaced.
		for _, stream := range []string{"-", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1"} {
			t.Run(strings.TrimPrefix(stream, "/")+" "+p.Name, func(t *testing.T) {
				need.Root(t)
				unshare := need.Program(t, "unshare")
				t.Parallel()
				path := rig.ReportPath(t)
				l := rig.StartCmd(t, exec.Command(unshare, slices.Concat([]string{"-m", "/bin/sh", "-c", `
					mount -t tmpfs none /dev && ln -s /proc/self/fd /dev/fd && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
					"$@" >"$0" 2>&1; status=$?; test -L /dev/stdout && test -L /dev/stderr && exit $status`, path}, to(p, stream).Args)...))
				l.MustEnd(5)
				rig.MustHaveReport(t, path)
			})
		}
	}
	// fini gives a reader five seconds, so one place is enough.
	t.Run("pipe that nobody reads", func(t *testing.T) {
		t.Parallel()
		_, w := rig.Pipe(t)
		rig.FillPipe(t, w)
		cmd := to(rig.Pair, "/dev/fd/4")
		cmd.ExtraFiles = []*os.File{w}
		exits(t, cmd, "it was not taken within 5s")
	})
}

// A file that can't be written is bad input: one line, and no command.
func TestReportThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, says string }{
		{"directory", dir, "it is a directory: want a regular file, - or /dev/fd/N"},
		{"directory with a slash", dir + "/", "it is a directory: want a regular file, - or /dev/fd/N"},
		{"missing directory", filepath.Join(dir, "none", "report.json"), "no such file or directory; mkdir -p " + dir + "/none makes the directory"},
		{"missing directory here", "none/report.json", "no such file or directory; mkdir -p none makes the directory"},
		{"below a file", filepath.Join(file, "report.json"), "not a directory"},
		{"no descriptor", "/dev/fd/100", "bad file descriptor"},
		// Go's runtime and fini have some of their own by then.
		{"not one that was inherited", "/dev/fd/4", "bad file descriptor"},
		{"no number", "/dev/fd/x", "bad file descriptor"},
		{"a descriptor that can't be written", "/dev/fd/0", "bad file descriptor"},
	}
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			for variable, cmd := range map[bool]*exec.Cmd{
				false: p.Command("--report="+tt.path, "--", "/bin/echo", "started"),
				true:  p.Command("--", "/bin/echo", "started"),
			} {
				if variable {
					cmd.Env = append(os.Environ(), "FINI_REPORT="+tt.path)
				}
				t.Run(fmt.Sprint(tt.name, map[bool]string{true: " by variable"}[variable]), func(t *testing.T) {
					t.Parallel()
					mustRefuse(t, cmd, fmt.Sprintf("fini: --report: cannot write %q: %s\n", tt.path, tt.says))
				})
			}
		}
	})
	t.Run("as another user", func(t *testing.T) {
		need.Root(t)
		setpriv := need.Program(t, "setpriv")
		path := rig.ReportPath(t)
		cmd := exec.Command(setpriv, "--reuid", "12345", "--clear-groups", rig.Fini, "--report="+path, "--", "/bin/echo", "started")
		mustRefuse(t, cmd, fmt.Sprintf("fini: --report: cannot write %q: permission denied\n", path))
	})
}

func mustRefuse(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	l := rig.StartCmd(t, cmd)
	l.MustEnd(125)
	if out, said := l.Out.Whole(), l.Err.Whole(); out != "" || said != says {
		t.Errorf("stdout %q, says %q, want none and %q", out, said, says)
	}
}

// A command that could not be started is reported too, and why.
func TestReportOfWhatWasNotStarted(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name   string
			args   []string
			status int
			says   string
		}{
			{"not found", []string{"--", "no-such-command"}, 127, "cannot run no-such-command: not found on PATH"},
			{"not executable", []string{"--", "/etc/passwd"}, 126, "cannot run /etc/passwd: permission denied: it is not executable; chmod +x /etc/passwd makes it so"},
			{"not to be watched", []string{"-i", "--", "cat"}, 125, "--stdin-eof: cannot watch standard input: a file has no far end; want a pipe, a socket or a terminal"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				path := rig.ReportPath(t)
				cmd := p.Command(append([]string{"--report=" + path}, tt.args...)...)
				file, err := os.Open("/etc/passwd")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				cmd.Stdin = file
				l := rig.StartCmd(t, cmd)
				l.MustEnd(tt.status)
				r := rig.MustHaveReport(t, path)
				if r.Status != tt.status || r.Error != tt.says || r.Exit != nil || r.Ended != nil || r.Pid != 0 {
					t.Errorf("reports %+v, want status %d and %q", r, tt.status, tt.says)
				}
			})
		}
	})
}

// A pod's pause process has a report too, without a command in it.
func TestReportOfPause(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		path := rig.ReportPath(t)
		l := rig.Start(t, p, "-v", "--report="+path, "--pause")
		l.Err.Want("fini: pausing")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(0)
		if r := rig.MustHaveReport(t, path); r.Exit != nil || r.Pid != 0 || len(r.Command) > 0 || len(r.Signals) != 1 {
			t.Errorf("reports %+v", r)
		}
	})
}

// The schema takes no report with a field more or less, and says what each field is.
func TestReportSchema(t *testing.T) {
	t.Parallel()
	path := rig.ReportPath(t)
	l := rig.Start(t, rig.Alone, "-c", "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
		`trap "exit 0" USR1; sh -c '(echo ready; exec sleep 1000); :' & while :; do wait; done`)
	l.Out.Want("ready")
	l.Caught()
	l.Signal(syscall.SIGUSR1)
	l.MustEnd(0)
	rig.MustHaveReport(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	var wrong []string // what is wrong with each document
	var documents bytes.Buffer
	refuse := func(what string) {
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		wrong = append(wrong, what)
		documents.Write(text)
	}
	objects := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v[:min(len(v), 2)] {
				walk(at+"[]", item)
			}
		case map[string]any:
			objects++
			v["more"] = 1.0
			refuse("one more field in " + at)
			delete(v, "more")
			for key, value := range v {
				delete(v, key)
				refuse(at + " without " + key)
				v[key] = []any{[]any{}} // of no type that a field has
				refuse("anything for " + key + " in " + at)
				v[key] = value
				walk(at+"."+key, value)
			}
		}
	}
	walk("", whole)
	if objects < 7 { // itself, exit, usage, a signal, two leftovers, a starter
		t.Errorf("only %d objects were tried: %s", objects, text)
	}
	for field, value := range map[string]any{
		"version": 3.0, "status": 256.0, "started": "yesterday", "stopped": "boredom",
		"exit": map[string]any{"code": 1.0, "signal": "SIGTERM", "oom": nil},
	} {
		right := whole[field]
		whole[field] = value
		refuse(fmt.Sprintf("%v for %s", value, field))
		whole[field] = right
	}
	refuse("nothing") // the last one is the report itself
	got := rig.Verdicts(t, documents.Bytes())
	if len(got) != len(wrong) {
		t.Fatalf("%d verdicts on %d documents", len(got), len(wrong))
	}
	for i, what := range wrong {
		if (got[i] == "valid") != (what == "nothing") {
			t.Errorf("%s is wrong with a report, and the schema says %q", what, got[i])
		}
	}

	text, err = os.ReadFile("../docs/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	fields := 0
	var described func(v any)
	described = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				described(item)
			}
		case map[string]any:
			if v["additionalProperties"] == false {
				for name, property := range v["properties"].(map[string]any) {
					fields++
					if text, _ := property.(map[string]any)["description"].(string); text == "" {
						t.Errorf("the schema does not say what %s is", name)
					}
				}
			}
			for _, value := range v {
				described(value)
			}
		}
	}
	described(document)
	if fields < 30 {
		t.Errorf("only %d fields were looked at", fields)
	}
}
