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
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A life is what fini is given, what happens once the command is ready, and what the report says of it.
type life struct {
	name, flags string
	command     []string
	drive       func(l *rig.Life)
	want        string // in words, of which the first is the status
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// tell compares the report of such a life with what is wanted.
func (tt life) tell(t *testing.T, p rig.Place) (reports.Report, *rig.Life) {
	t.Helper()
	var path string
	begin := func(t testing.TB, timeout string) *rig.Life {
		path = reports.Path(t)
		flags := append(strings.Fields(timeout+" "+tt.flags), "--report="+path, "--")
		cmd := p.Command(append(flags, tt.command...)...)
		if tt.name == "not to be watched" {
			cmd.Stdin = must(os.Open("/etc/passwd"))
		}
		return rig.StartCmd(t, cmd)
	}
	var l *rig.Life
	if strings.HasPrefix(tt.name, "timeout") {
		l = rig.OutOfTime(t, begin)
	} else {
		l = begin(t, "")
	}
	pids := map[string]int{}
	if tt.drive != nil {
		if tt.command != nil {
			pids = pidsOf(l, "ready")
			l.Caught()
		}
		tt.drive(l)
	}
	status, _, _ := strings.Cut(tt.want, " ")
	l.MustEnd(must(strconv.Atoi(status)))
	if p.PID1 { // from outside its PID namespace nobody has a pid, or a name
		tt.want = strings.ReplaceAll(tt.want, " from test", "")
	} else {
		pids["test"] = os.Getpid()
	}
	r := reports.MustHave(t, path)
	got := r.Words(pids)
	switch tt.name {
	case "timeout after the end":
		got, _, _ = strings.Cut(got, "\n")
	case "chain": // of which one ends by itself, or is reaped by another, or not
		got = regexp.MustCompile(` was sent SIGTERM( SIGKILL)?(, ended \w+)?`).ReplaceAllString(got, "")
	}
	isRun := !strings.Contains(tt.want, "end not seen")
	if got != tt.want || !slices.Equal(r.Command, tt.command) || isRun != (r.Pid > 0) || isRun != (r.Ended != nil) {
		t.Errorf("reports %q, pid %d, the command %q, want %q; stderr: %s", got, r.Pid, r.Command, tt.want, l.Err.Text())
	}
	return r, l
}

// pidsOf are those that stand behind a word in the lines up to one that begins with the last word.
func pidsOf(l *rig.Life, last string) map[string]int {
	l.T.Helper()
	l.Out.Want(last)
	pids := map[string]int{}
	for _, said := range regexp.MustCompile(`(?m)^(\w+) (\d+)$`).FindAllStringSubmatch(l.Out.Text(), -1) {
		pids[said[1]] = must(strconv.Atoi(said[2]))
	}
	return pids
}

// The command's own end, why fini stopped it, which signals came, and why it could not be started.
func TestReportOfTheCommand(t *testing.T) {
	t.Parallel()
	const sleeps = "echo ready; exec sleep 1000"
	odd := []string{"", `"`, `\`, "a\nb", "\x01\x1b[31m", "é ünd 漢", "<&>", "\u2028", "\ufffd", strings.Repeat("x", 100_000)}
	closes := func(l *rig.Life) { _ = l.Stdin.Close() }
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range []life{
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
			{"not found", "", []string{"no-such-command"}, nil, "127 end not seen: cannot run no-such-command: not found on PATH"},
			{"not executable", "", []string{"/etc/passwd"}, nil, "126 end not seen: cannot run /etc/passwd: permission denied: " +
				"it is not executable; chmod +x /etc/passwd makes it so"},
			{"not to be watched", "-i", []string{"cat"}, nil, "125 end not seen: --stdin-eof: cannot watch standard input: " +
				"a file has no far end; want a pipe, a socket or a terminal"},
			{"a pod's pause process", "-v --pause", nil, func(l *rig.Life) {
				l.Err.Want("fini: pausing")
				l.Signal(unix.SIGTERM)
			}, "0 end not seen\nSIGTERM from test"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.tell(t, p)
			})
		}
	})
}

// Whichever of a pair is killed, the other one writes. If it is their launcher, they end as usual.
func TestReportThoughOneIsKilled(t *testing.T) {
	t.Parallel()
	const script = `echo command $$; sh -c 'trap "" TERM; exec sleep 1000' & ` + rig.UntilSleeps + `; echo leftover $!; wait; exec sleep 1000`
	for victim, want := range map[string]string{
		"inner":    "137 SIGTERM",
		"outer":    "143 SIGTERM for fini",
		"launcher": "143 SIGTERM for launcher",
	} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			path, junit := reports.Path(t), filepath.Join(t.TempDir(), "leaks.xml")
			l := rig.Launch(t, rig.Pair, "--grace=2s", "--linger=0", "--report="+junit, "--report="+path, "--", "/bin/sh", "-c", script)
			pids := pidsOf(l.Life, "leftover")
			inner := l.Inner()
			rig.WaitCaught(t, l.Outer, inner) // so the inner one has told the outer one of the command
			rig.MustKill(t, map[string]int{"inner": inner, "outer": l.Outer, "launcher": l.Launcher}[victim], syscall.SIGKILL)
			r := written(t, l.Life, path)
			if text := rig.ReadFile(t, junit); !strings.HasSuffix(text, "</testsuites>\n") {
				t.Errorf("as JUnit it reports %q", text)
			}
			want += "\nleftover was sent SIGTERM SIGKILL, ended SIGKILL, holds stdout stderr"
			if got := r.Words(pids); !strings.HasPrefix(got, want) || r.Pid != pids["command"] {
				t.Errorf("reports %q, pid %d, want %q and the command's pid %d", got, r.Pid, want, pids["command"])
			}
		})
	}
}

// written waits for the end of a tree, and for the report of a fini that nobody waits for.
func written(t *testing.T, l *rig.Life, path string) reports.Report {
	t.Helper()
	rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
	rig.Until(t, "the report", func() bool { text, _ := os.ReadFile(path); return bytes.HasSuffix(text, []byte("\n}\n")) })
	return reports.MustHave(t, path)
}

// Each leftover prints its pid behind its word, in its PID namespace, when it is what it is to be.
func TestReportOfLeftovers(t *testing.T) {
	t.Parallel()
	signals := strings.Join(rig.Mode("signals"), " ")
	const (
		both   = ", holds stdout stderr"
		termed = "9 exit 9\nready was sent SIGTERM, ended "
		killed = "ready was sent SIGTERM SIGKILL, ended SIGKILL" + both
		sleeps = ` ` + rig.UntilSleeps + `; echo ready $!`
		// Its stdin ends with the command.
		ends = `dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; echo ready $$`
	)
	then := func(script string) []string { return sh(script + "\nread go; exit 9") }
	goes := func(l *rig.Life) { rig.Write(l.T, l, "go\n") }
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, tt := range []life{
			{"ends on SIGTERM", "--linger=0", then(`setsid sleep 1000 &` + sleeps), goes, termed + "SIGTERM, detached" + both},
			{"needs SIGKILL", "--linger=0 --grace=1s", then(signals + " &"), goes, "9 exit 9\n" + killed},
			{"exits", "--linger=0 --orphans-grace=1h", then(signals + " 15 &"), goes, termed + "exit 7" + both},
			{"holds stdout", "--linger=0", then(`sleep 1000 2>/dev/null &` + sleeps), goes, termed + "SIGTERM, holds stdout"},
			{"holds stderr", "--linger=0", then(`sleep 1000 >&2 2>/dev/null &` + sleeps), goes, termed + "SIGTERM, holds stderr"},
			{"holds none", "--linger=0", then(`sleep 1000 >/dev/null 2>&1 &` + sleeps), goes, termed + "SIGTERM"},
			{"ends within linger", "--linger=1h", then(ends), goes, "9 exit 9"},
			{"is waited for", "--orphans=wait", then(ends), goes, "9 exit 9"},
			{"ends within linger, audited", "--orphans=leave --orphans-exit=9 --linger=1h", sh(ends + "\nread go; exit 0"), goes, "0 exit 0"},
			{"chain", "--linger=0 --grace=50ms",
				then(`sh -c 'trap "" TERM; echo top $$; sh -c "echo middle \$\$; $0 & wait; :"; :' "` + signals + `" &`), goes,
				"9 exit 9\nmiddle" + both + ", started by top\nready" + both + ", started by middle < top\ntop" + both},
			// fini sends no SIGTERM of its own, and the report has it once.
			{"had SIGTERM with the group", "--linger=0 --grace=5s", sh(`trap "exit 3" TERM; ` + signals + ` & while :; do wait; done`),
				func(l *rig.Life) { rig.UntilOlder(l.T); l.Signal(unix.SIGTERM) }, "3 exit 3\nSIGTERM from test\n" + killed},
		} {
			isChain, hadTerm := tt.name == "chain", strings.HasPrefix(tt.name, "had")
			// Alone it does what the inner one of a pair does.
			rig.Case(t, p == rig.Pair || p.PID1 && isChain || hadTerm, tt.name, func(t *testing.T) {
				t.Parallel()
				r, l := tt.tell(t, p)
				if r.Reaped < 1 || r.Reaped > 1 && !isChain {
					t.Errorf("%d reaped", r.Reaped)
				}
				// However long it stays, it is asked once. On a busy machine SIGKILL may come before it has said so.
				if got := l.Out.Rest(); len(got) > 1 || hadTerm && len(got) < 1 {
					t.Errorf("the leftover says %q", got)
				}
				said, left := l.Err.Whole(), strings.Contains(tt.want, "\n")
				holds := strings.Contains(tt.want, "holds") && !p.PID1
				if strings.Contains(said, "which holds") != holds || !left && said != "" {
					t.Errorf("says %q", said)
				}
			})
		}
	})
}

// What a process has used is told also if its parent process does not wait for it, and fini does.
func TestReportOfUsage(t *testing.T) {
	t.Parallel()
	need.Program(t, "python3")
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

// A fini that is killed leaves the file empty.
func TestReportIsEmptyUntilTheEnd(t *testing.T) {
	t.Parallel()
	path := reports.Path(t)
	l := rig.Start(t, rig.Alone, "--report="+path, "--", "/bin/sh", "-c", `kill -KILL $PPID; read x`)
	l.MustHaveStatus(137)
	rig.Until(t, "the end of the command", func() bool { return rig.HungUp(l.Witness) })
	if text := rig.ReadFile(t, path); text != "" {
		t.Errorf("a fini that was killed has left %q", text)
	}
	reports.MustHaveOnly(t, path)
}

// The schema takes no report with a field more or less, or with another value.
func TestReportSchema(t *testing.T) {
	t.Parallel()
	// The objects are itself, exit, seconds, usage, a signal and its sender, a leftover, a process, a hint.
	rig.Run(t, need.Program(t, "jq"), "-e", `[.. | objects | select(.type | tostring | contains("object"))] | length >= 9 and
		all(.additionalProperties == false and (.required | sort) == (.properties | keys) and
			all(.properties[]; has("type") or has("$ref") or has("anyOf") or has("enum") or has("const")))`, "../docs/report.schema.json")
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

// The report of a server whose host has closed its standard input says so, be it that the server ends by itself or not. A host
// that dies closes it too: whichever of the two fini sees first is the reason.
func TestReportTellsOfAClose(t *testing.T) {
	t.Parallel()
	const host = `mkfifo "$FIFO"; "$@" <"$FIFO" & exec 9>"$FIFO"; echo ready; read go; exec 9>&-; wait`
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for name, command := range map[string]string{"a command that ends with stdin": "cat", "and one that does not": "sleep 1000"} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				cmd := exec.Command("/bin/sh", append([]string{"-c", host, "sh"},
					p.Command("-i", "--grace=300ms", "--report="+path, "--", "/bin/sh", "-c", "echo there; exec "+command).Args...)...)
				cmd.Env = append(os.Environ(), "FIFO="+filepath.Join(t.TempDir(), "fifo"))
				l := rig.StartCmd(t, cmd)
				for range 2 { // "ready" and "there", in any order
					l.Out.Next()
				}
				rig.Write(t, l, "go\n")
				l.Wait()
				ended := command == "cat" // maybe before fini sees the end of stdin
				if got := fmt.Sprint(written(t, l, path).Stopped); got != "stdin" && !(ended && got == "<nil>") {
					t.Errorf("after a close it was stopped for %s", got)
				}
			})
		}
	}
}
