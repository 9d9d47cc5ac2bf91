package terminal

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"golang.org/x/sys/unix"
)

// A Ctrl-Z that was typed before there was a command, and that fini gets only when the command is there, suspends fini, once.
func TestControlZFromBeforeTheCommand(t *testing.T) {
	t.Parallel()
	// The job blocks SIGTSTP, and executes the command once that signal is pending.
	const blocked = `signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
os.write(1, b"blocked\n")
while not signal.sigpending():
    time.sleep(0.001)`
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			argv := append(p.Command("-v", "--").Args, rig.Mode("signals", "15")...)
			l, screen, keys := pty.Start(t, shell(t, "foreground", blocked, argv...))
			screen.Want("blocked")
			_, _ = keys.WriteString("\x1a")
			for _, want := range []string{"suspended by 20\n", "ready "} {
				rig.Until(t, "it says "+want, func() bool { return strings.Contains(screen.Text(), want) })
			}
			job, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
			rig.NoError(t, err)
			rig.MustKill(t, job, syscall.SIGTERM)
			l.MustEnd(7)
			if text := screen.Text(); strings.Count(text, "suspended by") != 1 || strings.Count(text, "sending SIGTSTP to the command") > 1 {
				t.Errorf("it is suspended more than once: %q", text)
			}
		})
	}
}

// A job in the background of a terminal that lets nobody there write, and that writes as soon as it can, is suspended, as a
// whole, although fini may not know yet that its command is there.
func TestWriterInTheBackground(t *testing.T) {
	t.Parallel()
	const tostop = `import termios
modes = termios.tcgetattr(0)
modes[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, modes)`
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			for range rig.QuickOrFull(20, 600) {
				l, screen, keys := pty.Start(t, shell(t, "background", tostop, p.Command("--", "/bin/sh", "-c", "echo said").Args...))
				screen.Want("suspended by 22")
				// Nobody has waited for those whom the SIGKILL ends, and it spares an inner fini.
				rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
				l.MustEnd(9)
				_ = keys.Close()
			}
		})
	}
}
