package terminal

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// shellScript is a shell that starts one job in a process group of its own, and ends with its status, or the number of its
// signal. The job is in the foreground, and goes on when it was suspended; or it is in the background, and is killed. If the
// test itself has stopped it, the shell does nothing. The second argument is what the job does before it executes the command.
const shellScript = `import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    if sys.argv[1] == "foreground":
        os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    exec(sys.argv[2])
    os.execv(sys.argv[3], sys.argv[3:])
while True:
    status = os.waitpid(pid, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        os._exit(abs(os.waitstatus_to_exitcode(status)))
    if os.WSTOPSIG(status) == signal.SIGSTOP:
        continue
    with open("/proc/%d/comm" % pid, "rb") as name:
        os.write(1, b"suspended by %d as %s" % (os.WSTOPSIG(status), name.read()))
    os.killpg(pid, signal.SIGCONT if sys.argv[1] == "foreground" else signal.SIGKILL)
`

// shell is such a shell.
func shell(t *testing.T, where, inJob string, command ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(need.Program(t, "python3"), append([]string{"-I", "-S", "-c", shellScript, where, inJob}, command...)...)
}

// begin starts a job in the foreground of a terminal without echo, which might come into a line of the command's. It returns
// when the job is about to execute its command.
func begin(t *testing.T, command ...string) (l *rig.Life, screen *rig.Lines, keys *os.File) {
	t.Helper()
	l, screen, keys = pty.Start(t, shell(t, "foreground", `os.system("stty -echo"); os.write(1, b"begun\n")`, command...))
	screen.Want("begun")
	return l, screen, keys
}

// A key that is typed while a job begins is not lost, whatever the job has got to by then.
func TestKeyWhileAJobBegins(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for i := range rig.QuickOrFull(40, 600) {
				l, _, keys := begin(t, p.Command("sleep", "1000").Args...)
				for end := time.Now().Add(time.Duration(i%40) * 100 * time.Microsecond); time.Now().Before(end); {
				}
				_, _ = keys.WriteString("\x03")
				l.MustEnd(int(syscall.SIGINT))
				_ = keys.Close()
			}
		})
	}
}

// A key that is typed as soon as the command is there is not lost, although the outer fini, which is suspended until then,
// does not know yet that the command is there. It may reach the command twice.
func TestKeyAsSoonAsTheCommandIsThere(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	for range rig.QuickOrFull(9, 60) {
		l, screen, keys := begin(t, rig.Pair.Command(rig.Mode("signals", "15")...).Args...)
		outer := procfs.ChildrenOf(t, l.PID())[0]
		for end := time.Now().Add(rig.EnoughNow()); len(procfs.ChildrenOf(t, outer)) == 0; { // it is too short a moment to sleep
			if time.Now().After(end) {
				t.Fatal("fini starts no second one")
			}
		}
		rig.MustKill(t, outer, syscall.SIGSTOP)
		screen.Want("ready")
		_, _ = keys.WriteString("\x03")
		screen.Want("signal 2")
		rig.MustKill(t, outer, syscall.SIGCONT)
		rig.MustKill(t, outer, syscall.SIGUSR1)
		screen.Want("signal 10")
		rig.MustKill(t, outer, syscall.SIGTERM)
		l.Wait()
		if n := strings.Count(screen.Text(), "signal 2\n"); n != 1 && n != 2 {
			t.Errorf("Ctrl-C reaches the command %d times: %q", n, screen.Text())
		}
		_ = keys.Close()
	}
}

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
			for _, want := range []string{"suspended by 20 as fini\n", "ready "} {
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
signal.signal(signal.SIGTTOU, signal.SIG_IGN) # which would suspend the job here
termios.tcsetattr(0, termios.TCSANOW, modes)
signal.signal(signal.SIGTTOU, signal.SIG_DFL)`
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			for range rig.QuickOrFull(20, 600) {
				l, screen, keys := pty.Start(t, shell(t, "background", tostop, p.Command("--", "/bin/sh", "-c", "echo said").Args...))
				screen.Want("suspended by 22 as fini")
				// Nobody has waited for those whom the SIGKILL ends, and it spares an inner fini.
				rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
				l.MustEnd(9)
				_ = keys.Close()
			}
		})
	}
}
