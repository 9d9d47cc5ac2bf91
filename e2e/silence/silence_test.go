package silence

import (
	"io"
	"os"
	"os/exec"
	"slices"
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
				if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: tt.columns}); err != nil {
					t.Fatal(err)
				}
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
				seen := map[string]int{}
				for line, _ := screen.Next(); line != "end"; line, _ = screen.Next() {
					text := line
					for kind, colour := range map[string]string{
						"fini: --report: cannot write": "\x1b[31m",
						"fini: started":                "\x1b[m",
						"fini: stopping leftover":      "\x1b[33m",
						"fini: command":                "\x1b[m",
						"fini: exiting":                "\x1b[m",
					} {
						if !strings.Contains(line, kind) {
							continue // it is a line of another kind
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
				if len(seen) != 5 {
					t.Errorf("not all kinds of lines: %v; %q", seen, screen.Text())
				}
			})
		}
	})
}

// What goes to a pipe has no colour, and -q leaves nothing but errors.
func TestSaidToAPipe(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		run := func(t *testing.T, status int, env string, args ...string) []string {
			t.Helper()
			cmd := p.Command(append([]string{"--linger=0"}, args...)...)
			cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "GITHUB_ACTIONS="+env, "GITHUB_STEP_SUMMARY=")
			cmd.ExtraFiles = []*os.File{rig.Device(t, "/dev/full")}
			l := rig.StartCmd(t, cmd)
			for range strings.Count(strings.Join(args, " "), "echo ready") {
				l.Out.Want("ready")
			}
			_, _ = io.WriteString(l.Stdin, "go\n") // which a command that reads nothing does not see
			l.MustEnd(status)
			said := l.Err.Rest()
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
		t.Run("quiet", func(t *testing.T) {
			t.Parallel()
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
		t.Run("GitHub without a leftover, and not GitHub", func(t *testing.T) {
			t.Parallel()
			if said := run(t, 0, "true", "--orphans-exit=42", "--", "/bin/sh", "-c", "exit 0"); len(said) > 0 {
				t.Errorf("says %q", said)
			}
			for _, env := range []string{"", "false"} {
				if said := run(t, 0, env, leak("")...); len(said) != 1 || len(annotations(said)) > 0 {
					t.Errorf("GITHUB_ACTIONS=%s: says %q", env, said)
				}
			}
		})
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
		for name, tt := range map[string]struct {
			stderr func(t *testing.T) *os.File
			exec   string // what executes fini
		}{
			"full": {stderr: func(t *testing.T) *os.File {
				_, w := rig.Pipe(t)
				rig.FillPipe(t, w)
				return w
			}},
			"broken": {stderr: func(t *testing.T) *os.File {
				r, w := rig.Pipe(t)
				_ = r.Close()
				return w
			}},
			"broken socket": {stderr: func(t *testing.T) *os.File {
				r, w := rig.Socketpair(t)
				_ = r.Close()
				return w
			}},
			"full disk": {stderr: func(t *testing.T) *os.File { return rig.Device(t, "/dev/full") }},
			"closed":    {exec: `exec "$@" 2>&-`},
			"read only": {exec: `exec "$@" 2</dev/null`},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var before []string
				if tt.exec != "" {
					before = []string{"/bin/sh", "-c", tt.exec, "sh"}
				}
				h := rig.NewCgroup(t)
				cmd := h.Around(p, before, "-vv", "--linger=0", "--grace=200ms", "--", "/bin/sh", "-c", script)
				if tt.stderr != nil {
					cmd.Stderr = tt.stderr(t)
				}
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
