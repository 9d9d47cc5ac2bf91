package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// ask runs fini to its end and returns its status, stdout and stderr.
func ask(t testing.TB, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return shellStatus(cmd.ProcessState), out.String(), errs.String()
}

func TestEveryExitStatusArrives(t *testing.T) {
	inPlaces(t, func(t *testing.T, p place) {
		for want := range 256 {
			got, _, stderr := ask(t, p.command("--", "/bin/sh", "-c", fmt.Sprintf("exit %d", want)))
			if got != want || stderr != "" {
				t.Errorf("exit %d arrived as %d, stderr %q", want, got, stderr)
			}
		}
	})
}

func TestEverySignalThatEndsTheCommandArrives(t *testing.T) {
	// The default action of these is not to end the process; see signal(7).
	harmless := []int{int(syscall.SIGCHLD), int(syscall.SIGCONT), int(syscall.SIGURG), int(syscall.SIGWINCH)}
	stopping := []int{int(syscall.SIGSTOP), int(syscall.SIGTSTP), int(syscall.SIGTTIN), int(syscall.SIGTTOU)}
	inPlaces(t, func(t *testing.T, p place) {
		for sig := 1; sig <= 64; sig++ {
			if slices.Contains(stopping, sig) || sig == 32 || sig == 33 {
				continue
			}
			want := 128 + sig
			if slices.Contains(harmless, sig) {
				want = 5
			}
			script := fmt.Sprintf("ulimit -c 0; kill -%d $$; exit 5", sig)
			got, _, stderr := ask(t, p.command("--", "/bin/sh", "-c", script))
			if got != want || stderr != "" {
				t.Errorf("signal %d arrived as %d, want %d, stderr %q", sig, got, want, stderr)
			}
		}
	})
}

// A file that is no command, in each of the ways in which one can't be run.
func TestCommandThatCannotBeRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain", "text", 0o644)
	orphaned := file("orphaned", "#!/no/such/interpreter\n", 0o755)
	script := file("script", "exit 42\n", 0o755)
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
		{"a directory", []string{dir}, 126, dir + ": permission denied"},
		{"no interpreter", []string{orphaned}, 126, orphaned + ": its interpreter was not found"},
		{"a script without #!", []string{script}, 42, ""},
		{"a name with a newline", []string{"a\nb"}, 127, `cannot run "a\nb"`},
	}
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				status, _, stderr := ask(t, p.command(append([]string{"--"}, tt.command...)...))
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

func TestBadInputNamesTheOperandAndStartsNothing(t *testing.T) {
	tests := []struct {
		args []string
		env  string
		says string // "" for the usage text
	}{
		{[]string{}, "", ""},
		{[]string{"--"}, "", ""},
		{[]string{"--nope", "--"}, "", "unknown flag --nope"},
		{[]string{"-z", "--"}, "", "unknown flag -z"},
		{[]string{"--grace=soon", "--"}, "", `--grace: cannot use "soon": want a duration`},
		{[]string{"--grace=-1s", "--"}, "", `--grace: cannot use "-1s"`},
		{[]string{"--linger=", "--"}, "", `--linger: cannot use ""`},
		{[]string{"--orphans=some", "--"}, "", `--orphans: cannot use "some": want stop, pipes, wait or leave`},
		{[]string{"--orphans-exit=256", "--"}, "", `--orphans-exit: cannot use "256": want an exit status`},
		{[]string{"-e", "x", "--"}, "", `--remap-exit: cannot use "x"`},
		{[]string{"-e", "-1", "--"}, "", `--remap-exit: wants a value`},
		{[]string{"--remap-exit=-1", "--"}, "", `--remap-exit: cannot use "-1"`},
		{[]string{"--grace"}, "", `--grace: `},
		{[]string{"-p", "FOO", "--"}, "", `--pdeathsig: cannot use signal "FOO"`},
		{[]string{"-t", "5", "--"}, "", `--timeout: cannot use "5"`},
		{[]string{"-r", "TERM", "--"}, "", `--rewrite: cannot use "TERM": want FROM:TO`},
		{[]string{"-r", "KILL:TERM", "--"}, "", `--rewrite: cannot use "KILL:TERM": SIGKILL can't be caught`},
		{[]string{"-r", "TERM:FOO", "--"}, "", `--rewrite: cannot use signal "FOO"`},
		{[]string{"--inner=1,2", "--"}, "", `--inner is not for users`},
		{[]string{"-P", "--"}, "", `--pause runs no command: cannot use "/bin/echo"`},
		{[]string{"--"}, "FINI_GRACE=soon", `FINI_GRACE="soon"`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " ")+tt.env, func(t *testing.T) {
			args := tt.args
			if tt.says != "" {
				args = append(slices.Clone(args), "/bin/echo", "started")
			}
			cmd := exec.Command(finiPath, args...)
			if tt.env != "" {
				cmd.Env = append(os.Environ(), tt.env)
			}
			status, stdout, stderr := ask(t, cmd)
			if status != 125 || stdout != "" {
				t.Errorf("status %d and stdout %q, want 125 and none", status, stdout)
			}
			if tt.says == "" {
				if !strings.HasPrefix(stderr, "usage: fini ") {
					t.Errorf("says %q, want the usage", stderr)
				}
			} else if !strings.HasPrefix(stderr, "fini: ") || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("says %q, want one line with %q", stderr, tt.says)
			}
		})
	}
}

func TestFlagsEndAtTheCommand(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		status int
		out    string
	}{
		{"--", []string{"--", "/bin/echo", "a"}, 0, "a\n"},
		{"no --", []string{"/bin/echo", "a"}, 0, "a\n"},
		{"only one -- is taken", []string{"--", "--", "true"}, 127, ""},
		{"the command's own flags", []string{"/bin/echo", "-e", "-v", "--grace=soon", "--", "-h"}, 0, "-v --grace=soon -- -h\n"},
		{"the command's own --", []string{"--", "/bin/echo", "--", "-q"}, 0, "-- -q\n"},
		{"flags before", []string{"-sg", "-vq", "-e", "3", "--grace", "1s", "/bin/sh", "-c", "exit 3"}, 0, ""},
		{"-e twice", []string{"-e", "3", "-e4", "--", "/bin/sh", "-c", "exit 4"}, 0, ""},
		{"-e of a signal", []string{"-e", "143", "--", "/bin/sh", "-c", "kill $$"}, 0, ""},
		{"-e of another", []string{"-e", "3", "--", "/bin/sh", "-c", "exit 5"}, 5, ""},
		{"empty arguments", []string{"--", "/bin/sh", "-c", `echo "$#"`, "", "", ""}, 0, "2\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := ask(t, exec.Command(finiPath, tt.args...))
			if status != tt.status || stdout != tt.out {
				t.Errorf("status %d and %q, want %d and %q; stderr %q", status, stdout, tt.status, tt.out, stderr)
			}
		})
	}
}

func TestVersionIsOneThatDockerKnows(t *testing.T) {
	status, stdout, _ := ask(t, exec.Command(finiPath, "--version"))
	line, newline, _ := strings.Cut(stdout, "\n")
	_, commit, found := strings.Cut(line, " - git.")
	if status != 0 || newline != "" || !found || len(commit) != 7 || strings.Trim(commit, "0123456789abcdef") != "" {
		t.Errorf("status %d, %q; want one line that ends in \" - git.\" and seven hexadecimal digits", status, stdout)
	}
}

func TestHelpAndLicenseGoToStdout(t *testing.T) {
	for flag, want := range map[string]string{
		"-h": "usage: fini ", "--help": "usage: fini ", "-l": "MIT License", "-L": "MIT License", "--license": "MIT License",
	} {
		status, stdout, stderr := ask(t, exec.Command(finiPath, flag))
		if status != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
			t.Errorf("%s: status %d, stdout %.40q, stderr %q; want %q", flag, status, stdout, stderr, want)
		}
	}
}
