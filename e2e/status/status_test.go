package status

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMain(m *testing.M) { rig.Main(m) }

// waitStatus is what wait4(2) shows of a command.
func waitStatus(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// What wait4(2) shows the launcher is what it shows without fini, for each signal that a command
// sends itself, at a terminal or not. PID 1 exits with 128 and the signal's number.
func TestEverySignalThatEndsTheCommandArrives(t *testing.T) {
	t.Parallel()
	// By default a signal ends a process, with a core dump or without, stops or continues it, or does nothing.
	oneOfEachKind := []int{1, 2, 3, 9, 10, 15, 17, 18, 19, 20, 40, 64}
	// What stops the command is followed by SIGCONT, and only then it exits.
	const script = "ulimit -c 0; (while kill -CONT $$; do :; done) 2>/dev/null & kill -%d $$; kill -KILL $!; exit 5"
	statusOf := func(t *testing.T, cmd *exec.Cmd, tty bool) syscall.WaitStatus {
		t.Helper()
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if tty {
			theirs, ours := pty.Open(t)
			defer func() { _, _ = theirs.Close(), ours.Close() }()
			cmd.Stdin = theirs
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
		}
		// Where core dumps go to a pipe, the kernel says that the command dumped one, whatever its limit is.
		ws := waitStatus(t, cmd) &^ 0x80
		if errs.Len() > 0 {
			t.Errorf("stderr %q", errs.String())
		}
		return ws
	}
	for name, tty := range map[string]bool{"no terminal": false, "a terminal": true} {
		t.Run(name, func(t *testing.T) {
			bare := map[int]syscall.WaitStatus{}
			for sig := 1; sig <= 64; sig++ {
				if rig.Quick() && !slices.Contains(oneOfEachKind, sig) {
					continue
				}
				bare[sig] = statusOf(t, exec.Command("/bin/sh", "-c", fmt.Sprintf(script, sig)), tty)
			}
			if ws := bare[2]; !ws.Signaled() || ws.Signal() != syscall.SIGINT {
				t.Fatalf("without fini SIGINT shows as %#x", uint32(ws))
			}
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				t.Parallel()
				for sig, want := range bare {
					if p.PID1 && want.Signaled() {
						want = syscall.WaitStatus(128+sig) << 8
					}
					if got := statusOf(t, p.Command("--linger=1m", "--", "/bin/sh", "-c", fmt.Sprintf(script, sig)), tty); got != want {
						t.Errorf("signal %d shows as %#x, want %#x", sig, uint32(got), uint32(want))
					}
				}
			})
		})
	}
}

// If a signal that dumps core ends the command, fini ends by the same signal without a core dump of its own, even if a filter
// refuses one of the two calls that prevent it.
func TestFiniDumpsNoCore(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, limit string, argv ...string) syscall.WaitStatus {
		t.Helper()
		cmd := exec.Command("/bin/sh", append([]string{"-c", "ulimit -c " + limit + ` && exec "$@"`, "sh"}, argv...)...)
		cmd.Dir = t.TempDir() // for the command's core
		return waitStatus(t, cmd)
	}
	command := []string{"/bin/sh", "-c", "kill -QUIT $$"}
	need.Kernel(t, run(t, "2000", command...).CoreDump() && !run(t, "0", command...).CoreDump(), "core dumps that RLIMIT_CORE prevents")
	for name, before := range map[string][]string{
		"nothing refused": nil,
		"prctl refused":   rig.Mode("refuse", "prctl:EPERM"),
		"a limit refused": rig.Mode("refuse", "RLIMIT_CORE:EPERM"),
	} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				argv := p.Executed(before, append([]string{"-q", "--"}, command...)...).Args
				if got := run(t, "2000", argv...); !got.Signaled() || got.Signal() != syscall.SIGQUIT || got.CoreDump() {
					t.Errorf("fini's status is %#x, want %#x", uint32(got), int(syscall.SIGQUIT))
				}
			})
		}
	}
}

// If SIGCHLD is ignored, the kernel keeps no status of a child: see wait(2). Whoever started fini like that gets the status of
// the command even so, and of a command that there isn't.
func TestSIGCHLDIgnoredAtTheStart(t *testing.T) {
	t.Parallel()
	ignoring := []string{need.Program(t, "bash"), "-c", `trap "" CHLD && exec "$@"`, "bash"} // dash can't ignore it
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			for want, command := range map[int][]string{7: {"/bin/sh", "-c", "exit 7"}, 127: {"no-such-command"}} {
				if status, _, stderr := rig.Ask(t, p.Executed(ignoring, append([]string{"--"}, command...)...)); status != want {
					t.Errorf("%q ends with %d, want %d; stderr %q", command, status, want, stderr)
				}
			}
		})
	}
}

// A file that is no command, in each of the ways in which one can't be run.
func TestCommandThatCannotBeRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rig.NoError(t, os.Chmod(dir, 0o755))
	file := func(name, text string, mode os.FileMode) string {
		return rig.Put(t, filepath.Join(dir, name), text, mode)
	}
	plain := file("plain", "text", 0o644)
	orphaned := file("orphaned", "#!/no/such/interpreter\n", 0o755)
	script := file("script", "exit 42\n", 0o755)
	byData := file("by-data", "#!"+plain+"\n", 0o755)
	tests := []struct {
		name    string
		command []string
		status  int
		says    string // "" for nothing
	}{
		{"not on PATH", []string{"no-such-command"}, 127, "no-such-command: not found on PATH"},
		{"no such path", []string{"/no/such/command"}, 127, "/no/such/command: no such file or directory"},
		{"empty name", []string{""}, 127, `cannot run "": no`},
		{"not executable", []string{plain}, 126, plain + ": permission denied"},
		{"a directory", []string{dir}, 126, dir + ": is a directory"},
		{"no interpreter", []string{orphaned}, 126, orphaned + ": its interpreter was not found: /no/such/interpreter"},
		{"an interpreter that is none", []string{byData}, 126, "its interpreter " + plain + " can't be executed"},
		{"a shell line", []string{"a | b"}, 127, `not found on PATH; for a shell line: fini -- sh -c 'a | b'`},
		{"flags behind --", []string{"--timeout=5s", "true"}, 127, "fini's flags go before the --"},
		{"a script without #!", []string{script}, 42, ""},
		{"a name with a newline", []string{"a\nb"}, 127, `cannot run "a\nb"`},
	}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				status, _, stderr := rig.Ask(t, p.Command(append([]string{"--"}, tt.command...)...))
				if status != tt.status {
					t.Errorf("status %d, want %d", status, tt.status)
				}
				if tt.says == "" && stderr != "" || !strings.Contains(stderr, tt.says) {
					t.Errorf("says %q, want %q", stderr, tt.says)
				}
				if n := strings.Count(stderr, "\n"); n > 1 {
					t.Errorf("%d lines: %q", n, stderr)
				}
			})
		}
	})
}

// What the command line or a variable says wrong is named in one line. Only what can't be used keeps the command from its
// start, and fini answers even then, because its user may be looking for just that variable.
func TestWordsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	const noCommand = "fini: no command: want one after the flags, as in fini -- make test; see fini --help\n"
	for name, tt := range map[string]struct {
		args, env string
		status    int
		stdout    string // begins so
		says      string
	}{
		"a flag's value":              {"--grace=soon -- echo started", "", 125, "", `--grace: cannot use "soon": want a duration`},
		"a variable's value":          {"-- echo started", "FINI_GRACE=soon", 125, "", `FINI_GRACE: cannot use "soon"`},
		"a status":                    {"-e -1 -- echo started", "", 125, "", `--remap-exit: cannot use "-1": want an exit status from 0 to 255; see`},
		"a command beside --pause":    {"-P -- echo started", "", 125, "", `--pause runs no command: cannot use "echo"`},
		"no command":                  {"", "", 125, "", noCommand},
		"no command behind --":        {"--", "", 125, "", noCommand},
		"a command that is a value":   {"--report true", "", 125, "", "fini: --report took \"true\" as its value; no command is left\n"},
		"help beside a bad variable":  {"--help", "FINI_TIMEOUT=1x", 0, "usage: fini ", ""},
		"pause beside a bad variable": {"--pause", "FINI_TIMEOUT=1x", 125, "", `FINI_TIMEOUT: cannot use "1x"`},
		"nearly a variable":           {"echo started", "FINI_ORPHAN_EXIT=3", 0, "started\n", "fini: FINI_ORPHAN_EXIT sets nothing: did you mean FINI_ORPHANS_EXIT?\n"},
		"dumb-init's variable":        {"echo started", "DUMB_INIT_SETSID=0", 0, "started\n", "fini: DUMB_INIT_SETSID=0 sets nothing: did you mean FINI_SINGLE_CHILD=1?\n"},
		"tini's variable":             {"echo started", "TINI_SUBREAPER=1", 0, "started\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(rig.Fini, strings.Fields(tt.args)...)
			cmd.Env = append(os.Environ(), tt.env)
			status, stdout, stderr := rig.Ask(t, cmd)
			if status != tt.status || !strings.HasPrefix(stdout, tt.stdout) || tt.stdout == "" && stdout != "" {
				t.Errorf("status %d and stdout %q, want %d and %q", status, stdout, tt.status, tt.stdout)
			}
			if !strings.Contains(stderr, tt.says) || strings.Count(stderr, "fini: ") != min(len(tt.says), 1) || strings.Count(stderr, "\n") != min(len(tt.says), 1) {
				t.Errorf("says %q, want one line with %q", stderr, tt.says)
			}
		})
	}
	rig.NeedPidNamespace(t)
	says := "fini: no command: an image wants ENTRYPOINT [\"/fini\", \"--\"], with the brackets, and a CMD; see fini --help\n"
	if status, _, stderr := rig.Ask(t, rig.PID1.Command("--")); status != 125 || stderr != says {
		t.Errorf("PID 1: status %d, stderr %q; want 125 and %q", status, stderr, says)
	}
}

func TestVersionIsOneThatDockerKnows(t *testing.T) {
	t.Parallel()
	status, stdout, _ := rig.Ask(t, exec.Command(rig.Fini, "--version"))
	line, newline, _ := strings.Cut(stdout, "\n")
	_, commit, found := strings.Cut(line, " - git.")
	if status != 0 || newline != "" || !found || len(commit) != 7 || strings.Trim(commit, "0123456789abcdef") != "" {
		t.Errorf("status %d, %q; want one line that ends in \" - git.\" and seven hexadecimal digits", status, stdout)
	}
}

// A build without fini's own entry says what it can't do, and --version is one line as ever.
func TestLesserBuildSaysSo(t *testing.T) {
	t.Parallel()
	lesser := filepath.Join(t.TempDir(), "fini")
	rig.Succeed(t, exec.Command("go", "build", "-buildvcs=false", "-o", lesser, ".."))
	const limits = "fini: this build has limits, "
	status, stdout, stderr := rig.Ask(t, exec.Command(lesser, "--version"))
	if status != 0 || strings.Count(stdout, "\n") != 1 || !strings.HasPrefix(stderr, limits) {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if _, _, stderr := rig.Ask(t, exec.Command(lesser, "-v", "true")); strings.Count(stderr, limits) != 1 {
		t.Errorf("-v says %q", stderr)
	}
	for _, args := range [][]string{{"true"}, {"-q", "--version"}} {
		if status, _, stderr := rig.Ask(t, exec.Command(lesser, args...)); status != 0 || stderr != "" {
			t.Errorf("%q: status %d, stderr %q", args, status, stderr)
		}
	}
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry")
	if status, _, stderr := rig.Ask(t, exec.Command(rig.Fini, "--version")); status != 0 || stderr != "" {
		t.Errorf("the whole build: status %d, stderr %q", status, stderr)
	}
}
