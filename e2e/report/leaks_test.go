package report

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// listeners starts fini and below it, in the directory, one that listens as these words say. Of env, IN=NAME=VALUE sets a
// variable for that one alone.
func listeners(t *testing.T, p rig.Place, env []string, flags []string, dir string, words ...string) (l *rig.Life, pid int, at []string) {
	t.Helper()
	cmd := p.Command(slices.Concat(flags, []string{"--", "/bin/sh", "-c", `dir=$1; shift; (cd "$dir"; ${IN:+export "$IN"}; exec "$@") & read go; exit 0`, "sh", dir},
		rig.Mode("listen", words...))...)
	cmd.Env = append(os.Environ(), append([]string{"GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY="}, env...)...)
	l = rig.StartCmd(t, cmd)
	for {
		line, ok := l.Out.Next()
		if !ok {
			t.Fatalf("EOF; stdout: %s; stderr: %s", l.Out.Text(), l.Err.Text())
		}
		if address, ok := strings.CutPrefix(line, "listens "); ok {
			at = append(at, address)
			continue
		}
		if _, err := fmt.Sscanf(line, "listener %d", &pid); err != nil {
			t.Fatalf("it says %q", line)
		}
		return l, pid, at
	}
}

// A leftover's line and its entry in the report name its ports, its directory and its user.
func TestLeftoverSaysWhereItListens(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		dir, here := t.TempDir(), must(os.Getwd())
		run := func(t *testing.T, dir string, words ...string) (line string, left reports.Leftover, at []string) {
			t.Helper()
			path := reports.Path(t)
			l, pid, at := listeners(t, p, nil, []string{"--linger=0", "--report=" + path}, dir, words...)
			rig.Write(t, l, "go\n")
			l.MustEnd(0)
			return l.Err.Whole(), reports.MustHave(t, path).Leftover(t, pid), at
		}
		t.Run("tcp and unix", func(t *testing.T) {
			t.Parallel()
			line, left, at := run(t, dir, "tcp 127.0.0.1:0", "unix @fini "+dir, "unix "+filepath.Join(dir, "s"), "tcp 0.0.0.0:0")
			if !slices.Equal(left.Listens, at) {
				t.Errorf("reports %q, want %q", left.Listens, at)
			}
			user := os.Geteuid()
			if p.PID1 { // which is root in a user namespace of its own
				user = 0
			}
			if left.Cwd == nil || *left.Cwd != dir || left.User == nil || *left.User != user {
				t.Errorf("reports %+v, want it in %s, of user %d", left, dir, user)
			}
			want := "), listens on " + at[0] + " and " + at[1] + " and " + at[2] + " and 1 more, in " + dir
			if !p.PID1 { // no leftover of PID 1 outlives fini, so none keeps a reader waiting
				want += ", which holds stdout and stderr"
			}
			if !strings.HasSuffix(line, want+"\n") {
				t.Errorf("says %q, want it to end in %q", line, want)
			}
		})
		t.Run("nothing, and here", func(t *testing.T) {
			t.Parallel()
			line, left, _ := run(t, here)
			if left.Listens == nil || len(left.Listens) > 0 || left.Cwd == nil || *left.Cwd != here {
				t.Errorf("reports %+v, want nothing, in %s", left, here)
			}
			if strings.Contains(line, "listens") || strings.Contains(line, ", in ") || strings.Contains(line, "as user") {
				t.Errorf("says %q", line)
			}
		})
		if !need.IsRoot() {
			return // who can't become another, or may not look at it then
		}
		t.Run("another user", func(t *testing.T) {
			t.Parallel()
			line, left, at := run(t, "/", "54321", "tcp 127.0.0.1:0")
			if left.User == nil || *left.User != 54321 || !strings.Contains(line, "), listens on "+at[0]+", in /, as user 54321") {
				t.Errorf("says %q and reports %+v", line, left)
			}
		})
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
				l, pid, at := listeners(t, p, nil, append(tt.flags, "--linger=10ms", "--report="+path), "/", "tcp 127.0.0.1:0")
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(tt.status)
				if !p.PID1 { // where the kernel ends it
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
					if conn, err := net.Dial("tcp", at[0]); err != nil {
						t.Errorf("it listens no more: %v", err)
					} else {
						_ = conn.Close()
					}
				}
				r := reports.MustHave(t, path)
				left := r.Leftover(t, pid)
				if r.Status != tt.status || len(left.Sent) > 0 || left.Ended != nil || left.Allowed || !slices.Equal(left.Listens, at) {
					t.Errorf("reports %d and %+v", r.Status, left)
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
	if said := l.Err.Whole(); said != "" {
		t.Errorf("says %q", said)
	}
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
			flags []string
			code  int
			says  string // the annotation up to the list, "" for none
			env   []string
		}{
			{"a leak", nil, 0, "::warning title=fini::" + warns + remedy + hint + link, []string{"GITHUB_ACTIONS=true"}},
			{"a test", []string{"--orphans-exit=3"}, 3, "::error title=fini,file=tests/x.py::" + fails + remedy + link,
				[]string{"GITHUB_ACTIONS=true", "IN=PYTEST_CURRENT_TEST=tests/x.py::y (call)"}},
			{"a leak that decides", []string{"--orphans-exit=3", "--report=-"}, 3, "::error title=fini::" + fails + remedy + hint + link, []string{"GITHUB_ACTIONS=true"}},
			{"a look", []string{"--orphans=leave"}, 0, "::warning title=fini::" + looks + remedy + hint + link, []string{"GITHUB_ACTIONS=true"}},
			{"quiet", []string{"--orphans-exit=3", "-q"}, 3, "", []string{"GITHUB_ACTIONS=true"}},
			{"not on GitHub", []string{"--orphans-exit=3"}, 3, "", nil},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "summary.md")
				rig.NoError(t, os.WriteFile(file, []byte("before\n"), 0o600))
				l, pid, at := listeners(t, p, append([]string{"GITHUB_STEP_SUMMARY=" + file}, tt.env...),
					append([]string{"--linger=0"}, tt.flags...), "/", "tcp 127.0.0.1:0")
				if tt.name == "a look" && !p.PID1 {
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
				}
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(tt.code)
				text := string(must(os.ReadFile(file)))
				if tt.says == "" {
					if said := l.Err.Whole(); strings.Contains(said, "::") || text != "before\n" {
						t.Errorf("says %q, and the summary is %q", said, text)
					}
					return
				}
				l.Err.Want(tt.says + "%0A" + strconv.Itoa(pid) + " (")
				_, explained, _ := strings.Cut(strings.Replace(tt.says, ",file=tests/x.py", "", 1), "title=fini::")
				table, ok := strings.CutPrefix(text, "before\n### fini\n\n"+explained+"\n\n| leftover | ended |\n| --- | --- |\n| "+strconv.Itoa(pid)+" (")
				port := at[0][strings.LastIndex(at[0], ":")+1:]
				if !ok || !strings.Contains(table, ";"+port) || strings.Contains(table, " in test tests/x.py") != (tt.name == "a test") {
					t.Errorf("the summary is %q, want %d on %s", text, pid, at[0])
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

// must is what can't fail here but for a broken machine.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
