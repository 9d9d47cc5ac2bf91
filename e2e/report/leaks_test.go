package report

import (
	"fmt"
	"html"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// A leftover's line and its entry in the report name its ports, its directory and its user. An audit counts and names what is
// left, and touches nobody. On GitHub a leak that decides the status is an error, and the step has a summary.
func TestLeak(t *testing.T) {
	t.Parallel()
	const (
		// Of these texts LISTENER, A1 and DIR are what this life has.
		stops, leaves = "fini: stopping leftover LISTENER", "fini: leaving leftover LISTENER"
		decides       = "\nfini: exit 9 instead of 0: --orphans-exit, 1 leftover"
		at, holds     = ", listens on A1, in /", ", which holds stdout and stderr"
		test          = ", started in test tests/x.py::y"
		stopped, left = " was sent SIGTERM, ended SIGTERM, holds stdout stderr", ", spared for leave, holds stdout stderr"
		remedy        = ". End them in the test's teardown, or allow them by --allow-orphan=NAME. "
		hint          = "If a test sets FINI_TEST in its environment, its leak is named by that. "
		link          = "See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#which-test-leaks"
		one           = "The command left 1 process running (below), and "
		warns         = one + "fini stopped what did not exit" + remedy + hint + link
		looks         = one + "--orphans=leave stops nothing" + remedy + hint + link
		fails         = "The command succeeded, but left 1 process running (below), so this step fails (--orphans-exit)" + remedy
	)
	audit, github, port := "--orphans=leave --orphans-exit=9", "GITHUB_ACTIONS=true", []string{"tcp 127.0.0.1:0"}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		dir := t.TempDir()
		for _, tt := range []struct {
			name, flags, env string
			dir              string   // of the one that listens
			listen           []string // and how
			says, reports    string
			explains, row    string // of GitHub's summary
		}{
			{"tcp and unix", "", "", dir, []string{"tcp 127.0.0.1:0", "unix @fini " + dir, "unix " + filepath.Join(dir, "s"), "tcp 0.0.0.0:0"},
				stops + ", listens on A1 and A2 and A3 and 1 more, in DIR" + holds, stopped + ", listens on A1 A2 A3 A4, in DIR", "", ""},
			{"nothing, and here", "", "", ".", nil, stops + holds, stopped, "", ""},
			{"another user", "", "", "/", []string{"54321", "tcp 127.0.0.1:0"},
				stops + at + ", as user 54321" + holds, stopped + at + ", as user 54321", "", ""},
			{"audit", audit, "", "/", port, leaves + at + holds + decides, left + at, "", ""},
			{"quiet", audit + " -q", "", "/", port, decides, left + at, "", ""},
			{"a look", "--orphans=leave", "", "/", port, leaves + at + holds, left + at, "", ""},
			{"a quiet look", "--orphans=leave -q", "", "/", port, "", left + at, "", ""},
			{"GitHub", "", github, "/", port,
				stops + at + holds + "\n::warning title=fini::" + warns + "%0ALISTENER" + at + holds, stopped + at, warns, at + " | SIGTERM"},
			{"GitHub, a test", "--orphans-exit=9", github + " IN=PYTEST_CURRENT_TEST=tests/x.py::y", "/", port,
				stops + test + at + holds + decides + "\n::error title=fini,file=tests/x.py::" + fails + link + "%0ALISTENER" + test + at + holds,
				stopped + ", listens on A1, PYTEST_CURRENT_TEST=tests/x.py::y, in /", fails + link, test + at + " | SIGTERM"},
			{"GitHub, a leak that decides", "--orphans-exit=9", github, "/", port,
				stops + at + holds + decides + "\n::error title=fini::" + fails + hint + link + "%0ALISTENER" + at + holds, stopped + at, fails + hint + link, at + " | SIGTERM"},
			{"GitHub, a look", "--orphans=leave", github, "/", port,
				leaves + at + holds + "\n::warning title=fini::" + looks + "%0ALISTENER" + at + holds, left + at, looks, at + " | is still running"},
			{"GitHub, quiet", "--orphans-exit=9 -q", github, "/", port, decides, stopped + at, "", ""},
		} {
			rig.Case(t, tt.name == "audit" || p == rig.Pair, tt.name, func(t *testing.T) {
				t.Parallel()
				if tt.name == "another user" {
					need.Root(t) // who else can't become another, or may not look at it then
				}
				listen := rig.Mode("listen", tt.listen...)
				path, summary := reports.Path(t), rig.Put(t, filepath.Join(t.TempDir(), "summary.md"), "before\n", 0o600)
				cmd := p.Command(slices.Concat([]string{"--linger=10ms", "--report=" + path}, strings.Fields(tt.flags),
					[]string{"--", "/bin/sh", "-c", `dir=$1; shift; (cd "$dir"; ${IN:+export "$IN"}; exec "$@") & read go; exit 0`, "sh", tt.dir}, listen)...)
				cmd.Env = slices.Concat(os.Environ(), []string{"GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY=" + summary}, strings.Fields(tt.env))
				l := rig.StartCmd(t, cmd)
				pids := pidsOf(l, "listener")
				listens := procfs.ChildrenOf(t, procfs.ChildrenOf(t, l.Worker())[0])[0] // as it is called outside of its namespace
				rig.Until(t, "it sleeps", func() bool { return procfs.Sleeps(listens) })
				words := []string{dir, "DIR"}
				for line := range strings.Lines(l.Out.Text()) {
					if address, ok := strings.CutPrefix(line, "listens "); ok {
						address = strings.TrimSpace(address)
						named := fmt.Sprint("A", len(words)/4+1)
						words = append([]string{"tcp " + address, named, address, named}, words...) // as a line has it, and the report
					}
				}
				rig.Write(t, l, "go\n")
				status, stays := 0, strings.Contains(tt.flags, "leave") && !p.PID1 // whose end is that of all
				if strings.Contains(tt.says, "instead of") {
					status = 9
				}
				l.MustHaveStatus(status)
				if stays {
					mustListen(t, words[2])
					rig.MustKill(t, pids["listener"], syscall.SIGKILL)
					rig.Until(t, "the end of what stays", func() bool { return rig.HungUp(l.Witness) })
				}
				l.MustEnd(status)
				listener, filled := regexp.MustCompile(fmt.Sprintf(`%d \([^)]*\)`, pids["listener"])), strings.NewReplacer(words...)
				same := func(what, got, want string) {
					t.Helper()
					if p.PID1 { // of which no leftover keeps a reader waiting
						want = strings.ReplaceAll(want, holds, "")
					}
					if got = filled.Replace(listener.ReplaceAllString(string(rig.Ageless([]byte(got))), "LISTENER")); got != want {
						t.Errorf("%s: %q, want %q", what, got, want)
					}
				}
				same("says", strings.TrimSpace(l.Err.Whole()), strings.TrimSpace(tt.says))
				same("reports", reports.MustHave(t, path).Words(pids), fmt.Sprintf("%d exit 0\nlistener%s", status, tt.reports))
				want := "before\n"
				if tt.explains != "" {
					want += "### fini\n\n" + tt.explains + "\n\n| leftover | ended |\n| --- | --- |\n| LISTENER" + tt.row + " |\n\n"
				}
				same("the summary", html.UnescapeString(rig.ReadFile(t, summary)), want)
			})
		}
	})
}

// mustListen asserts that somebody answers at an address.
func mustListen(t *testing.T, at string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	rig.NoError(t, err)
	_ = conn.Close()
}

// The summary's file may be the tree's to change: what is put there instead is not written, nor waited for.
func TestGitHubSummaryIsARegularFile(t *testing.T) {
	t.Parallel()
	l := rig.StartCmd(t, shell(t, rig.Pair,
		`GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=$PWD/summary "$@" --linger=0 -- sh -c 'mkfifo summary; setsid sleep 1000 & exit 0'`))
	l.MustEnd(0)
	if said := l.Err.Whole(); !strings.Contains(said, "fini: cannot write the step's summary to ") {
		t.Errorf("says %q", said)
	}
}

// Whatever leaves a server alone, a host finds it in the report, with its port and its test, and can stop it.
func TestReportNamesServersLeftAlone(t *testing.T) {
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
				rig.Until(t, "the server sleeps", func() bool { return procfs.Sleeps(server) })
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
				if spared == "pipes" {
					l.Out.Rest() // the reader has EOF
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

// numbered repeats a text for the numbers from 0 to 9, which stand for its "%d"; but that of 7 is another one.
func numbered(text, leak string) string {
	all := strings.Repeat(text, 7) + leak + text + text
	for i := range 10 {
		all = strings.Replace(all, "%d", fmt.Sprint(i), 1)
	}
	return all
}

// A leak in one of ten tests is named with that test, whichever tool runs them.
func TestLeakIsNamedWithItsTest(t *testing.T) {
	t.Parallel()
	others := regexp.MustCompile(`^(GITHUB|npm)_`).MatchString
	for _, tt := range []struct {
		name    string
		files   map[string]string
		command []string
		says    string
		context string // a variable and its value, in the report
	}{
		{"pytest", map[string]string{"test_many.py": "import subprocess\n" + numbered(
			"def test_%d():\n    assert True\n",
			"def test_%d():\n    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n")},
			[]string{"/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"},
			"in test test_many.py::test_7 (call)", "PYTEST_CURRENT_TEST=test_many.py::test_7 (call)"},
		{"bats", map[string]string{"many.bats": numbered(
			"@test \"number %d\" { true; }\n",
			"@test \"number %d\" { setsid sleep 1000 >/dev/null 2>&1 3>&- 4>&- & true; }\n")},
			[]string{"bats", "many.bats"},
			"in test test_number_7", "BATS_TEST_NAME=test_number_7"},
		{"go test", map[string]string{"go.mod": "module many\n\ngo 1.21\n", "many_test.go": "package many\n\n" +
			"import (\n\t\"os/exec\"\n\t\"testing\"\n)\n\n" +
			"func begin(t *testing.T) { t.Setenv(\"FINI_TEST\", t.Name()) }\n\n" + numbered(
			"func TestNumber%d(t *testing.T) { begin(t) }\n",
			"func TestNumber%d(t *testing.T) { begin(t); exec.Command(\"sleep\", \"1000\").Start() }\n")},
			[]string{"go", "test", "-count=1", "./..."},
			"in test TestNumber7", "FINI_TEST=TestNumber7"},
		{"npm script", map[string]string{"package.json": `{"name": "shop", "scripts": {` +
			numbered(`"test:%d": "true", `, `"test:%d": "sh leak.sh", `) + `"test": "sh all.sh"}}`,
			"leak.sh": "setsid sleep 1000 >/dev/null 2>&1 &\n" + rig.UntilSleeps,
			"all.sh":  "for i in 6 7 8; do npm run --silent test:$i; done\n"},
			[]string{"npm", "run", "--silent", "test"},
			"in npm script test:7", "npm_lifecycle_event=test:7"},
		// cargo-nextest runs each test in a process of its own, and says which.
		{"nextest-shaped", map[string]string{
			"runner": "for i in $(seq 0 9); do CARGO_PKG_NAME=shop NEXTEST_BINARY_ID=shop::api NEXTEST_TEST_NAME=api::number_$i ./api $i || exit; done\n",
			"api":    "#!/bin/sh\ntest $1 = 7 || exit 0\nsetsid sleep 1000 >/dev/null 2>&1 &\n" + rig.UntilSleeps},
			[]string{"sh", "runner"},
			"in test api::number_7", "NEXTEST_BINARY_ID=shop::api"},
		{"a step", nil, []string{"env", "GITHUB_ACTION=__run_7", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & " + rig.UntilSleeps},
			"in step __run_7", "GITHUB_ACTION=__run_7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			need.Program(t, tt.command[0])
			need.That(t, tt.name != "pytest" || exec.Command(tt.command[0], "-m", "pytest", "--version").Run() == nil, "pytest (python3-pytest)")
			report := reports.Path(t)
			cmd := exec.Command(rig.Fini, append([]string{"--linger=1s", "--orphans-exit=9", "--report=" + report, "--"}, tt.command...)...)
			cmd.Dir = t.TempDir()
			for name, text := range tt.files {
				rig.Put(t, filepath.Join(cmd.Dir, name), text, 0o755)
			}
			cmd.Env = append(slices.DeleteFunc(os.Environ(), others), "GOCACHE="+recipes.GoCache(t))
			l := rig.StartCmd(t, cmd)
			l.MustEnd(9)
			said := l.Err.Whole()
			if strings.Count(said, "stopping leftover") != 1 || !strings.Contains(said, tt.says) {
				t.Errorf("says %q, want %q; stdout: %s", said, tt.says, l.Out.Text())
			}
			if r := reports.MustHave(t, report); len(r.Leftovers) != 1 || !strings.Contains(r.Words(nil)+", ", ", "+tt.context+", ") {
				t.Errorf("reports %q, want %q", r.Words(nil), tt.context)
			}
		})
	}
}

// Who started a leftover is named also if it has ended by the time fini tells of that, unless the stop signal, before
// which there is no look, has ended it.
func TestOwnerIsRemembered(t *testing.T) {
	t.Parallel()
	// It starts a process in a session of its own, and ends with its stdin.
	const supervisor = `perl -e '$pid = fork or exec "setsid", "sleep", "1000";
		1 until qx(cat /proc/$pid/status) =~ /^Name:\tsleep\n.*^State:\tS/ms;
		$| = 1; print "supervisor $$\n"; <STDIN>'`
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		report, g := reports.Path(t), runners.NewGate(t)
		l := rig.Start(t, p, "--linger=1h", "-w", "--report="+report, "--", "/bin/sh", "-c",
			"exec 4<&0; "+supervisor+` <&4 & read go <"$0"; exit 5`, g.Name)
		pid := l.Out.WantPID("supervisor ")
		worker := l.Worker()
		g.Open(t)
		// The first thing that it waits for is the end of the lingering. It has looked by then.
		rig.Until(t, "fini lingers", func() bool { return hasTimer(worker) })
		_ = l.Stdin.Close()
		l.Err.Want(fmt.Sprintf("fini: reaped zombie %d", pid))
		l.Signal(syscall.SIGTERM)
		l.MustEnd(5)
		words, said := reports.MustHave(t, report).Words(map[string]int{"supervisor": pid}), l.Err.Whole()
		if !strings.Contains(words, "\nsleep 1000 was sent SIGTERM, ended SIGTERM, detached, holds stdout stderr, "+
			"started by supervisor, owned by supervisor (perl -e ") {
			t.Errorf("reports %q", words)
		}
		if line := fmt.Sprintf("started by %d (", pid); !strings.Contains(said, "(sleep 1000)") || !strings.Contains(said, line) {
			t.Errorf("says %q, want %q", said, line)
		}
	})
}

// hasTimer reports whether a process has set an alarm: a timerfd_create(2) descriptor of the time since boot.
func hasTimer(pid int) bool {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	return slices.ContainsFunc(infos, func(info string) bool {
		text, _ := os.ReadFile(info)
		// Another one, of another clock, is the watchdog's of who reads /proc. See CLOCK_BOOTTIME.
		return strings.Contains(string(text), "clockid: 7\n")
	})
}

// must is what can't fail here but for a broken machine.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
