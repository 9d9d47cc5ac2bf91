package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

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

// The command has the terminal's foreground as it would have it without fini, and who
// started fini has it back afterwards.
func TestTerminalIsHandedOnAndBack(t *testing.T) {
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			fini := strings.Join(p.command("-q", "--linger=0", "--").Args, " ")
			killed := ""
			if !p.alone {
				// Of a fini alone nobody is left to give the terminal back.
				killed = fini + ` sh -c 'echo four; kill -9 $PPID; sleep 1000'; echo "status $?"`
			}
			script := `
				` + fini + ` sh -c 'echo one; read line; echo "$line is read"'; echo "status $?"
				` + fini + ` sh -c 'echo two; exec cat'; echo "status $?"
				` + fini + ` sh -c 'echo three; kill -9 $$'; echo "status $?"
				` + killed + `
				echo last; read line; echo "$line is read by the shell"; read end`
			l, screen, keys := onTerminal(t, exec.Command("/bin/sh", "-c", script))
			screen.want("one")
			_, _ = io.WriteString(keys, "a word\n")
			screen.want("a word is read")
			screen.want("status 0")
			screen.want("two")
			_, _ = io.WriteString(keys, "\x03") // Ctrl-C
			screen.want("^Cstatus 130")
			screen.want("three")
			screen.want("status 137")
			if killed != "" {
				screen.want("four")
				screen.want("status 137")
			}
			screen.want("last")
			_, _ = io.WriteString(keys, "another\n")
			screen.want("another is read by the shell")
			_, _ = io.WriteString(keys, "\n")
			l.mustEnd(0)
		})
	}
}

// A fini in the background leaves the terminal to who has it.
func TestTerminalIsNotTakenFromTheBackground(t *testing.T) {
	bash := needProgram(t, "bash")
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			fini := strings.Join(p.command("--").Args, " ")
			l, screen, keys := onTerminal(t, exec.Command(bash, "-c",
				"set -m; "+fini+` sh -c 'echo in the background; exec sleep 1000' & read line; echo "$line is read"; kill $!; wait $!; echo "status $?"; read end`))
			screen.want("in the background")
			_, _ = io.WriteString(keys, "a word\n")
			screen.want("a word is read")
			screen.want("status 143")
			_, _ = io.WriteString(keys, "\n")
			l.mustEnd(0)
		})
	}
}

// An interactive bash that runs fini in front of its commands sees the jobs that it would
// see without it, and has its terminal back whatever becomes of them.
func TestJobControl(t *testing.T) {
	bash := needProgram(t, "bash")
	for _, p := range []place{pair, alone} {
		fini := strings.Join(p.command("-q", "--linger=0", "--").Args, " ")
		for name, fini := range map[string]string{p.name: fini, p.name + " in another": fini + " " + fini} {
			t.Run(name, func(t *testing.T) {
				cmd := exec.Command(bash, "--norc", "--noediting", "-i")
				cmd.Env = append(os.Environ(), "PS1=", "HISTFILE=", "fini="+fini)
				l, screen, keys := onTerminal(t, cmd)
				enter := func(text string) {
					t.Helper()
					if _, err := io.WriteString(keys, text); err != nil {
						t.Fatal(err)
					}
				}
				enter("stty -echo; echo be''gin\n")
				screen.want("begin")

				enter("$fini cat\n")
				enter("a word\n")
				screen.want("a word")
				enter("\x1a") // Ctrl-Z
				screen.want("[1]+  Stopped")
				enter("echo the prompt is back\n")
				screen.want("the prompt is back")
				enter("fg; echo status $?\n")
				enter("another\n")
				screen.want("another")
				enter("\x03")
				screen.want("status 130")

				// In the background it is stopped when it reads the terminal.
				enter("$fini sh -c 'echo started; while read line; do echo read $line; done'\n")
				screen.want("started")
				enter("\x1a")
				screen.want("[1]+  Stopped")
				enter("bg\n")
				until(t, "the job in the background stops", func() bool {
					enter("jobs -s; echo listed\n")
					line, _ := screen.next()
					for ; line != "listed"; line, _ = screen.next() {
						if strings.HasPrefix(line, "[1]+  Stopped") {
							screen.want("listed")
							return true
						}
					}
					return false
				})
				enter("fg; echo status $?\n")
				enter("a third\n")
				screen.want("read a third")
				enter("\x04") // Ctrl-D
				screen.want("status 0")

				enter("$fini sleep 1000 & jobs -r\n")
				screen.want("[1]+  Running")
				enter("kill $!; wait $!; echo status $?\n")
				screen.want("status 143")

				enter("stty tostop; $fini sh -c 'echo in the background' &\n")
				enter("wait $!; stty -tostop; fg\n")
				screen.want("in the background")

				enter("$fini sh -c 'kill -9 $PPID; while :; do :; done'\n")
				enter("echo still here\n")
				screen.want("still here")
				enter("$fini sh -c 'kill -9 $$'\n")
				enter("echo and here\n")
				screen.want("and here")
				enter("exit 7\n")
				l.mustEnd(7)
			})
		}
	}
}

// What the terminal itself sends reaches the command once: SIGWINCH, and SIGHUP when the
// line is cut.
func TestTerminalsOwnSignals(t *testing.T) {
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
	bash := needProgram(t, "bash")
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
