package e2e

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

func init() { moreHelpers["@burn"] = helperBurn }

// helperBurn touches 50 MB, uses 0.2 s of processor time, and says how much it was.
func helperBurn([]string) int {
	memory := make([]byte, burntBytes)
	var usage unix.Rusage
	for round := byte(0); ; round++ {
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = round
		}
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			return 1
		}
		if took := usage.Utime.Nano() + usage.Stime.Nano(); took >= int64(200*time.Millisecond) {
			fmt.Println("burnt", took)
			return 0
		}
	}
}

const burntBytes = 50 << 20

// reported is a report as its reader has it.
type reported struct {
	Version    int
	Fini       string
	Command    []string
	CommandCut bool
	Isolated   bool
	Pid        int
	Started    time.Time
	Ended      *time.Time
	Finished   time.Time
	Status     int
	Error      any
	Exit       *struct {
		Code, Signal any
		OOM          *oomReported
	}
	Stopped any
	Signals []struct {
		At     time.Time
		Signal string
		Sender *struct {
			Pid  int
			Name string
		}
	}
	SignalsOmitted   int
	Leftovers        []leftoverReported
	LeftoversOmitted int
	Reaped           int
	Seconds          struct {
		Command, Leftovers *float64
		Total              float64
	}
	Usage struct {
		UserSeconds, SystemSeconds float64
		MaxRSSBytes                int64
	}
}

type leftoverReported struct {
	Pid        int
	Command    string
	CommandCut bool
	Allowed    bool
	Started    time.Time
	StartedBy  []struct {
		Pid  int
		Name string
	}
	Group, Session int
	Holds, Sent    []string
	Listens        []string
	Cwd            *string
	User           *int
	Ended          any
	OOM            *oomReported
	Owner          *struct {
		Pid           int
		Name, Command string
	}
	Context                     []struct{ Variable, Value string }
	AgeSeconds, OutlivedSeconds *float64
}

type oomReported struct{ Verdict, Reason string }

// schemaChecker is e2e/schema, a module of its own: what only tests need is not in go.mod.
var schemaChecker = sync.OnceValues(func() (string, error) {
	if _, err := os.Stat("schema"); err != nil {
		return "../bin/schema", nil // the source is not here: e2e/kernels has built it
	}
	if out, err := exec.Command("go", "build", "-C", "schema", "-o", "../../bin/schema", ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build e2e/schema: %w: %s", err, out)
	}
	return "../bin/schema", nil
})

// verdicts are what the report's schema says of each JSON document in text: "valid", or what is
// wrong with it.
func verdicts(t testing.TB, text []byte) []string {
	t.Helper()
	checker, err := schemaChecker()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(checker, "../docs/report.schema.json")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; %s; the documents: %.3000s", err, &stderr, text)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// mustBeReport asserts that text is one whole report, which the schema describes.
func mustBeReport(t testing.TB, text []byte) (r reported) {
	t.Helper()
	if got := verdicts(t, text); !slices.Equal(got, []string{"valid"}) {
		t.Fatalf("the schema says %q of the report: %s", got, text)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		t.Fatalf("%v; the report: %s", err, text)
	}
	if text[len(text)-1] != '\n' {
		t.Errorf("the last line has no end: %q", text)
	}
	if r.Finished.Before(r.Started) || r.Ended != nil && (r.Ended.Before(r.Started) || r.Finished.Before(*r.Ended)) {
		t.Errorf("started %v, ended %v, finished %v", r.Started, r.Ended, r.Finished)
	}
	return r
}

// mustHaveReport reads the report, which is the one file of its directory: nothing that fini
// made on the way is left.
func mustHaveReport(t testing.TB, path string) reported {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustHaveOnly(t, path)
	return mustBeReport(t, text)
}

func mustHaveOnly(t testing.TB, paths ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(paths[0]))
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	for _, path := range paths {
		want = append(want, filepath.Base(path))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("in the report's directory: %q, want %q", got, want)
	}
}

func reportPath(t testing.TB) string { return filepath.Join(t.TempDir(), "report.json") }

// String is the status, the command's end and the reason to stop it.
func (r reported) String() string {
	text := fmt.Sprint(r.Status)
	if r.Exit == nil {
		text += " end not seen"
	} else if r.Exit.Code != nil {
		text += fmt.Sprint(" exit ", r.Exit.Code)
	} else {
		text += fmt.Sprint(" ", r.Exit.Signal)
	}
	if r.Stopped != nil {
		text += fmt.Sprint(" for ", r.Stopped)
	}
	return text
}

func (r reported) leftover(t testing.TB, pid int) leftoverReported {
	t.Helper()
	i := slices.IndexFunc(r.Leftovers, func(l leftoverReported) bool { return l.Pid == pid })
	if i < 0 {
		t.Fatalf("leftover %d is not in the report: %+v", pid, r.Leftovers)
	}
	return r.Leftovers[i]
}

// mustBe asserts what was sent to a leftover and how it ended.
func (l leftoverReported) mustBe(t testing.TB, sent, ended string) {
	t.Helper()
	if got := strings.Join(l.Sent, " "); got != sent || fmt.Sprint(l.Ended) != ended {
		t.Errorf("leftover %d (%s) was sent %q and ended %v, want %q and %v", l.Pid, l.Command, got, l.Ended, sent, ended)
	}
}

// The command's own end, and why fini stopped it.
func TestReportOfTheCommand(t *testing.T) {
	t.Parallel()
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	ready := func(l *life) { l.Out.want("ready") }
	tests := []struct {
		name    string
		flags   []string
		command []string
		drive   func(l *life)
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
		{"stdin closed", []string{"-i", "--grace=500ms"}, sh("echo ready; exec sleep 1000"), func(l *life) {
			l.Out.want("ready")
			_ = l.Stdin.Close()
		}, 143, "143 SIGTERM for stdin", nil},
		{"stdin not watched", nil, sh("read line || exit 4"), func(l *life) { _ = l.Stdin.Close() }, 4, "4 exit 4", nil},
		{"signals", nil, mode("signals", "10"), func(l *life) {
			ready(l)
			l.caught()
			for _, sig := range []syscall.Signal{unix.SIGUSR2, unix.SIGHUP, 37} {
				l.signal(sig)
				l.Out.want(fmt.Sprint("signal ", int(sig)))
			}
			l.signal(unix.SIGUSR1)
		}, 7, "7 exit 7", []string{"SIGUSR2", "SIGHUP", "SIGRTMIN+3", "SIGUSR1"}},
		{"rewritten signal", []string{"-r", "TERM:USR1"}, mode("signals", "10"), func(l *life) {
			ready(l)
			l.signal(unix.SIGTERM)
		}, 7, "7 exit 7", []string{"SIGTERM"}},
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var path string
				before := time.Now()
				begin := func(t testing.TB, flag string) *life {
					path = reportPath(t)
					return start(t, p, slices.Concat([]string{flag, "--report=" + path}, tt.flags, []string{"--"}, tt.command)...)
				}
				var l *life
				if strings.HasPrefix(tt.name, "timeout") {
					l = outOfTime(t, begin)
				} else {
					l = begin(t, "--timeout=1h")
				}
				if tt.drive != nil {
					tt.drive(l)
				}
				l.mustEnd(tt.status)
				r := mustHaveReport(t, path)
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
					if known := s.Sender != nil && s.Sender.Pid == os.Getpid() && s.Sender.Name != ""; known == (p == pid1 || p == isolated) {
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
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			l := launch(t, p, "--report="+path, "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
			l.Out.want("ready")
			_ = syscall.Kill(l.launcher, syscall.SIGKILL)
			until(t, "the end of the tree", func() bool { return hungUp(l.witness) })
			untilReported(t, path)
			if got := mustHaveReport(t, path).String(); got != "143 SIGTERM for launcher" {
				t.Errorf("reports %q", got)
			}
		})
	}
}

// untilReported waits for a report where nobody can wait for the fini that writes it.
func untilReported(t testing.TB, path string) {
	t.Helper()
	until(t, "the report", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.HasSuffix(text, []byte("\n}\n"))
	})
}

// Whichever of a pair is killed, the other one writes.
func TestReportOfAPairThatLosesOne(t *testing.T) {
	t.Parallel()
	const script = `sh -c 'trap "" TERM; echo leftover $$; while :; do sleep 1000; done' & echo command $$; wait; exec sleep 1000`
	run := func(t *testing.T) (l *life, path string, command, leftover int) {
		path = reportPath(t)
		l = start(t, pair, "--grace=100ms", "--linger=0", "--report="+path, "--", "/bin/sh", "-c", script)
		for command == 0 || leftover == 0 { // they speak in any order
			line, ok := l.Out.next()
			if !ok {
				t.Fatalf("EOF; stderr: %s", l.Err.text())
			}
			_, _ = fmt.Sscanf(line, "command %d", &command)
			_, _ = fmt.Sscanf(line, "leftover %d", &leftover)
		}
		l.caught() // so the inner one has told the outer one of the command
		return l, path, command, leftover
	}
	t.Run("inner", func(t *testing.T) {
		t.Parallel()
		l, path, command, leftover := run(t)
		_ = syscall.Kill(l.worker(), syscall.SIGKILL)
		l.mustEnd(137)
		r := mustHaveReport(t, path)
		if got := r.String(); got != "137 SIGTERM" || r.Pid != command {
			t.Errorf("reports %q, pid %d, want the command's pid %d", got, r.Pid, command)
		}
		r.leftover(t, leftover).mustBe(t, "SIGTERM SIGKILL", "SIGKILL")
	})
	t.Run("outer", func(t *testing.T) {
		t.Parallel()
		l, path, command, leftover := run(t)
		l.signal(syscall.SIGKILL)
		if got := l.status(); got != 137 {
			t.Errorf("status %d", got)
		}
		until(t, "the end of the tree", func() bool { return hungUp(l.witness) })
		untilReported(t, path)
		r := mustHaveReport(t, path)
		if got := r.String(); got != "143 SIGTERM for fini" || r.Pid != command {
			t.Errorf("reports %q, pid %d, want %d", got, r.Pid, command)
		}
		r.leftover(t, leftover).mustBe(t, "SIGTERM SIGKILL", "SIGKILL")
	})
}

// Each leftover prints its pid behind its word, in its PID namespace, when it is what it is to be.
func TestReportOfLeftovers(t *testing.T) {
	t.Parallel()
	signals := strings.Join(mode("signals"), " ")
	const sleeps = `echo sleeps $$; exec sleep 1000`
	inPlacesButIsolated(t, "the command tells pids inside, and the report those outside: see TestIsolatedReport", func(t *testing.T, p place) {
		run := func(t *testing.T, flags, leftovers string, words ...string) (r reported, pids map[string]int, l *life) {
			t.Helper()
			path, before := reportPath(t), time.Now()
			l = start(t, p, slices.Concat([]string{"--report=" + path}, strings.Fields(flags), []string{"--", "/bin/sh", "-c",
				leftovers + "\nread go; exit 9"})...)
			pids = map[string]int{}
			for len(pids) < len(words) {
				line, ok := l.Out.next()
				if !ok {
					t.Fatalf("EOF; stderr: %s", l.Err.text())
				}
				var word string
				var pid int
				if _, err := fmt.Sscan(line, &word, &pid); err == nil && slices.Contains(words, word) {
					pids[word] = pid
				}
			}
			write(t, l, "go\n")
			l.mustEnd(9)
			r = mustHaveReport(t, path)
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
			r, pids, _ := run(t, "--linger=0", `setsid sh -c '`+sleeps+`' &`, "sleeps")
			left := r.leftover(t, pids["sleeps"])
			left.mustBe(t, "SIGTERM", "SIGTERM")
			if left.Group != left.Pid || left.Session != left.Pid || len(left.StartedBy) > 0 || len(r.Leftovers) != 1 || r.Reaped != 1 {
				t.Errorf("it is %+v, one of %d; reaped %d", left, len(r.Leftovers), r.Reaped)
			}
		})
		t.Run("needs SIGKILL", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0 --grace=50ms", signals+" &", "ready")
			left := r.leftover(t, pids["ready"])
			left.mustBe(t, "SIGTERM SIGKILL", "SIGKILL")
			if left.Command != signals || left.Group != r.Pid {
				t.Errorf("it is %+v, want %q in group %d", left, signals, r.Pid)
			}
		})
		t.Run("exits", func(t *testing.T) {
			t.Parallel()
			r, pids, _ := run(t, "--linger=0", signals+" 15 &", "ready")
			r.leftover(t, pids["ready"]).mustBe(t, "SIGTERM", "exit 7")
		})
		// Its stdin ends with the command.
		const ends = `dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; echo made $$`
		t.Run("ends within linger", func(t *testing.T) {
			t.Parallel()
			r, _, l := run(t, "--linger=1h", ends, "made")
			if said := l.Err.whole(); len(r.Leftovers) > 0 || r.Reaped != 1 || said != "" {
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
				left := r.leftover(t, pids[word])
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
					fmt.Sprintf(`sleep 1000 %s & while [ "$(cat /proc/$!/comm)" != sleep ]; do :; done; echo holds $!`, holds.redirect), "holds")
				if len(r.Leftovers) != 1 || strings.Join(r.Leftovers[0].Holds, " ") != holds.want {
					t.Errorf("leftovers %+v, want one that holds %q", r.Leftovers, holds.want)
				}
				if line := l.Err.whole(); strings.Contains(line, "which holds") != (holds.want != "" && !p.pid1) {
					t.Errorf("says %q", line)
				}
			})
		}
		t.Run("25", func(t *testing.T) {
			t.Parallel()
			r, _, l := run(t, "--linger=0", `for i in $(seq 25); do sleep 1000 & done; echo made $$`, "made")
			if len(r.Leftovers) != 25 || r.Reaped != 25 {
				t.Errorf("%d leftovers, reaped %d, want 25", len(r.Leftovers), r.Reaped)
			}
			for _, left := range r.Leftovers {
				left.mustBe(t, "SIGTERM", "SIGTERM")
			}
			said := l.Err.whole()
			if lines := strings.Count(said, "stopping leftover"); lines != 20 || !strings.HasSuffix(said, "fini: stopped 25 leftovers in all\n") {
				t.Errorf("says %d of 25: %s", lines, said)
			}
		})
		// It had SIGTERM with the group: fini sends none, and the report has it once.
		t.Run("had SIGTERM with the group", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			l := start(t, p, "--linger=0", "--grace=1s", "--report="+path, "--", "/bin/sh", "-c",
				`trap "exit 3" TERM; `+signals+` & while :; do wait; done`)
			pid := l.Out.wantPid("ready ")
			untilOlder(t)
			l.signal(syscall.SIGTERM)
			if got := l.Out.rest(); !slices.Equal(got, []string{"signal 15"}) {
				t.Errorf("the leftover got %q, want SIGTERM once", got)
			}
			l.mustEnd(3)
			mustHaveReport(t, path).leftover(t, pid).mustBe(t, "SIGTERM SIGKILL", "SIGKILL")
		})
	})
}

// What a command line holds arrives as it is, but for what can't be in JSON.
func TestReportOfOddArguments(t *testing.T) {
	t.Parallel()
	odd := []string{"", `"`, `\`, "a\nb", "\x01\x1b[31m", "\xff\xfe\xc3", "é ünd 漢", "<&>", "\u2028", "\ufffd", strings.Repeat("x", 100_000)}
	want := slices.Clone(odd)
	want[5] = "\ufffd\ufffd\ufffd"
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		path := reportPath(t)
		// The leftover has the same arguments, but for the long one.
		last := len(odd) - 1
		script := `f() { last=$1; setsid sh -c 'echo ready; read x; :' "$@" <"$0" & }; shift; f "$@"; read go; exit 0`
		g := newGate(t)
		l := start(t, p, slices.Concat([]string{"--linger=0", "--report=" + path, "--", "/bin/sh", "-c", script, g.name, odd[last]}, odd[:last])...)
		l.Out.want("ready")
		write(t, l, "go\n")
		l.mustEnd(0)
		r := mustHaveReport(t, path)
		if want := slices.Concat([]string{"/bin/sh", "-c", script, g.name, want[last]}, want[:last]); !slices.Equal(r.Command, want) {
			t.Errorf("the command is %.3000q, want %.3000q", r.Command, want)
		}
		if len(r.Leftovers) != 1 {
			t.Fatalf("leftovers: %+v", r.Leftovers)
		}
		if got, want := r.Leftovers[0].Command, "sh -c echo ready; read x; : "+strings.Join(want[:last], " "); got != want {
			t.Errorf("the leftover is %q, want %q", got, want)
		}
		if said := l.Err.whole(); strings.Count(said, "\n") != 1 || strings.ContainsAny(said, "\x01\x1b\u2028") {
			t.Errorf("says %q, want one line", said)
		}
	})
}

func TestReportOfUsage(t *testing.T) {
	t.Parallel()
	burn := strings.Join(mode("burn"), " ")
	scripts := map[string]string{
		"command": "exec " + burn,
		"child":   burn,
		// Its parent does not wait for it; fini does.
		"orphan": "exec setsid sh -c '" + burn + " & read x; exit' & exit",
	}
	inPlaces(t, func(t *testing.T, p place) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := reportPath(t)
				l := start(t, p, "--linger=1h", "--report="+path, "--", "/bin/sh", "-c", script)
				burnt := time.Duration(l.Out.wantPid("burnt ")) // a number
				_ = l.Stdin.Close()
				l.mustEnd(0)
				usage := mustHaveReport(t, path).Usage
				took := time.Duration((usage.UserSeconds + usage.SystemSeconds) * 1e9)
				if took < burnt-time.Millisecond || took > 2*burnt+time.Second {
					t.Errorf("reports %v of processor time, the command has used %v: %+v", took, burnt, usage)
				}
				if usage.MaxRSSBytes < burntBytes || usage.MaxRSSBytes > 4*burntBytes {
					t.Errorf("reports %d bytes, the command has used %d", usage.MaxRSSBytes, burntBytes)
				}
			})
		}
	})
}

// The file is there, and empty, as long as the command runs, and if fini is killed.
func TestReportIsEmptyUntilTheEnd(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		path := reportPath(t)
		l := start(t, p, "--report="+path, "--", "/bin/sh", "-c", `test -f "$0" && test ! -s "$0" && exit 5`, path)
		l.mustEnd(5)
		mustHaveReport(t, path)
	})
	path := reportPath(t)
	l := start(t, alone, "--report="+path, "--", "/bin/sh", "-c", `kill -KILL $PPID; read x`)
	l.mustEnd(137)
	if text := readFile(t, path); text != "" {
		t.Errorf("a fini that was killed has left %q", text)
	}
	mustHaveOnly(t, path)
}

// Where the report goes.
func TestReportFile(t *testing.T) {
	t.Parallel()
	// exits runs a command that ends with 5, and asserts that and what fini says, which may be nothing.
	exits := func(t *testing.T, cmd *exec.Cmd, says string) *life {
		t.Helper()
		l := startCmd(t, cmd)
		l.mustEnd(5)
		said := l.Err.whole()
		if says == "" && said != "" || says != "" && (strings.Count(said, "\n") != 1 ||
			!strings.HasPrefix(said, "fini: --report: cannot write ") || !strings.HasSuffix(said, ": "+says+"\n")) {
			t.Errorf("says %q, want one line with %q", said, says)
		}
		if got := l.Out.whole(); got != "" {
			t.Errorf("stdout: %q", got)
		}
		return l
	}
	five := []string{"--", "/bin/sh", "-c", "exit 5"}
	to := func(p place, path string) *exec.Cmd {
		return p.command(append([]string{"--report=" + path}, five...)...)
	}
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("relative path", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			cmd := p.command("--report=report.json", "--", "/bin/sh", "-c", "cd /; exit 5")
			cmd.Dir = filepath.Dir(path)
			exits(t, cmd, "")
			mustHaveReport(t, path)
		})
		t.Run("FINI_REPORT", func(t *testing.T) {
			t.Parallel()
			path, other := reportPath(t), reportPath(t)
			cmd := p.command(five...)
			cmd.Env = append(os.Environ(), "FINI_REPORT="+path)
			exits(t, cmd, "")
			mustHaveReport(t, path)
			cmd = to(p, other)
			cmd.Env = append(os.Environ(), "FINI_REPORT=/none/such")
			exits(t, cmd, "")
			mustHaveReport(t, other)
		})
		// It is written, whatever names lead to then, and nothing of what was in it is left.
		t.Run("existing file", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			if err := os.WriteFile(path, []byte(strings.Repeat("old", 100_000)), 0o600); err != nil {
				t.Fatal(err)
			}
			exits(t, p.command("--report="+path, "--", "/bin/sh", "-c", `mv "$0" "$0.moved"; echo new >"$0"; exit 5`, path), "")
			if text := readFile(t, path); text != "new\n" {
				t.Errorf("what has the name has %q", text)
			}
			mustBeReport(t, []byte(readFile(t, path+".moved")))
		})
		t.Run("file that is removed", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			exits(t, p.command("--report="+path, "--", "/bin/sh", "-c", `rm "$0"; exit 5`, path), "it was removed meanwhile")
		})
		t.Run("long name", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), strings.Repeat("x", 255)) // NAME_MAX
			exits(t, to(p, path), "")
			mustHaveReport(t, path)
		})
		t.Run("/dev/null", func(t *testing.T) {
			t.Parallel()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{device(t, "/dev/null")}
			exits(t, cmd, "")
		})
		t.Run("/dev/full", func(t *testing.T) {
			t.Parallel()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{device(t, "/dev/full")}
			exits(t, cmd, "no space left on device")
		})
		t.Run("FIFO", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			text := fifoWithReader(t, path)
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{w}
			l := startCmd(t, cmd)
			_ = w.Close()
			l.mustEnd(5)
			mustBeReport(t, text())
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
				cmd := p.command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000))
				cmd.ExtraFiles = []*os.File{w}
				l := startCmd(t, cmd)
				_ = w.Close()
				var text []byte
				for page := make([]byte, 1<<16); ; {
					n, err := r.Read(page)
					if text = append(text, page[:max(n, 0)]...); n == 0 || err != nil {
						break
					}
				}
				l.mustEnd(5)
				mustBeReport(t, text)
			})
		}
		// The reader has all of it, more than a pipe takes at once, and then EOF, though a
		// leftover had inherited the pipe.
		t.Run("descriptor", func(t *testing.T) {
			t.Parallel()
			r, w := pipe(t)
			cmd := p.command("-q", "--linger=0", "--report=/dev/fd/4", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 5",
				strings.Repeat("x", 100_000), strings.Repeat("y", 100_000))
			cmd.ExtraFiles = []*os.File{w}
			l := startCmd(t, cmd)
			_ = w.Close()
			got := newLines(t, r).whole()
			l.mustEnd(5)
			if r := mustBeReport(t, []byte(got)); len(r.Leftovers) != 1 || len(r.Command) != 5 {
				t.Errorf("%d leftovers, a command of %d words", len(r.Leftovers), len(r.Command))
			}
		})
		t.Run("descriptor of a file", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{file}
			exits(t, cmd, "")
			mustHaveReport(t, path)
		})
		t.Run("descriptor whose reader is gone", func(t *testing.T) {
			t.Parallel()
			r, w := pipe(t)
			_ = r.Close()
			cmd := to(p, "/dev/fd/4")
			cmd.ExtraFiles = []*os.File{w}
			exits(t, cmd, "broken pipe")
		})
	})
	for _, p := range []place{pair, alone} {
		t.Run("full disk "+p.name, func(t *testing.T) {
			need.Root(t)
			t.Parallel()
			// One page of the two is an older report's. The new one needs more, and no half of it stays.
			cmd := exec.Command(need.Program(t, "unshare"), slices.Concat([]string{"-m", "/bin/sh", "-c", `
				mount -t tmpfs -o size=8k none . && cd "$PWD" && echo old >report.json && head -c 4096 /dev/zero >rest
				"$@"; status=$?; ls -A; cat report.json; exit $status`, "sh"}, to(p, "report.json").Args, []string{strings.Repeat("x", 10_000)})...)
			cmd.Dir = t.TempDir()
			l := startCmd(t, cmd)
			if got := l.Out.whole(); got != "report.json\nrest\n" {
				t.Errorf("afterwards: %q", got)
			}
			l.mustEnd(5)
			if said := l.Err.whole(); said != "fini: --report: cannot write \"report.json\": no space left on device\n" {
				t.Errorf("says %q", said)
			}
		})
		// A stream by its name in /dev is a descriptor too. Here root has a /dev of its own,
		// for a link that is taken for a file's would be replaced.
		for _, stream := range []string{"-", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1"} {
			t.Run(strings.TrimPrefix(stream, "/")+" "+p.name, func(t *testing.T) {
				need.Root(t)
				unshare := need.Program(t, "unshare")
				t.Parallel()
				path := reportPath(t)
				l := startCmd(t, exec.Command(unshare, slices.Concat([]string{"-m", "/bin/sh", "-c", `
					mount -t tmpfs none /dev && ln -s /proc/self/fd /dev/fd && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
					"$@" >"$0" 2>&1; status=$?; test -L /dev/stdout && test -L /dev/stderr && exit $status`, path}, to(p, stream).Args)...))
				l.mustEnd(5)
				mustHaveReport(t, path)
			})
		}
	}
	// fini gives a reader five seconds, so one place is enough.
	t.Run("pipe that nobody reads", func(t *testing.T) {
		t.Parallel()
		_, w := pipe(t)
		fillPipe(t, w)
		cmd := to(pair, "/dev/fd/4")
		cmd.ExtraFiles = []*os.File{w}
		exits(t, cmd, "it was not taken within 5s")
	})
}

// device opens a device for writing.
func device(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// fillPipe writes to a pipe until it takes no more.
func fillPipe(t testing.TB, w *os.File) {
	t.Helper()
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; {
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
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
		{"no number", "/dev/fd/x", "no such file or directory"},
		{"a descriptor that can't be written", "/dev/fd/0", "bad file descriptor"},
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range tests {
			for variable, cmd := range map[bool]*exec.Cmd{
				false: p.command("--report="+tt.path, "--", "/bin/echo", "started"),
				true:  p.command("--", "/bin/echo", "started"),
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
		path := reportPath(t)
		cmd := exec.Command(setpriv, "--reuid", "12345", "--clear-groups", finiPath, "--report="+path, "--", "/bin/echo", "started")
		mustRefuse(t, cmd, fmt.Sprintf("fini: --report: cannot write %q: permission denied\n", path))
	})
}

func mustRefuse(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	l := startCmd(t, cmd)
	l.mustEnd(125)
	if out, said := l.Out.whole(), l.Err.whole(); out != "" || said != says {
		t.Errorf("stdout %q, says %q, want none and %q", out, said, says)
	}
}

// A command that could not be started is reported too, and why.
func TestReportOfWhatWasNotStarted(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
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
				path := reportPath(t)
				cmd := p.command(append([]string{"--report=" + path}, tt.args...)...)
				file, err := os.Open("/etc/passwd")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				cmd.Stdin = file
				l := startCmd(t, cmd)
				l.mustEnd(tt.status)
				r := mustHaveReport(t, path)
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
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		path := reportPath(t)
		l := start(t, p, "-v", "--report="+path, "--pause")
		l.Err.want("fini: pausing")
		l.signal(syscall.SIGTERM)
		l.mustEnd(0)
		if r := mustHaveReport(t, path); r.Exit != nil || r.Pid != 0 || len(r.Command) > 0 || len(r.Signals) != 1 {
			t.Errorf("reports %+v", r)
		}
	})
}

// The schema takes no report with a field more or less, and says what each field is.
func TestReportSchema(t *testing.T) {
	t.Parallel()
	path := reportPath(t)
	l := start(t, alone, "-c", "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
		`trap "exit 0" USR1; sh -c '(echo ready; exec sleep 1000); :' & while :; do wait; done`)
	l.Out.want("ready")
	l.caught()
	l.signal(syscall.SIGUSR1)
	l.mustEnd(0)
	mustHaveReport(t, path)
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
	got := verdicts(t, documents.Bytes())
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

// leak is a command that leaves one behind, which says "ready" and has these arguments.
func leak(trap string, args ...string) []string {
	return append([]string{"--", "/bin/sh", "-c", `sh -c '` + trap + ` echo ready; read x; :' "$@" </dev/zero & read go; exit 0`, "sh"}, args...)
}

// Lines have colour on a terminal whose user has nothing against it, and end at its edge.
func TestSaidOnATerminal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	tests := []struct {
		name     string
		columns  uint16
		env      []string
		coloured bool
	}{
		{"60 columns", 60, []string{"TERM=xterm", "NO_COLOR="}, true},
		{"200 columns", 200, []string{"TERM=xterm", "NO_COLOR="}, true},
		{"no TERM", 120, []string{"TERM=", "NO_COLOR="}, true},
		{"NO_COLOR", 120, []string{"TERM=xterm", "NO_COLOR=1"}, false},
		{"TERM=dumb", 120, []string{"TERM=dumb", "NO_COLOR="}, false},
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := terminal(t)
				if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: tt.columns}); err != nil {
					t.Fatal(err)
				}
				cmd := p.command(append([]string{"-v", "--linger=0", "--report=/dev/fd/4"}, leak("", long)...)...)
				cmd.ExtraFiles = []*os.File{device(t, "/dev/full")}
				cmd.Env, cmd.Stderr = append(os.Environ(), tt.env...), theirs
				l := startCmd(t, cmd)
				screen := newLines(t, carriageless{ours})
				l.Out.want("ready")
				write(t, l, "go\n")
				l.mustEnd(0)
				// Only now is the last of it closed, and nothing is lost on the way.
				_, _ = io.WriteString(theirs, "end\n")
				seen := map[string]int{}
				for line, _ := screen.next(); line != "end"; line, _ = screen.next() {
					text := line
					for kind, colour := range map[string]string{
						"fini: --report: cannot write": "\x1b[31m",
						"fini: started":                "\x1b[m",
						"fini: stopping leftover":      "\x1b[33m",
						"fini: command":                "\x1b[m",
						"fini: ending":                 "\x1b[m",
						"fini: the command has ended":  "\x1b[m",
						"fini: \u2514\u2500 ":          "\x1b[m",
					} {
						if !strings.Contains(line, kind) {
							continue
						}
						seen[kind]++
						if tt.coloured {
							var left, right bool
							text, left = strings.CutPrefix(text, colour)
							text, right = strings.CutSuffix(text, "\x1b[m")
							if !left || !right {
								t.Errorf("%q has not the colour %q", line, colour)
							}
						}
					}
					if strings.Contains(text, "\x1b") {
						t.Errorf("colour in %q", line)
					}
					if strings.HasPrefix(text, "fini: stopping leftover") {
						// What is said of every leftover comes first, then as much of its command line as
						// there is room for; 20 bytes are always shown.
						before, rest, _ := strings.Cut(text, "(")
						shown, after, _ := strings.Cut(rest, ")")
						room := int(tt.columns) - len(before) - len(after) - 2
						if len(shown) != max(room, 20) || !strings.HasSuffix(shown, "...") {
							t.Errorf("%d bytes of the command line on %d columns, want %d: %q", len(shown), tt.columns, max(room, 20), text)
						}
					}
				}
				if len(seen) != 7 {
					t.Errorf("not all kinds of lines: %v; %q", seen, screen.text())
				}
			})
		}
	})
}

// What goes to a pipe has no colour, -v draws the tree before the first line about it, and -q
// leaves nothing but errors.
func TestSaidToAPipe(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		run := func(t *testing.T, status int, env string, args ...string) []string {
			t.Helper()
			cmd := p.command(append([]string{"--linger=0"}, args...)...)
			cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "GITHUB_ACTIONS="+env, "GITHUB_STEP_SUMMARY=")
			cmd.ExtraFiles = []*os.File{device(t, "/dev/full")}
			l := startCmd(t, cmd)
			for range strings.Count(strings.Join(args, " "), "echo ready") {
				l.Out.want("ready")
			}
			_, _ = io.WriteString(l.Stdin, "go\n") // which a command that reads nothing does not see
			l.mustEnd(status)
			said := l.Err.rest()
			for _, line := range said {
				if strings.Contains(line, "\x1b") || !strings.HasPrefix(line, "fini: ") && !strings.HasPrefix(line, "::warning title=fini::") && !strings.HasPrefix(line, "::error title=fini::") {
					t.Errorf("says %q", line)
				}
			}
			return said
		}
		annotations := func(said []string) (all []string) {
			for _, line := range said {
				if text, ok := strings.CutPrefix(line, "::warning title=fini::"); ok {
					all = append(all, text)
				}
			}
			return all
		}
		clean := []string{"--", "/bin/sh", "-c", "exit 0"}
		t.Run("tree", func(t *testing.T) {
			t.Parallel()
			said := run(t, 0, "", "-v", "--", "/bin/sh", "-c",
				`sh -c 'sh -c "echo ready; read x; :" </dev/zero; :' & sh -c 'echo ready; read x; :' </dev/zero & read go; exit 0`)
			i := slices.IndexFunc(said, func(line string) bool { return strings.HasPrefix(line, "fini: stopping leftover ") })
			if i < 3 {
				t.Fatalf("says %q", said)
			}
			var drawn []string
			for _, line := range said[i-3 : i] {
				words := strings.Fields(strings.NewReplacer("\u251c\u2500", "+", "\u2514\u2500", "`", "\u2502", "|").Replace(strings.TrimPrefix(line, "fini: ")))
				for j, word := range words {
					if strings.Trim(word, "0123456789") == "" {
						words = append(words[:j:j], words[j+1])
						break
					}
				}
				drawn = append(drawn, strings.Join(words, " "))
			}
			want := [][]string{{"+ sh", "| ` sh", "` sh"}, {"+ sh", "` sh", "` sh"}}
			if !slices.ContainsFunc(want, func(w []string) bool { return slices.Equal(drawn, w) }) {
				t.Errorf("draws %q from %q", drawn, said)
			}
		})
		t.Run("quiet", func(t *testing.T) {
			t.Parallel()
			if said := run(t, 0, "true", append([]string{"-q"}, leak("")...)...); len(said) > 0 {
				t.Errorf("says %q", said)
			}
			want := []string{"fini: exit 42 instead of 0: --orphans-exit, 1 leftover"}
			if said := run(t, 42, "true", append([]string{"-q", "--orphans-exit=42"}, leak("")...)...); !slices.Equal(said, want) {
				t.Errorf("says %q, want %q", said, want)
			}
			if said := run(t, 0, "", "-q", "--report=/dev/fd/4", "--", "true"); len(said) != 1 {
				t.Errorf("says %q, want the one error", said)
			}
		})
		t.Run("GitHub", func(t *testing.T) {
			t.Parallel()
			said := run(t, 0, "true", leak("", "100%", "a\nb\r::error::c", "%0A")...)
			if len(said) != 2 {
				t.Fatalf("says %q, want two lines", said)
			}
			text, ok := strings.CutPrefix(said[0], "fini: stopping leftover ")
			if want := "%0A" + strings.ReplaceAll(text, "%", "%25"); !ok || !strings.HasPrefix(said[1], "::warning title=fini::The command left 1 process running") ||
				!strings.HasSuffix(said[1], want) {
				t.Errorf("says %q", said)
			}
			if !strings.Contains(said[1], " 100%25 a?b?::error::c %250A)") {
				t.Errorf("the name is not what it was: %q", said[1])
			}
		})
		// One that needs SIGKILL too is one leftover.
		t.Run("GitHub and SIGKILL", func(t *testing.T) {
			t.Parallel()
			said := run(t, 0, "true", append([]string{"--grace=50ms"}, leak(`trap "" TERM;`)...)...)
			all := annotations(said)
			if len(said) != 3 || len(all) != 1 || strings.Count(all[0], "%0A") != 1 {
				t.Errorf("says %q", said)
			}
		})
		t.Run("GitHub and many", func(t *testing.T) {
			t.Parallel()
			said := run(t, 0, "true", "--", "/bin/sh", "-c",
				"for i in $(seq 25); do sh -c 'read x; :' %%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%% </dev/zero & done; echo ready; read go; exit 0")
			all := annotations(said)
			if len(all) != 1 || !strings.HasPrefix(all[0], "The command left 25 processes running (below), ") || len(all[0]) > 4000 {
				t.Errorf("annotates %q", all)
			}
		})
		t.Run("GitHub without a leftover", func(t *testing.T) {
			t.Parallel()
			if said := run(t, 0, "true", clean...); len(said) > 0 {
				t.Errorf("says %q", said)
			}
		})
		t.Run("not GitHub", func(t *testing.T) {
			t.Parallel()
			for _, env := range []string{"", "false"} {
				if said := run(t, 0, env, leak("")...); len(said) != 1 || len(annotations(said)) > 0 {
					t.Errorf("GITHUB_ACTIONS=%s: says %q", env, said)
				}
			}
		})
		t.Run("orphans-exit", func(t *testing.T) {
			t.Parallel()
			path := reportPath(t)
			flags := []string{"--orphans-exit=42", "--report=" + path}
			if said := run(t, 42, "", append(flags, leak("")...)...); len(said) != 2 || said[1] != "fini: exit 42 instead of 0: --orphans-exit, 1 leftover" {
				t.Errorf("says %q", said)
			}
			if got := mustHaveReport(t, path).String(); got != "42 exit 0" {
				t.Errorf("reports %q", got)
			}
			if said := run(t, 0, "", append(flags, clean...)...); len(said) > 0 {
				t.Errorf("says %q", said)
			}
			if got := mustHaveReport(t, path).String(); got != "0 exit 0" {
				t.Errorf("reports %q", got)
			}
		})
	})
}
