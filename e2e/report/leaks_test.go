package report

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// listeners starts fini and below it, in the directory, one that listens as these words say, at the addresses that it is told. Of
// env, IN=NAME=VALUE sets a variable for that one alone.
func listeners(t *testing.T, p rig.Place, env []string, flags []string, dir string, words ...string) (l *rig.Life, pids map[string]int, at []string) {
	t.Helper()
	cmd := p.Command(slices.Concat(flags, []string{"--", "/bin/sh", "-c", `dir=$1; shift; (cd "$dir"; ${IN:+export "$IN"}; exec "$@") & read go; exit 0`, "sh", dir},
		rig.Mode("listen", words...))...)
	cmd.Env = append(os.Environ(), append([]string{"GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY="}, env...)...)
	l = rig.StartCmd(t, cmd)
	pids = pidsOf(t, l, "listener")
	for line := range strings.Lines(l.Out.Text()) {
		if address, ok := strings.CutPrefix(line, "listens "); ok {
			at = append(at, strings.TrimSpace(address))
		}
	}
	return l, pids, at
}

// A leftover's line and its entry in the report name its ports, its directory and its user.
func TestLeftoverSaysWhereItListens(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		dir, here := t.TempDir(), must(os.Getwd())
		for _, tt := range []struct {
			name, dir string
			words     []string
			line      string // ends in this, behind the command; a number stands for an address
			reports   string
		}{
			{"tcp and unix", dir, []string{"tcp 127.0.0.1:0", "unix @fini " + dir, "unix " + filepath.Join(dir, "s"), "tcp 0.0.0.0:0"},
				", listens on %[1]s and %[2]s and %[3]s and 1 more, in " + dir, ", listens on %[1]s %[2]s %[3]s %[4]s, in " + dir},
			{"nothing, and here", here, nil, "", ""},
			{"another user", "/", []string{"54321", "tcp 127.0.0.1:0"}, ", listens on %[1]s, in /, as user 54321", ", listens on %[1]s, in /, as user 54321"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				if tt.name == "another user" {
					need.Root(t) // who else can't become another, or may not look at it then
				}
				path := reports.Path(t)
				l, pids, at := listeners(t, p, nil, []string{"--linger=0", "--report=" + path}, tt.dir, tt.words...)
				rig.Write(t, l, "go\n")
				l.MustEnd(0)
				filled := func(text string) string { // with the addresses
					for i, address := range at {
						text = strings.ReplaceAll(text, fmt.Sprintf("%%[%d]s", i+1), address)
					}
					return text
				}
				want := filled(tt.line)
				if !p.PID1 { // no leftover of PID 1 outlives fini, so none keeps a reader waiting
					want += ", which holds stdout and stderr"
				}
				if _, line, _ := strings.Cut(string(rig.Ageless([]byte(l.Err.Whole()))), ")"); line != want+"\n" {
					t.Errorf("says %q, want it to end in %q", l.Err.Text(), want)
				}
				want = filled("0 exit 0\nlistener was sent SIGTERM, ended SIGTERM, holds stdout stderr" + tt.reports)
				if got := reports.MustHave(t, path).Words(pids); got != want {
					t.Errorf("reports %q, want %q", got, want)
				}
			})
		}
	})
}

// An audit counts and names what is left, and touches nobody.
func TestAudit(t *testing.T) {
	t.Parallel()
	const leaves, status = "fini: leaving leftover ", "fini: exit 9 instead of 0: --orphans-exit, 1 leftover"
	audit := []string{"--orphans=leave", "--orphans-exit=9"}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name   string
			flags  []string
			status int
			says   []string // the beginnings of lines
		}{
			{"audit", audit, 9, []string{leaves, status}},
			{"quiet", append(audit, "-q"), 9, []string{status}},
			{"a look", audit[:1], 0, []string{leaves}},
			{"a quiet look", []string{audit[0], "-q"}, 0, nil},
		} {
			rig.Case(t, tt.name == "audit" || p == rig.Pair, tt.name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				l, pids, at := listeners(t, p, nil, append(tt.flags, "--linger=10ms", "--report="+path), "/", "tcp 127.0.0.1:0")
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(tt.status)
				if !p.PID1 { // where the kernel ends it
					t.Cleanup(func() { _ = syscall.Kill(pids["listener"], syscall.SIGKILL) })
					mustListen(t, at[0])
				}
				want := fmt.Sprintf("%d exit 0\nlistener, spared for leave, holds stdout stderr, listens on %s, in /", tt.status, at[0])
				if got := reports.MustHave(t, path).Words(pids); got != want {
					t.Errorf("reports %q, want %q", got, want)
				}
				rig.Until(t, "its lines", func() bool { return strings.Count(l.Err.Text(), "\n") >= len(tt.says) })
				if said := slices.Collect(strings.Lines(l.Err.Text())); !slices.EqualFunc(said, tt.says, strings.HasPrefix) {
					t.Errorf("says %q, want %q", said, tt.says)
				}
			})
		}
	})
	// What ends within the linger does not count.
	l := rig.Start(t, rig.Pair, append(audit, "--linger=1h", "--", "/bin/sh", "-c",
		`dir=$(mktemp -d); mkfifo $dir/f; sh -c 'read x; exit 5' <$dir/f & exec 5>$dir/f; rm -r $dir; exit 0`)...)
	l.MustEnd(0)
	rig.MustRecord(t, "fini says", l.Err.Rest())
}

// mustListen asserts that somebody answers at an address.
func mustListen(t *testing.T, at string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	rig.NoError(t, err)
	_ = conn.Close()
}

// On GitHub a leak that decides the status is an error, and the step has a summary.
func TestGitHubSummary(t *testing.T) {
	t.Parallel()
	const (
		fails  = "The command succeeded, but left 1 process running (below), so this step fails (--orphans-exit)"
		warns  = "The command left 1 process running (below), and fini stopped what did not exit"
		looks  = "The command left 1 process running (below), and --orphans=leave stops nothing"
		remedy = ". End them in the test's teardown, or allow them by --allow-orphan=NAME. "
		hint   = "If a test sets FINI_TEST in its environment, its leak is named by that. "
		link   = "See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#which-test-leaks"
	)
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name  string
			flags string
			env   string
			code  int
			says  string // the annotation up to the list, "" for none
		}{
			{"a leak", "", "GITHUB_ACTIONS=true", 0, "::warning title=fini::" + warns + remedy + hint + link},
			{"a test", "--orphans-exit=3", "GITHUB_ACTIONS=true IN=PYTEST_CURRENT_TEST=tests/x.py::y", 3,
				"::error title=fini,file=tests/x.py::" + fails + remedy + link},
			{"a leak that decides", "--orphans-exit=3 --report=-", "GITHUB_ACTIONS=true", 3, "::error title=fini::" + fails + remedy + hint + link},
			{"a look", "--orphans=leave", "GITHUB_ACTIONS=true", 0, "::warning title=fini::" + looks + remedy + hint + link},
			{"quiet", "--orphans-exit=3 -q", "GITHUB_ACTIONS=true", 3, ""},
			{"not on GitHub", "--orphans-exit=3", "", 3, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				file := rig.Put(t, filepath.Join(t.TempDir(), "summary.md"), "before\n", 0o600)
				l, pids, at := listeners(t, p, append(strings.Fields(tt.env), "GITHUB_STEP_SUMMARY="+file),
					append([]string{"--linger=0"}, strings.Fields(tt.flags)...), "/", "tcp 127.0.0.1:0")
				if tt.name == "a look" && !p.PID1 {
					t.Cleanup(func() { _ = syscall.Kill(pids["listener"], syscall.SIGKILL) })
				}
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(tt.code)
				text := rig.ReadFile(t, file)
				if tt.says == "" {
					if said := l.Err.Whole(); strings.Contains(said, "::") || text != "before\n" {
						t.Errorf("says %q, and the summary is %q", said, text)
					}
					return
				}
				l.Err.Want(fmt.Sprintf("%s%%0A%d (", tt.says, pids["listener"]))
				_, explained, _ := strings.Cut(strings.Replace(tt.says, ",file=tests/x.py", "", 1), "title=fini::")
				table, ok := strings.CutPrefix(text, fmt.Sprintf("before\n### fini\n\n%s\n\n| leftover | ended |\n| --- | --- |\n| %d (", explained, pids["listener"]))
				_, port, _ := strings.Cut(at[0], ":")
				if !ok || !strings.Contains(table, ";"+port) || strings.Contains(table, " in test tests/x.py") != (tt.name == "a test") {
					t.Errorf("the summary is %q, want %d on %s", text, pids["listener"], at[0])
				}
			})
		}
	})
}

// The summary's file may be the tree's to change: what is put there instead is not written, nor waited for.
func TestGitHubSummaryIsARegularFile(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "summary")
	cmd := rig.Pair.Command("--linger=0", "--", "/bin/sh", "-c", `mkfifo "$0"; setsid sleep 1000 & exit 0`, fifo)
	cmd.Env = append(os.Environ(), "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="+fifo)
	l := rig.StartCmd(t, cmd)
	l.MustEnd(0)
	if said := l.Err.Whole(); !strings.Contains(said, "fini: cannot write the step's summary to ") {
		t.Errorf("says %q", said)
	}
}

// Whatever leaves a server alone, a host finds it in the report, with its port and its test, and can stop it.
func TestReportListsWhatStays(t *testing.T) {
	t.Parallel()
	need.Program(t, "node")
	for flag, spared := range map[string]string{
		"--orphans=pipes": "pipes", "--orphans=leave": "leave", "--allow-orphan=cmd:node *createServer*": "allow-orphan",
	} {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(spared+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				path, said := reports.Path(t), filepath.Join(t.TempDir(), "said")
				l := rig.Start(t, p, flag, "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
					`FINI_TEST=checkout setsid node -e 'require("http").createServer().listen(0, "127.0.0.1", function () { console.log("Serving port " + this.address().port) })' >$0 2>&1 </dev/null &
					until grep -q Serving $0; do sleep 0.05; done; echo server $!
					setsid sleep 1000 & `+rig.UntilSleeps+`; echo holder $!; read line`, said)
				server, holder := l.Out.WantPID("server "), l.Out.WantPID("holder ")
				t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGKILL) })
				port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(rig.ReadFile(t, said))[1]
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(0)

				r := reports.MustHave(t, path)
				also := map[string]string{"allow-orphan": ", allowed"}[spared]
				want := "0 exit 0\nholder was sent SIGTERM, ended SIGTERM, detached, holds stdout stderr\n" +
					"server, spared for " + spared + also + ", detached, listens on 127.0.0.1:" + port + ", FINI_TEST=checkout"
				if spared == "leave" {
					want = strings.Replace(want, "holder was sent SIGTERM, ended SIGTERM", "holder, spared for leave", 1)
				}
				if got := r.Words(map[string]int{"server": server, "holder": holder}); got != want {
					t.Errorf("reports %q, want %q", got, want)
				}
				mustListen(t, "127.0.0.1:"+port)
				for _, left := range r.Leftovers {
					if process, err := os.FindProcess(left.Pid); err == nil && left.Spared != nil {
						_ = process.Kill()
					}
				}
				rig.Until(t, "the end of all that the report lists as staying", func() bool { return rig.HungUp(l.Witness) })
				if said := l.Err.Whole(); (spared == "leave") != strings.Contains(said, "leaving leftover") {
					t.Errorf("says %q", said)
				}
			})
		}
	}
}

// must is what can't fail here but for a broken machine.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
