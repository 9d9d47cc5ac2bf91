package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
	"github.com/seed-126c5d8a/fini/e2e/rig/programs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The command's own end, and why fini stopped it.
func TestReportOfTheCommand(t *testing.T) {
	t.Parallel()
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	ready := func(l *rig.Life) { l.Out.Want("ready") }
	odd := []string{"", `"`, `\`, "a\nb", "\x01\x1b[31m", "é ünd 漢", "<&>", "\u2028", "\ufffd", strings.Repeat("x", 100_000)}
	tests := []struct {
		name    string
		flags   []string
		command []string
		drive   func(l *rig.Life)
		status  int
		want    string
		signals []string
	}{
		{"clean", nil, append(sh(""), odd...), nil, 0, "0 exit 0", nil},
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
			l.Caught()
			l.Signal(unix.SIGTERM)
		}, 7, "7 exit 7", []string{"SIGTERM"}},
	}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var path string
				before := time.Now()
				begin := func(t testing.TB, flag string) *rig.Life {
					path = reports.Path(t)
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
				r := reports.MustHave(t, path)
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
					if known := s.Sender != nil && s.Sender.Pid == os.Getpid() && s.Sender.Name != ""; known == (p == rig.PID1) {
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

// pidsOf reads lines of a word and a pid until each of the words has come, in any order.
func pidsOf(t testing.TB, l *rig.Life, words ...string) map[string]int {
	t.Helper()
	pids := map[string]int{}
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
	return pids
}

// Whichever of a pair is killed, the other one writes. If it is their launcher, they end as usual.
func TestReportThoughOneIsKilled(t *testing.T) {
	t.Parallel()
	const script = `sh -c 'trap "" TERM; echo leftover $$; while :; do sleep 1000; done' & echo command $$; wait; exec sleep 1000`
	for victim, want := range map[string]string{
		"inner":    "137 SIGTERM",
		"outer":    "143 SIGTERM for fini",
		"launcher": "143 SIGTERM for launcher",
	} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			path := reports.Path(t)
			l := rig.Launch(t, rig.Pair, "--grace=2s", "--linger=0", "--report="+path, "--", "/bin/sh", "-c", script)
			pids := pidsOf(t, l.Life, "command", "leftover")
			inner := l.Inner()
			rig.WaitCaught(t, l.Outer, inner) // so the inner one has told the outer one of the command
			rig.MustKill(t, map[string]int{"inner": inner, "outer": l.Outer, "launcher": l.Launcher}[victim], syscall.SIGKILL)
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
			rig.Until(t, "the report", func() bool { // nobody waits for the fini that writes it
				text, err := os.ReadFile(path)
				return err == nil && bytes.HasSuffix(text, []byte("\n}\n"))
			})
			r := reports.MustHave(t, path)
			if got := r.String(); got != want || r.Pid != pids["command"] {
				t.Errorf("reports %q, pid %d, want %q and the command's pid %d", got, r.Pid, want, pids["command"])
			}
			r.Leftover(t, pids["leftover"]).MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
		})
	}
}

// Each leftover prints its pid behind its word, in its PID namespace, when it is what it is to be.
func TestReportOfLeftovers(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals"), " ")
	const (
		both   = "stdout stderr"
		sleeps = ` ` + rig.UntilSleeps + `; echo ready $!`
		// Its stdin ends with the command.
		ends = `dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; echo ready $$`
	)
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		run := func(t *testing.T, flags, leftovers string, words ...string) (r reports.Report, pids map[string]int, said string) {
			t.Helper()
			path, before := reports.Path(t), time.Now()
			l := rig.Start(t, p, slices.Concat([]string{"--report=" + path}, strings.Fields(flags), []string{"--", "/bin/sh", "-c",
				leftovers + "\nread go; exit 9"})...)
			pids = pidsOf(t, l, words...)
			rig.Write(t, l, "go\n")
			l.MustEnd(9)
			r = reports.MustHave(t, path)
			if got := r.String(); got != "9 exit 9" {
				t.Errorf("reports %q", got)
			}
			if s := r.Seconds; s.Command == nil || s.Leftovers == nil || s.Total < *s.Command || s.Total < *s.Leftovers {
				t.Errorf("%+v", s)
			}
			for _, left := range r.Leftovers {
				// Its parent may reap it, even while SIGKILL ends the parent too, and then fini sees no end.
				if left.AgeSeconds == nil || left.OutlivedSeconds == nil && len(left.StartedBy) == 0 {
					t.Errorf("%+v", left)
				}
				// A start is told to 10 ms, cut off and rounded.
				if left.Started.Before(before.Add(-20*time.Millisecond)) || left.Started.After(r.Finished.Add(20*time.Millisecond)) {
					t.Errorf("leftover %d started at %v; fini ran from %v to %v", left.Pid, left.Started, r.Started, r.Finished)
				}
			}
			return r, pids, l.Err.Whole()
		}
		for _, tt := range []struct{ name, flags, script, sent, ended, holds string }{
			{"ends on SIGTERM", "--linger=0", `setsid sleep 1000 &` + sleeps, "SIGTERM", "SIGTERM", both},
			{"needs SIGKILL", "--linger=0 --grace=50ms", signals + " &", "SIGTERM SIGKILL", "SIGKILL", both},
			{"exits", "--linger=0 --grace=1h", signals + " 15 &", "SIGTERM", "exit 7", both},
			{"holds stdout", "--linger=0", `sleep 1000 2>/dev/null &` + sleeps, "SIGTERM", "SIGTERM", "stdout"},
			{"holds stderr", "--linger=0", `sleep 1000 >&2 2>/dev/null &` + sleeps, "SIGTERM", "SIGTERM", "stderr"},
			{"holds none", "--linger=0", `sleep 1000 >/dev/null 2>&1 &` + sleeps, "SIGTERM", "SIGTERM", ""},
			{"ends within linger", "--linger=1h", ends, "", "", ""},
			{"is waited for", "--orphans=wait", ends, "", "", ""},
		} {
			rig.Case(t, p == rig.Pair, tt.name, func(t *testing.T) {
				t.Parallel()
				r, pids, said := run(t, tt.flags, tt.script, "ready")
				if r.Reaped != 1 || len(r.Leftovers) != min(len(tt.sent), 1) {
					t.Fatalf("leftovers %+v, reaped %d; stderr: %s", r.Leftovers, r.Reaped, said)
				}
				if tt.sent == "" {
					if said != "" {
						t.Errorf("says %q", said)
					}
					return
				}
				left := r.Leftover(t, pids["ready"])
				left.MustBe(t, tt.sent, tt.ended)
				if own := strings.HasPrefix(tt.script, "setsid"); (left.Group == left.Pid) != own || (left.Session == left.Pid) != own ||
					(left.Group == r.Pid) == own || len(left.StartedBy) > 0 || strings.Join(left.Holds, " ") != tt.holds {
					t.Errorf("it is %+v, and the command %d", left, r.Pid)
				}
				if strings.Contains(said, "which holds") != (tt.holds != "" && !p.PID1) {
					t.Errorf("says %q", said)
				}
			})
		}
		// Alone it does what the inner one of a pair does.
		rig.Case(t, !p.Alone, "chain", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0 --grace=50ms",
				`sh -c 'trap "" TERM; echo top $$; sh -c "echo middle \$\$; $0 & wait; :"; :' "`+signals+`" &`, "top", "middle", "ready")
			for word, above := range map[string][]string{"top": {}, "middle": {"top"}, "ready": {"middle", "top"}} {
				var want, got []int
				for _, a := range above {
					want = append(want, pids[a])
				}
				for _, a := range r.Leftover(t, pids[word]).StartedBy {
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
		// It had SIGTERM with the group: fini sends none, and the report has it once.
		t.Run("had SIGTERM with the group", func(t *testing.T) {
			t.Parallel()
			path := reports.Path(t)
			l := rig.Start(t, p, "--linger=0", "--grace=5s", "--report="+path, "--", "/bin/sh", "-c",
				`trap "exit 3" TERM; `+signals+` & while :; do wait; done`)
			pid := l.Out.WantPID("ready ")
			rig.UntilOlder(t)
			l.Signal(syscall.SIGTERM)
			if got := l.Out.Rest(); !slices.Equal(got, []string{"signal 15"}) {
				t.Errorf("the leftover got %q, want SIGTERM once", got)
			}
			l.MustEnd(3)
			reports.MustHave(t, path).Leftover(t, pid).MustBe(t, "SIGTERM SIGKILL", "SIGKILL")
		})
	})
}

// What a process has used is told also if its parent process does not wait for it, and fini does.
func TestReportOfUsage(t *testing.T) {
	t.Parallel()
	script := "exec setsid sh -c '" + strings.Join(rig.Mode("burn"), " ") + " & read x; exit' & exit"
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		path := reports.Path(t)
		l := rig.Start(t, p, "--linger=1h", "--report="+path, "--", "/bin/sh", "-c", script)
		burnt := time.Duration(l.Out.WantPID("burnt ")) // a number
		_ = l.Stdin.Close()
		l.MustEnd(0)
		usage := reports.MustHave(t, path).Usage
		took := time.Duration((usage.UserSeconds + usage.SystemSeconds) * 1e9)
		if took < burnt-time.Millisecond || took > 2*burnt+time.Second {
			t.Errorf("reports %v of processor time, the command has used %v: %+v", took, burnt, usage)
		}
		if usage.MaxRSSBytes < programs.BurntBytes*9/10 || // the kernel counts it in batches
			usage.MaxRSSBytes > 4*programs.BurntBytes {
			t.Errorf("reports %d bytes, the command has used %d", usage.MaxRSSBytes, programs.BurntBytes)
		}
	})
}

// The file is there, and empty, as long as the command runs, and if fini is killed.
func TestReportIsEmptyUntilTheEnd(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		path := reports.Path(t)
		l := rig.Start(t, p, "--report="+path, "--", "/bin/sh", "-c", `test -f "$0" && test ! -s "$0" && exit 5`, path)
		l.MustEnd(5)
		reports.MustHave(t, path)
	})
	path := reports.Path(t)
	l := rig.Start(t, rig.Alone, "--report="+path, "--", "/bin/sh", "-c", `kill -KILL $PPID; read x`)
	l.MustHaveStatus(137)
	rig.Until(t, "the end of the command", func() bool { return rig.HungUp(l.Witness) })
	if text := rig.ReadFile(t, path); text != "" {
		t.Errorf("a fini that was killed has left %q", text)
	}
	reports.MustHaveOnly(t, path)
}

// Where the report goes.
func TestReportFile(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct{ name, variable, flag string }{
			{"relative path", "/none/such", "--report=report.json"},
			{"FINI_REPORT", "report.json", "-q"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				cmd := p.Command(tt.flag, "--", "/bin/sh", "-c", "cd /; exit 5")
				cmd.Dir, cmd.Env = filepath.Dir(path), append(os.Environ(), "FINI_REPORT="+tt.variable)
				rig.StartCmd(t, cmd).MustEnd(5)
				reports.MustHave(t, path)
			})
		}
	})
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		// A stream by its name in /dev is a descriptor too. Here root has a /dev of its own,
		// for a link that is taken for a file's would be replaced.
		for _, stream := range []string{"-", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1"} {
			t.Run(strings.TrimPrefix(stream, "/")+" "+p.Name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				cmd := inMounts(t, `
					mount -t tmpfs none /dev && ln -s /proc/self/fd /dev/fd && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
					"$@" >"$OUT" 2>&1; status=$?; test -L /dev/stdout && test -L /dev/stderr && exit $status`,
					p.Command("--report="+stream, "--", "/bin/sh", "-c", "exit 5").Args...)
				cmd.Env = append(os.Environ(), "OUT="+path)
				rig.StartCmd(t, cmd).MustEnd(5)
				reports.MustHave(t, path)
			})
		}
	}
}

// A reader has all of the report, more than a pipe takes at once, and then EOF, though a leftover has inherited the
// descriptor. Who reads too little keeps fini for five seconds. What is too long is cut.
func TestReportDescriptor(t *testing.T) {
	t.Parallel()
	device := func(path string) func(*testing.T) (ours, theirs *os.File) {
		return func(t *testing.T) (_, theirs *os.File) { return nil, rig.Device(t, path) }
	}
	pipe := func(t *testing.T) (ours, theirs *os.File) { return rig.Pipe(t) }
	messages := func(t *testing.T) (ours, theirs *os.File) {
		ends := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))
		ours = os.NewFile(uintptr(ends[0]), "reader")
		t.Cleanup(func() { _ = ours.Close() })
		return ours, os.NewFile(uintptr(ends[1]), "writer")
	}
	const slow = "it was not taken within 5s"
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name string
			open func(t *testing.T) (ours, theirs *os.File) // no ours where nobody reads
			says string
			pace time.Duration // between one page and the next
		}{
			{"/dev/null", device("/dev/null"), "", 0},
			{"/dev/full", device("/dev/full"), "no space left on device", 0},
			{"pipe", pipe, "", 0},
			{"socket", func(t *testing.T) (ours, theirs *os.File) { return rig.Socketpair(t) }, "", 0},
			{"socket of messages", messages, "", 0}, // which takes what it can at once
			{"file", func(t *testing.T) (ours, theirs *os.File) {
				theirs = must(os.Create(reports.Path(t)))
				return must(os.Open(theirs.Name())), theirs
			}, "", 0},
			{"pipe whose reader is gone", func(t *testing.T) (_, theirs *os.File) {
				r, w := rig.Pipe(t)
				_ = r.Close()
				return nil, w
			}, "broken pipe", 0},
			{"pipe that nobody reads", func(t *testing.T) (_, theirs *os.File) {
				_, w := rig.Pipe(t)
				rig.FillPipe(t, w)
				return nil, w
			}, slow, 0},
			// It has room, and says so, but for less than a page: who writes one waits.
			{"terminal that nobody reads", func(t *testing.T) (_, theirs *os.File) {
				theirs, ours := pty.Open(t)
				rig.FillPipe(t, theirs)
				room := []unix.PollFd{{Fd: int32(theirs.Fd()), Events: unix.POLLOUT}}
				for room[0].Revents&unix.POLLOUT == 0 {
					if _, err := ours.Read(make([]byte, 64)); err != nil {
						t.Fatal(err)
					}
					if _, err := unix.Poll(room, 0); err != nil {
						t.Fatal(err)
					}
				}
				return nil, theirs
			}, slow, 0},
			// It always takes a little.
			{"slow reader", pipe, slow, time.Second},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				ours, theirs := tt.open(t)
				long := strings.Repeat("x", 100_000)
				cmd := p.Command("-q", "--linger=0", "--report=/dev/fd/4", "--", "/bin/sh", "-c",
					`setsid sh -c 'sleep 1000 & echo ready; wait' "$@" & read go; exit 5`, long, long, long)
				cmd.ExtraFiles = []*os.File{theirs}
				l := rig.StartCmd(t, cmd)
				_ = theirs.Close()
				read := make(chan []byte, 1)
				if ours != nil && tt.name != "file" {
					go func() { read <- allOf(ours, tt.pace) }()
				}
				l.Out.Want("ready")
				rig.Write(t, l, "go\n")
				l.MustEnd(5)
				says := tt.says
				if says != "" {
					says = "fini: --report: cannot write \"/dev/fd/4\": " + says + "\n"
				}
				if said := l.Err.Whole(); said != says {
					t.Errorf("says %q, want %q", said, says)
				}
				if ours == nil || says != "" {
					return
				}
				if tt.name == "file" {
					read <- allOf(ours, 0)
				}
				r := reports.MustBe(t, <-read)
				if n := len(strings.Join(r.Command, "")); !r.CommandCut || n < 250<<10 || n > 256<<10 {
					t.Errorf("%d bytes of the command, cut is %v", n, r.CommandCut)
				}
				// That shell starts nothing by vfork(2): while it waited for the execve, fini would not read its command line.
				if !slices.ContainsFunc(r.Leftovers, func(l reports.Leftover) bool { return l.CommandCut && len(l.Command) == 4000 }) {
					t.Errorf("%.300v", r.Leftovers)
				}
			})
		}
	})
}

// allOf reads to EOF, a page in each of these times.
func allOf(r io.Reader, pace time.Duration) (text []byte) {
	page := make([]byte, 1<<16)
	if pace > 0 {
		page = page[:4096]
	}
	for {
		<-time.After(pace)
		n, err := r.Read(page)
		if text = append(text, page[:max(n, 0)]...); n <= 0 || err != nil {
			return text
		}
	}
}

func mustRefuse(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	l := rig.StartCmd(t, cmd)
	l.MustEnd(125)
	if out, said := l.Out.Whole(), l.Err.Whole(); out != "" || said != says {
		t.Errorf("stdout %q, says %q, want none and %q", out, said, says)
	}
}

// A command that could not be started is reported too, and why, and so is a life without a command.
func TestReportOfWhatWasNotStarted(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name   string
			args   []string
			status int
			says   any
		}{
			{"not found", []string{"--", "no-such-command"}, 127, "cannot run no-such-command: not found on PATH"},
			{"not executable", []string{"--", "/etc/passwd"}, 126, "cannot run /etc/passwd: permission denied: it is not executable; chmod +x /etc/passwd makes it so"},
			{"a pod's pause process", []string{"-v", "--pause"}, 0, nil},
			{"not to be watched", []string{"-i", "--", "cat"}, 125, "--stdin-eof: cannot watch standard input: a file has no far end; want a pipe, a socket or a terminal"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				cmd := p.Command(append([]string{"--report=" + path}, tt.args...)...)
				cmd.Stdin = must(os.Open("/etc/passwd"))
				l := rig.StartCmd(t, cmd)
				pauses := tt.says == nil
				if pauses {
					l.Err.Want("fini: pausing")
					l.Signal(syscall.SIGTERM)
				}
				l.MustEnd(tt.status)
				r := reports.MustHave(t, path)
				if r.Status != tt.status || r.Error != tt.says || r.Exit != nil || r.Ended != nil || r.Pid != 0 ||
					pauses && (len(r.Command) > 0 || len(r.Signals) != 1) {
					t.Errorf("reports %+v, want status %d and %q", r, tt.status, tt.says)
				}
			})
		}
	})
}

// The schema takes no report with a field more or less. What it says of each is TestReportTypes's.
func TestReportSchema(t *testing.T) {
	t.Parallel()
	path := reports.Path(t)
	l := rig.Start(t, rig.Alone, "-c", "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
		`trap "exit 0" USR1; sh -c '(echo ready; exec sleep 1000); :' & while :; do wait; done`)
	l.Out.Want("ready")
	l.Caught()
	l.Signal(syscall.SIGUSR1)
	l.MustEnd(0)
	reports.MustHave(t, path)
	var whole map[string]any
	text := []byte(rig.ReadFile(t, path))
	rig.NoError(t, json.Unmarshal(text, &whole))
	var wrong []string // what is wrong with each document
	var documents bytes.Buffer
	refuse := func(what string) {
		wrong = append(wrong, what)
		documents.Write(must(json.Marshal(whole)))
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
	got := reports.Verdicts(t, documents.Bytes())
	if len(got) != len(wrong) {
		t.Fatalf("%d verdicts on %d documents", len(got), len(wrong))
	}
	for i, what := range wrong {
		if (got[i] == "valid") != (what == "nothing") {
			t.Errorf("%s is wrong with a report, and the schema says %q", what, got[i])
		}
	}
}

// The report tells a host that has crashed from one that has closed the standard input of its server. A host that dies closes
// that too, just before its death can be seen.
func TestReportTellsACrashFromAClose(t *testing.T) {
	t.Parallel()
	const host = `
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, close_fds=False)
print("ready", flush=True)
sys.stdin.readline()
server.stdin.close()
server.wait()`
	python := need.Program(t, "python3")
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for name, command := range map[string]string{"a command that ends with stdin": "cat", "and one that does not": "sleep 1000"} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				late := 0
				for i := range 20 {
					path := reports.Path(t)
					cmd := p.Command("-i", "--grace=300ms", "--report="+path, "--", "/bin/sh", "-c", "echo there; exec "+command)
					l := rig.StartCmd(t, exec.Command(python, append([]string{"-c", host}, cmd.Args...)...))
					for range 2 { // "ready" and "there", in any order
						l.Out.Next()
					}
					want := "launcher"
					if i%5 == 0 {
						want = "stdin"
						rig.Write(t, l, "go\n")
					} else {
						rig.MustKill(t, l.PID(), syscall.SIGKILL)
					}
					l.Wait()
					rig.Until(t, "the tree has ended", func() bool { return rig.HungUp(l.Witness) })
					rig.Until(t, "the report is there", func() bool { text, _ := os.ReadFile(path); return len(text) > 0 })
					switch got := reports.MustHave(t, path).Stopped; {
					// A busy machine may take longer than fini waits for the death, and a command that ends with stdin may end
					// before fini sees that.
					case got == "stdin" && want == "launcher", got == nil && command == "cat":
						late++
					case got != want:
						t.Errorf("stopped for %v, want %q", got, want)
					}
				}
				if late > 10 {
					t.Errorf("%d of 20 ends were taken for another", late)
				}
			})
		}
	}
}
