package silence

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Lines have colour on a terminal whose user has nothing against it, and end at its edge.
func TestSaidOnATerminal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	const red, yellow, uncoloured = "\x1b[31m", "\x1b[33m", "\x1b[m"
	kinds := [][2]string{ // of lines, in their order
		{uncoloured, "fini: started "}, {uncoloured, "fini: command "}, {yellow, "fini: stopping leftover "},
		{red, "fini: --report: cannot write "}, {uncoloured, "fini: exiting with status 0, after "},
	}
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
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				theirs, ours := pty.Open(t)
				rig.NoError(t, unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: tt.columns}))
				cmd := p.Command(append([]string{"-v", "--linger=0", "--report=/dev/fd/4"}, leak("", long)...)...)
				cmd.ExtraFiles = []*os.File{rig.Device(t, "/dev/full")}
				cmd.Env, cmd.Stderr = append(os.Environ(), tt.env...), theirs
				l := rig.StartCmd(t, cmd)
				screen := rig.NewLines(t, pty.Carriageless{R: ours})
				l.Out.Want("ready")
				rig.Write(t, l, "go\n")
				l.MustEnd(0)
				// Only now is the last of it closed, and nothing is lost on the way.
				_, _ = io.WriteString(theirs, "end\n")
				for _, kind := range kinds {
					line, _ := screen.Next()
					begin, end := kind[0]+kind[1], uncoloured
					if !tt.coloured {
						begin, end = kind[1], ""
					}
					text, left := strings.CutPrefix(line, begin)
					text, right := strings.CutSuffix(text, end)
					if !left || !right || strings.Contains(text, "\x1b") {
						t.Errorf("the line is %q, want %q and %q", line, begin, end)
					}
					if kind[0] == yellow {
						// What is said of every leftover comes first, then as much of its command line as
						// there is room for; 20 bytes are always shown.
						before, rest, _ := strings.Cut(string(rig.Ageless([]byte(kind[1]+text))), "(")
						shown, after, _ := strings.Cut(rest, ")")
						room := int(tt.columns) - len(before) - len(after) - 2
						if len(shown) != max(room, 20) || !strings.HasSuffix(shown, "...") {
							t.Errorf("%d bytes of the command line on %d columns, want %d: %q", len(shown), tt.columns, max(room, 20), text)
						}
					}
				}
				if line, _ := screen.Next(); line != "end" {
					t.Errorf("one more line: %q", line)
				}
			})
		}
	})
}

// What goes to a pipe has no colour, and -q leaves nothing but errors. On GitHub there is one line more, about all leftovers.
func TestSaidToAPipe(t *testing.T) {
	t.Parallel()
	const (
		holds = ", which holds stdout and stderr" // of no leftover of PID 1, which does not outlive fini
		one   = `sh -c ' echo ready; read x; :' </dev/zero & `
		left  = "PID (sh -c  echo ready; read x; :)" + holds
		stays = `PID (sh -c trap "" TERM; echo ready; read x; :)` + holds
		odd   = "PID (sh -c  echo ready; read x; : sh 100% a?b?::error::c %0A)" + holds
		warns = "\n::warning title=fini::The command left 1 process running (below), and fini stopped what did not exit. End them in the test's teardown, " +
			"or allow them by --allow-orphan=NAME. If a test sets FINI_TEST in its environment, its leak is named by that. " +
			"See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#which-test-leaks%0A"
	)
	pid := regexp.MustCompile(`(leftover |%0A)\d+ `)
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name, actions string // GITHUB_ACTIONS
			status        int
			args          []string
			want          string
		}{
			{"quiet", "true", 42, append([]string{"-q", "--orphans-exit=42"}, leak("")...), "fini: exit 42 instead of 0: --orphans-exit, 1 leftover"},
			{"quiet, and an error", "", 0, []string{"-q", "--report=/dev/fd/4", "--", "true"}, `fini: --report: cannot write "/dev/fd/4": no space left on device`},
			{"GitHub", "true", 0, leak("", "sh", "100%", "a\nb\r::error::c", "%0A"), "fini: stopping leftover " + odd + warns + strings.ReplaceAll(odd, "%", "%25")},
			// One that needs SIGKILL too is one leftover.
			{"GitHub and SIGKILL", "true", 0, append([]string{"--grace=50ms"}, leak(`trap "" TERM;`)...),
				"fini: stopping leftover " + stays + "\nfini: killing leftover " + stays + warns + stays},
			{"GitHub and two", "true", 0, []string{"--", "/bin/sh", "-c", one + one + "read go; exit 0"}, "fini: stopping leftover " + left + "\nfini: stopping leftover " + left +
				strings.Replace(warns, "1 process", "2 processes", 1) + left + "%0A" + left},
			{"GitHub without a leftover", "true", 0, []string{"--orphans-exit=42", "--", "/bin/sh", "-c", "exit 0"}, ""},
			{"GITHUB_ACTIONS=", "", 0, leak(""), "fini: stopping leftover " + left},
			{"GITHUB_ACTIONS=false", "false", 0, leak(""), "fini: stopping leftover " + left},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				cmd := p.Command(append([]string{"--linger=0"}, tt.args...)...)
				cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "GITHUB_ACTIONS="+tt.actions, "GITHUB_STEP_SUMMARY=")
				cmd.ExtraFiles = []*os.File{rig.Device(t, "/dev/full")}
				l := rig.StartCmd(t, cmd)
				for range strings.Count(strings.Join(tt.args, " "), "echo ready") {
					l.Out.Want("ready")
				}
				_, _ = io.WriteString(l.Stdin, "go\n") // which a command that reads nothing does not see
				l.MustEnd(tt.status)
				got := pid.ReplaceAllString(strings.Join(l.Err.Rest(), "\n"), "${1}PID ")
				want := tt.want
				if p.PID1 {
					want = strings.ReplaceAll(want, holds, "")
				}
				if got != want {
					t.Errorf("says %q, want %q", got, want)
				}
			})
		}
	})
}

// Who ends by the signal that ends the command is no leftover.
func TestNoLineForWhoEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--linger=1h", "--", "/bin/sh", "-c", "sleep 1000 & echo ready; exec sleep 1000")
		l.Out.Want("ready")
		l.Signal(syscall.SIGTERM)
		l.MustEnd(128 + 15)
		if said := l.Err.Whole(); said != "" {
			t.Errorf("says %q", said)
		}
	})
}

// -v says how the command has ended, and how fini ends, and when.
func TestVerboseSaysHowItEnds(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for script, says := range map[string][2]string{
			"kill -KILL $$": {" was killed by SIGKILL\n", "dying by SIGKILL"},
			"exit 3":        {" exited with status 3\n", "exiting with status 3"},
		} {
			if p.PID1 && script != "exit 3" {
				says[1] = "exiting with status 137"
			}
			_, _, stderr := rig.Ask(t, p.Command("-v", "--", "/bin/sh", "-c", script))
			last := "fini: " + says[1] + ", after "
			if !strings.Contains(stderr, says[0]) || strings.Count(stderr, last) != 1 || !strings.Contains(stderr, "; the command ran for ") {
				t.Errorf("%s: says %q, want %q and %q", script, stderr, says[0], last)
			}
		}
	})
}

func TestAnswersGoToStdout(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"-h": "usage: fini ", "--help": "usage: fini ", "-l": "MIT License", "-L": "MIT License", "--license": "MIT License",
		"-V": "fini version ", "--version": "fini version ",
	} {
		status, stdout, stderr := rig.Ask(t, exec.Command(rig.Fini, flag))
		if status != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
			t.Errorf("%s: status %d, stdout %.40q, stderr %q; want %q", flag, status, stdout, stderr, want)
		}
	}
}

// fini never waits for a reader of its stderr, and no stderr that takes nothing ends fini or reaches the command as SIGPIPE:
// what fini says is lost, and that is all.
func TestStderrThatNobodyReads(t *testing.T) {
	t.Parallel()
	const script = `trap "echo hit by PIPE" PIPE
		setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read line; echo main; exit 6`
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for name, redirected := range map[string]string{
			"full": "", "broken": "", "broken socket": "", "full disk": "2>/dev/full", "closed": "2>&-", "read only": "2</dev/null",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r, w := rig.Pipe(t)
				if name == "broken socket" {
					r, w = rig.Socketpair(t)
				}
				if name == "full" {
					rig.FillPipe(t, w)
				} else {
					_ = r.Close()
				}
				h := rig.NewCgroup(t)
				cmd := h.Around(p, []string{"/bin/sh", "-c", `exec "$@" ` + redirected, "sh"}, "-vv", "--linger=0", "--grace=200ms", "--", "/bin/sh", "-c", script)
				cmd.Stderr = w
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				l.Signal(syscall.SIGWINCH) // one more line to say
				rig.Write(t, l, "go\n")
				rig.MustRecord(t, "the command says", l.Out.Rest(), "main")
				l.MustEnd(6)
				h.MustBeEmpty()
			})
		}
	})
}

// leak is a command that leaves one behind, which says "ready" and has these arguments.
func leak(trap string, args ...string) []string {
	return append([]string{"--", "/bin/sh", "-c", `sh -c '` + trap + ` echo ready; read x; :' "$@" </dev/zero & read go; exit 0`, "sh"}, args...)
}
