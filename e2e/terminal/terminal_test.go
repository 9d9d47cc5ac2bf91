package terminal

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// untilHeard types a text each second until the screen has answered. Nobody types so soon as a test does: on a busy
// machine the shell of a script may be between two commands, or the outer fini may not have had the first Ctrl-C, and two
// pending ones are one. The last one may drop the line that is typed next.
func untilHeard(t *testing.T, screen *rig.Lines, keys io.Writer, text, answer string) {
	t.Helper()
	var typed time.Time
	rig.Until(t, answer, func() bool {
		if time.Since(typed) > time.Second {
			typed = time.Now()
			_, _ = io.WriteString(keys, text)
		}
		return strings.Contains(screen.Text(), answer)
	})
}

// The second Ctrl-C after the end of the command ends its leftovers at once: the shell has its prompt back.
func TestSecondControlC(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(bash, "--norc", "--noediting", "-i")
			fini := strings.Join(p.Command("--linger=0", "--orphans-grace=1h", "--").Args, " ")
			script := runners.ScriptFile(t, `setsid sh -c 'trap "" TERM INT; echo stub""born; sleep 1000; sleep 1000' & sleep 1000`)
			cmd.Env = append(os.Environ(), "PS1=", "HISTFILE=", "NO_COLOR=1", "command="+fini+" sh "+script)
			l, screen, keys := pty.Start(t, cmd)
			_, _ = io.WriteString(keys, "stty -echo -echoctl; echo be''gin\n")
			screen.Want("begin")
			_, _ = io.WriteString(keys, "$command; echo never\n")
			screen.Want("stubborn")
			untilHeard(t, screen, keys, "\x03", "fini: stopping leftover")
			untilHeard(t, screen, keys, "\x03", "fini: killing the leftovers: a second SIGINT")
			untilHeard(t, screen, keys, "echo pro''mpt $?\n", "prompt 130")
			_, _ = io.WriteString(keys, "exit\n")
			l.MustEnd(0)
		})
	}
}

// A fini that was stopped with its job ends if the command is killed meanwhile, because the inner one continues it: whether
// or not the inner fini has seen that the command was stopped, and if the command ignores Ctrl-Z.
func TestStoppedJobWhoseCommandIsKilled(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for _, c := range []struct {
		name, ignores string
		stopped       int
	}{{"stopped", "", 2}, {"not stopped", "trap '' TSTP; ", 1}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for range rig.QuickOrFull(20, 500) {
				l, screen, keys := pty.Start(t, exec.Command(bash, "-c",
					"set -m; "+rig.Fini+` -q -- sh -c "`+c.ignores+`echo ready; exec sleep 1000"; echo "status $?"; read x`))
				screen.Want("ready")
				outer := procfs.ChildrenOf(t, l.PID())[0]
				inner := procfs.ChildrenOf(t, outer)[0]
				command := procfs.ChildrenOf(t, inner)[0]
				_, _ = io.WriteString(keys, "\x1a") // Ctrl-Z
				screen.Want("status 148")
				rig.Until(t, "fini is stopped, and the command with it", func() bool { return procfs.CountStopped([]int{outer, command}) == c.stopped })
				rig.MustKill(t, command, syscall.SIGKILL)
				rig.Until(t, "fini's end", func() bool { return procfs.StatOf(outer).Gone() })
				_, _ = io.WriteString(keys, "\n")
				l.MustEnd(0)
			}
		})
	}
}

// No shell could continue a job whose shell has left it, as in (cmd &). So the kernel suspends nobody who reads the terminal
// there, and the read fails, with fini as without.
func TestOrphanedJobReadsTheTerminal(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for name, wrap := range map[string][]string{
		"without": nil, "pair": rig.Pair.Command("-p", "none", "--").Args, "alone": rig.Alone.Command("-p", "none", "--").Args,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, screen, keys := pty.Start(t, exec.Command(bash, slices.Concat([]string{"-c", `
				set -m
				(shell=$BASHPID; (while kill -0 $shell; do :; done 2>/dev/null; exec "$@") &)
				read end`, "bash"}, wrap, []string{"/bin/sh", "-c", "cat </dev/tty; echo over $?"})...))
			screen.Want("over 1")
			_, _ = io.WriteString(keys, "\n")
			l.MustHaveStatus(0)
			rig.Until(t, "fini is gone, for which nobody waits", func() bool { return rig.HungUp(l.Witness) })
		})
	}
}

// What is written to a pty just before its last close may be lost, so each script below
// waits for a line at its end.

// PID 1 has no shell that gives a job the terminal: its command has a group of its own, with the
// terminal's foreground. After the command's end the keys are for PID 1.
func TestTerminalIsHandedOnByPID1(t *testing.T) {
	rig.NeedPidNamespace(t)
	l, screen, keys := pty.Start(t, rig.PID1.Command("--linger=0", "--orphans-grace=1h", "--", "/bin/sh", "-c",
		`stty -echo; setsid sh -c 'trap "" TERM; echo there; sleep 1000' & read line; echo "$line is read"; exec sleep 1000`))
	screen.Want("there")
	_, _ = io.WriteString(keys, "a word\n")
	screen.Want("a word is read")
	_, _ = io.WriteString(keys, "\x03") // Ctrl-C
	screen.Want("fini: stopping leftover")
	untilHeard(t, screen, keys, "\x03", "fini: killing the leftovers: a second SIGINT")
	l.MustEnd(128 + 2)
}

// The command has the terminal that fini has, also when no stream is that terminal. Under --no-foreground the command
// has a group of its own in the background, and fini forwards what the keys of the terminal send.
func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, c := range []struct{ flag, says string }{{"-q", "in the foreground"}, {"--no-foreground", "in the background"}} {
			t.Run(p.Name+"/"+c.flag, func(t *testing.T) {
				cmd := slices.Concat([]string{"-c", `"$@" </dev/null >/dev/null 2>&1`, "sh"}, p.Command(c.flag, "--").Args, []string{"/bin/sh", "-c",
					`exec >/dev/tty; trap "" TTIN; echo go; if read line </dev/tty; then echo in the foreground; else echo in the background; fi; exec sleep 1000`})
				l, screen, keys := pty.Start(t, exec.Command("/bin/sh", cmd...))
				screen.Want("go")
				_, _ = io.WriteString(keys, "\n")
				screen.Want(c.says)
				_, _ = io.WriteString(keys, "\x03")
				l.MustEnd(128 + 2)
			})
		}
	}
}

// SIGTSTP stops nobody of an orphaned job, such as that of `docker run -t`: neither its shell, nor fini, nor the command.
func TestOrphanedJobIsNotStopped(t *testing.T) {
	t.Parallel()
	argv := slices.Concat([]string{"-c", `"$@"; exit`, "sh"}, rig.Pair.Command("--").Args, rig.Mode("signals", "12"))
	l, screen, _ := pty.Start(t, exec.Command("/bin/sh", argv...))
	screen.Want("ready")
	outer := procfs.ChildrenOf(t, l.PID())[0]
	for range rig.QuickOrFull(100, 10_000) {
		rig.MustKill(t, -l.PID(), syscall.SIGTSTP)
		rig.MustKill(t, outer, syscall.SIGWINCH)
		screen.Want("signal 28")
	}
	inner := procfs.ChildrenOf(t, outer)[0]
	if group, err := unix.Getpgid(inner); group != inner {
		t.Errorf("a SIGKILL for the job kills the inner fini %d too: it is in group %d, %v", inner, group, err)
	}
	rig.MustKill(t, outer, syscall.SIGUSR2)
	l.MustEnd(7)
}

// A terminal whose size changes while fini starts, as that of `docker exec -t` does, is no reason to say anything.
func TestSizeChangesAtTheStart(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for range rig.QuickOrFull(20, 1000) {
			l, screen, keys := pty.Start(t, p.Command("--", "/bin/sh", "-c", "read line; echo over; read line"))
			for n := range uint16(300) {
				_ = unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10 + n%2, Col: 80})
			}
			_, _ = io.WriteString(keys, "\n")
			screen.Want("over")
			if text := screen.Text(); strings.Contains(text, "fini:") {
				t.Fatalf("the screen is %q", text)
			}
			_, _ = io.WriteString(keys, "\n")
			l.MustEnd(0)
		}
	}
}

// What the terminal itself sends reaches the command once: SIGWINCH, and SIGHUP when the
// line is cut.
func TestTerminalsOwnSignals(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name, func(t *testing.T) {
			theirs, ours := pty.Open(t)
			cmd := p.Command(append([]string{"-q", "--"}, rig.Mode("signals", "10")...)...)
			cmd.Stdin = theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			l := rig.StartCmd(t, cmd)
			_ = theirs.Close()
			command := l.Out.WantPID("ready ")
			l.Caught()
			if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
				t.Fatal(err)
			}
			first, _ := l.Out.Next()
			_ = ours.Close()
			second, _ := l.Out.Next()
			third, _ := l.Out.Next()
			_ = syscall.Kill(command, syscall.SIGUSR1) // which would come after another one
			got := append([]string{first, second, third}, l.Out.Rest()...)
			slices.Sort(got[1:3]) // the kernel sends SIGCONT along with SIGHUP
			rig.MustRecord(t, "the command says", got, "signal 28", "signal 1", "signal 18", "signal 10")
			l.MustEnd(7)
		})
	}
}
