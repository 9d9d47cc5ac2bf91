package report

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The command's own end, why fini stopped it, and which signals came.
func TestReportOfTheCommand(t *testing.T) {
	t.Parallel()
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	const sleeps = "echo ready; exec sleep 1000"
	odd := []string{"", `"`, `\`, "a\nb", "\x01\x1b[31m", "é ünd 漢", "<&>", "\u2028", "\ufffd", strings.Repeat("x", 100_000)}
	closes := func(l *rig.Life) { _ = l.Stdin.Close() }
	tests := []struct {
		name    string
		flags   string
		command []string
		drive   func(l *rig.Life) // from the word "ready" on
		want    string
	}{
		{"clean", "", append(sh(""), odd...), nil, "0 exit 0"},
		{"status", "", sh("exit 200"), nil, "200 exit 200"},
		{"remapped", "-e 200", sh("exit 200"), nil, "0 exit 200"},
		{"signal", "", sh("kill -TERM $$"), nil, "143 SIGTERM"},
		{"killed", "", sh("kill -KILL $$"), nil, "137 SIGKILL"},
		{"timeout", "", sh(sleeps), nil, "124 SIGTERM for timeout"},
		{"timeout and SIGKILL", "--grace=50ms", sh(`trap "" TERM; ` + sleeps), nil, "124 SIGKILL for timeout"},
		// Its leftover is ready when the command has been reaped.
		{"timeout after the end", "--linger=1h", sh(`(while test -e /proc/$$; do sleep 0.01; done; ` + sleeps + `) & exit 3`), nil, "3 exit 3 for timeout"},
		{"stdin closed", "-i --grace=500ms", sh(sleeps), closes, "143 SIGTERM for stdin"},
		{"stdin not watched", "", sh("echo ready; read line || exit 4"), closes, "4 exit 4"},
		{"signals", "", rig.Mode("signals", "10"), func(l *rig.Life) {
			for _, sig := range []syscall.Signal{unix.SIGUSR2, unix.SIGHUP, 37} {
				l.Signal(sig)
				l.Out.Want(fmt.Sprint("signal ", int(sig)))
			}
			l.Signal(unix.SIGUSR1)
		}, "7 exit 7\nSIGUSR2 from test\nSIGHUP from test\nSIGRTMIN+3 from test\nSIGUSR1 from test"},
		{"rewritten signal", "-r TERM:USR1", rig.Mode("signals", "10"), func(l *rig.Life) { l.Signal(unix.SIGTERM) }, "7 exit 7\nSIGTERM from test"},
	}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var path string
				begin := func(t testing.TB, flag string) *rig.Life {
					path = reports.Path(t)
					return rig.Start(t, p, slices.Concat([]string{flag, "--report=" + path}, strings.Fields(tt.flags), []string{"--"}, tt.command)...)
				}
				var l *rig.Life
				if strings.HasPrefix(tt.name, "timeout") {
					l = rig.OutOfTime(t, begin)
				} else {
					l = begin(t, "--timeout=1h")
				}
				if tt.drive != nil {
					l.Out.Want("ready")
					l.Caught()
					tt.drive(l)
				}
				want := tt.want
				status, _, _ := strings.Cut(want, " ")
				l.MustEnd(must(strconv.Atoi(status)))
				r := reports.MustHave(t, path)
				if p.PID1 { // from outside its PID namespace nobody has a pid, or a name
					want = strings.ReplaceAll(want, " from test", "")
				}
				got := r.Words(map[string]int{"test": os.Getpid()})
				if strings.HasPrefix(tt.name, "timeout a") { // which have leftovers
					got, _, _ = strings.Cut(got, "\n")
				}
				if got != want || !slices.Equal(r.Command, tt.command) || r.Pid <= 0 {
					t.Errorf("reports %q, pid %d, the command %q, want %q", got, r.Pid, r.Command, want)
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
			want += "\nleftover was sent SIGTERM SIGKILL, ended SIGKILL, holds stdout stderr"
			if got := r.Words(pids); !strings.HasPrefix(got, want) || r.Pid != pids["command"] {
				t.Errorf("reports %q, pid %d, want %q and the command's pid %d", got, r.Pid, want, pids["command"])
			}
		})
	}
}

// Each leftover prints its pid behind its word, in its PID namespace, when it is what it is to be.
func TestReportOfLeftovers(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals"), " ")
	const (
		both   = ", holds stdout stderr"
		sleeps = ` ` + rig.UntilSleeps + `; echo ready $!`
		// Its stdin ends with the command.
		ends = `dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; echo ready $$`
	)
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, tt := range []struct {
			name, flags, script string
			want                string // in the report
		}{
			{"ends on SIGTERM", "--linger=0", `setsid sleep 1000 &` + sleeps, "ready was sent SIGTERM, ended SIGTERM, detached" + both},
			{"needs SIGKILL", "--linger=0 --grace=1s", signals + " &", "ready was sent SIGTERM SIGKILL, ended SIGKILL" + both},
			{"exits", "--linger=0 --grace=1h", signals + " 15 &", "ready was sent SIGTERM, ended exit 7" + both},
			{"holds stdout", "--linger=0", `sleep 1000 2>/dev/null &` + sleeps, "ready was sent SIGTERM, ended SIGTERM, holds stdout"},
			{"holds stderr", "--linger=0", `sleep 1000 >&2 2>/dev/null &` + sleeps, "ready was sent SIGTERM, ended SIGTERM, holds stderr"},
			{"holds none", "--linger=0", `sleep 1000 >/dev/null 2>&1 &` + sleeps, "ready was sent SIGTERM, ended SIGTERM"},
			{"ends within linger", "--linger=1h", ends, ""},
			{"is waited for", "--orphans=wait", ends, ""},
			{"chain", "--linger=0 --grace=50ms", `sh -c 'trap "" TERM; echo top $$; sh -c "echo middle \$\$; $0 & wait; :"; :' "` + signals + `" &`,
				"middle" + both + ", started by top\nready" + both + ", started by middle < top\ntop" + both},
		} {
			// Alone it does what the inner one of a pair does.
			rig.Case(t, p == rig.Pair || p.PID1 && tt.name == "chain", tt.name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				l := rig.Start(t, p, slices.Concat([]string{"--report=" + path}, strings.Fields(tt.flags), []string{"--", "/bin/sh", "-c",
					tt.script + "\nread go; exit 9"})...)
				words := []string{"ready"}
				if tt.name == "chain" {
					words = append(words, "top", "middle")
				}
				pids := pidsOf(t, l, words...)
				rig.Write(t, l, "go\n")
				l.MustEnd(9)
				r, said := reports.MustHave(t, path), l.Err.Whole()
				got, want := r.Words(pids), strings.TrimSpace("9 exit 9\n"+tt.want)
				if tt.name == "chain" { // of which one ends by itself, or is reaped by another, or not
					got = regexp.MustCompile(` was sent SIGTERM( SIGKILL)?(, ended \w+)?`).ReplaceAllString(got, "")
				}
				if got != want || r.Reaped < 1 || len(words) == 1 && r.Reaped > 1 {
					t.Errorf("reports %q, and %d reaped, want %q; stderr: %s", got, r.Reaped, want, said)
				}
				// However long it stays, it is asked once. On a busy machine SIGKILL may come before it has said so.
				if got := l.Out.Rest(); len(got) > 1 {
					t.Errorf("the leftover says %q", got)
				}
				if holds := strings.Contains(said, "which holds"); holds != (strings.Contains(tt.want, "holds") && !p.PID1) || tt.want == "" && said != "" {
					t.Errorf("says %q", said)
				}
			})
		}
		// It had SIGTERM with the group: fini sends none, and the report has it once.
		t.Run("had SIGTERM with the group", func(t *testing.T) {
			t.Parallel()
			path := reports.Path(t)
			l := rig.Start(t, p, "--linger=0", "--grace=5s", "--report="+path, "--", "/bin/sh", "-c",
				`trap "exit 3" TERM; `+signals+` & while :; do wait; done`)
			pids := pidsOf(t, l, "ready")
			rig.UntilOlder(t)
			l.Signal(syscall.SIGTERM)
			rig.MustRecord(t, "the leftover says", l.Out.Rest(), "signal 15")
			l.MustEnd(3)
			if got := reports.MustHave(t, path).Words(pids); !strings.HasSuffix(got, "\nready was sent SIGTERM SIGKILL, ended SIGKILL"+both) {
				t.Errorf("reports %q", got)
			}
		})
	})
}

// What a process has used is told also if its parent process does not wait for it, and fini does.
func TestReportOfUsage(t *testing.T) {
	t.Parallel()
	// It touches 50 MB, and says how long it has had a processor.
	const burnt50MB, script = 50 << 20, `exec setsid sh -c 'python3 -c "import time
memory = bytearray(range(256)) * 204800
while time.process_time() < .2: pass
print(time.process_time_ns())" & read x; exit' & exit`
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		path := reports.Path(t)
		l := rig.Start(t, p, "--linger=1h", "--report="+path, "--", "/bin/sh", "-c", script)
		burnt := time.Duration(l.Out.WantPID("")) // a number
		_ = l.Stdin.Close()
		l.MustEnd(0)
		usage := reports.MustHave(t, path).Usage
		took := time.Duration((usage.UserSeconds + usage.SystemSeconds) * 1e9)
		if took < burnt-time.Millisecond || took > 2*burnt+time.Second {
			t.Errorf("reports %v of processor time, the command has used %v: %+v", took, burnt, usage)
		}
		if usage.MaxRSSBytes < burnt50MB*9/10 || usage.MaxRSSBytes > 4*burnt50MB { // the kernel counts it in batches
			t.Errorf("reports %d bytes, the command has used %d", usage.MaxRSSBytes, burnt50MB)
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

// The schema takes no report with a field more or less, or with another value.
func TestReportSchema(t *testing.T) {
	t.Parallel()
	var schema any
	rig.MustParse(t, []byte(rig.ReadFile(t, "../docs/report.schema.json")), &schema)
	objects := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		list, _ := v.([]any)
		for i, item := range list {
			walk(fmt.Sprint(at, "/", i), item)
		}
		one, _ := v.(map[string]any)
		if strings.Contains(fmt.Sprint(one["type"]), "object") {
			objects++
			fields := one["properties"].(map[string]any)
			for _, name := range one["required"].([]any) {
				field, _ := fields[name.(string)].(map[string]any)
				if !slices.ContainsFunc([]string{"type", "$ref", "anyOf", "enum", "const"}, func(says string) bool { return field[says] != nil }) {
					t.Errorf("%s/%s may be anything", at, name)
				}
			}
			if len(one["required"].([]any)) != len(fields) || one["additionalProperties"] != false {
				t.Errorf("%s has optional fields", at)
			}
		}
		for name, value := range one {
			walk(at+"/"+name, value)
		}
	}
	walk("", schema)
	if objects < 9 { // itself, exit, seconds, usage, a signal and its sender, a leftover, a process, a hint
		t.Errorf("only %d objects were found", objects)
	}
	path := reports.Path(t)
	l := rig.Start(t, rig.Alone, "-c", "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
		`trap "exit 0" USR1; sh -c '(echo ready; exec sleep 1000); :' & while :; do wait; done`)
	l.Out.Want("ready")
	l.Caught()
	l.Signal(syscall.SIGUSR1)
	l.MustEnd(0)
	reports.MustHave(t, path)
	text := rig.ReadFile(t, path)
	documents, wrong := text, [][2]string{
		{`"version": 2`, `"version": 3`}, {`"status": 0`, `"status": 256`}, {`"stopped": null`, `"stopped": "boredom"`},
		{`"signal": null`, `"signal": "SIGTERM"`}, // and a code
		{`"started": "`, `"started": "yesterday, `}, {`"reaped"`, `"harvested"`},
	}
	for _, change := range wrong {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("no %s: %s", change[0], text)
		}
		documents += strings.Replace(text, change[0], change[1], 1)
	}
	for i, verdict := range reports.Verdicts(t, []byte(documents)) {
		if (verdict == "valid") != (i == 0) {
			t.Errorf("document %d of itself and %q is %s", i, wrong, verdict)
		}
	}
}

// The report tells a host that has crashed from one that has closed the standard input of its server. A host that dies closes
// that too, just before its death can be seen: TestCrashOrClose in internal/life has what fini makes of the two.
func TestReportTellsACrashFromAClose(t *testing.T) {
	t.Parallel()
	const host = `mkfifo "$FIFO"; "$@" <"$FIFO" & exec 9>"$FIFO"; echo ready; read go; exec 9>&-; wait`
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for name, command := range map[string]string{"a command that ends with stdin": "cat", "and one that does not": "sleep 1000"} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				stopped := func(end func(l *rig.Life)) string {
					path := reports.Path(t)
					cmd := exec.Command("/bin/sh", append([]string{"-c", host, "sh"},
						p.Command("-i", "--grace=300ms", "--report="+path, "--", "/bin/sh", "-c", "echo there; exec "+command).Args...)...)
					cmd.Env = append(os.Environ(), "FIFO="+filepath.Join(t.TempDir(), "fifo"))
					l := rig.StartCmd(t, cmd)
					for range 2 { // "ready" and "there", in any order
						l.Out.Next()
					}
					end(l)
					l.Wait()
					rig.Until(t, "the tree has ended", func() bool { return rig.HungUp(l.Witness) })
					rig.Until(t, "the report is there", func() bool { text, _ := os.ReadFile(path); return len(text) > 0 })
					return fmt.Sprint(reports.MustHave(t, path).Stopped)
				}
				ended := command == "cat" // maybe before fini sees the end of stdin
				if got := stopped(func(l *rig.Life) { rig.Write(t, l, "go\n") }); got != "stdin" && !(ended && got == "<nil>") {
					t.Errorf("after a close it was stopped for %s", got)
				}
				got := ""
				for range rig.Rounds(t, 3, "a crash is told", func() bool { return got == "launcher" }) {
					got = stopped(func(l *rig.Life) { rig.MustKill(t, l.PID(), syscall.SIGKILL) })
					// A busy machine may take longer than fini waits for the death.
					if got != "launcher" && got != "stdin" && !(ended && got == "<nil>") {
						t.Errorf("after a crash it was stopped for %s", got)
					}
				}
			})
		}
	}
}
