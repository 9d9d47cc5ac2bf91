package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What is written to a pty just before its last close may be lost, so each script below
// waits for a line at its end.

// onTerminal runs a command as the leader of a session whose terminal is a pty, and
// returns what it writes there, line by line, and where to type.
func onTerminal(t *testing.T, cmd *exec.Cmd) (l *life, screen *lines, keys *os.File) {
	t.Helper()
	theirs, ours := terminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	l = startCmd(t, cmd)
	_ = theirs.Close()
	return l, newLines(t, carriageless{ours}), ours
}

// carriageless drops the carriage returns that a terminal adds.
type carriageless struct{ r io.Reader }

func (c carriageless) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	return copy(p, strings.ReplaceAll(string(p[:n]), "\r", "")), err
}

// PID 1 has no shell that gives a job the terminal: its command has a group of its own, with the
// terminal's foreground.
func TestTerminalIsHandedOnByPID1(t *testing.T) {
	needPidNamespace(t)
	cmd := pid1.command("--", "/bin/sh", "-c", `read line; echo "$line is read"; exec sleep 1000`)
	attributes := cmd.SysProcAttr
	theirs, ours := terminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	attributes.Setsid, attributes.Setctty = true, true
	l := startCmd(t, cmd)
	_ = theirs.Close()
	screen := newLines(t, carriageless{ours})
	_, _ = io.WriteString(ours, "a word\n")
	screen.want("a word is read")
	_, _ = io.WriteString(ours, "\x03") // Ctrl-C
	l.mustEnd(128 + 2)
}

// Under --no-foreground the command has a group of its own in the background, and fini forwards
// what the keys of the terminal send.
func TestNoForeground(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			l, screen, keys := onTerminal(t, p.command("--no-foreground", "--", "/bin/sh", "-c",
				`trap "" TTIN; read line </dev/tty || echo in the background; exec sleep 1000`))
			screen.want("in the background")
			_, _ = io.WriteString(keys, "\x03")
			l.mustEnd(128 + 2)
		})
	}
}

// Without a shell that could continue a job, as under ssh -t and script -c, the kernel stops nobody.
func TestCtrlZWithoutAShell(t *testing.T) {
	t.Parallel()
	const reader = `stty -echo; echo ready; while read x; do echo "read $x"; done`
	for name, line := range map[string]string{"leader": `exec "$@"`, "below a shell without jobs": `"$@"; echo over`} {
		screenOf := func(t *testing.T, wrap ...string) string {
			t.Helper()
			l, screen, keys := onTerminal(t, exec.Command("/bin/sh", slices.Concat([]string{"-c", line, "sh"}, wrap, []string{"/bin/sh", "-c", reader})...))
			screen.want("ready")
			_, _ = io.WriteString(keys, "\x1a")
			_, _ = io.WriteString(keys, "\nword\n")
			screen.want("read word")
			text := screen.text()
			_, _ = io.WriteString(keys, "\x04")
			l.mustEnd(0)
			return text
		}
		for _, p := range []place{pair, alone} {
			t.Run(name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				without, with := screenOf(t), screenOf(t, p.command("--").Args...)
				if with != without {
					t.Errorf("the screen is %q, without fini %q", with, without)
				}
			})
		}
	}
}

// What the terminal itself sends reaches the command once: SIGWINCH, and SIGHUP when the
// line is cut.
func TestTerminalsOwnSignals(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			theirs, ours := terminal(t)
			cmd := p.command(append([]string{"-q", "--"}, mode("signals", "10")...)...)
			cmd.Stdin = theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			l := startCmd(t, cmd)
			_ = theirs.Close()
			command := l.Out.wantPid("ready ")
			if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
				t.Fatal(err)
			}
			if line, _ := l.Out.next(); line != "signal 28" {
				t.Errorf("got %q, want SIGWINCH", line)
			}
			_ = ours.Close()
			// The kernel sends SIGCONT along.
			first, _ := l.Out.next()
			second, _ := l.Out.next()
			if first+second != "signal 1signal 18" && first+second != "signal 18signal 1" {
				t.Errorf("got %q and %q, want SIGHUP and SIGCONT", first, second)
			}
			_ = syscall.Kill(command, syscall.SIGUSR1)
			if got := l.Out.rest(); len(got) != 1 || got[0] != "signal 10" {
				t.Errorf("and then %q, want the sentinel alone", got)
			}
			l.mustEnd(7)
		})
	}
}

// A line that is cut under a shell ends what the shell had started.
func TestHangUpOfAShellsTerminal(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			fini := strings.Join(p.command("-q", "--grace=300ms", "--").Args, " ")
			theirs, ours := terminal(t)
			cmd := exec.Command(bash, "--norc", "-c", fini+` sh -c 'trap "" HUP; (echo started; exec sleep 1000); :'; exit $?`)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			l := startCmd(t, cmd)
			_ = theirs.Close()
			// Read here, for a read that is under way would keep the line open.
			if line, err := bufio.NewReader(ours).ReadString('\n'); err != nil || line != "started\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_ = ours.Close()
			until(t, "the end of the tree", func() bool { return hungUp(l.witness) })
		})
	}
}
