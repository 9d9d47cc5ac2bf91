package terminal

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"golang.org/x/sys/unix"
)

// job starts a command as a job at its terminal and ends with its status, or 128 and the number of the signal. It
// says so on descriptor 3 when the job is about to execute the command.
const job = `import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.write(3, b"x")
    os.execv(sys.argv[1], sys.argv[1:])
os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
`

// begin starts a job in the foreground of a terminal, and returns when it is about to execute it.
func begin(t *testing.T, command ...string) (cmd *exec.Cmd, keys *os.File) {
	t.Helper()
	tty, keys := pty.Open(t)
	ready, says := rig.Pipe(t)
	modes, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
	if err == nil {
		modes.Lflag &^= unix.ECHO // it might come into a line of the command's
		err = unix.IoctlSetTermios(int(keys.Fd()), unix.TCSETS, modes)
	}
	rig.NoError(t, err)
	cmd = exec.Command(need.Program(t, "python3"), append([]string{"-I", "-S", "-c", job}, command...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tty, tty, tty, []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	rig.NoError(t, cmd.Start())
	_, _ = ready.Read(make([]byte, 1))
	for _, f := range []*os.File{tty, ready, says} {
		_ = f.Close()
	}
	return cmd, keys
}

// A key that is typed while a job begins is not lost, whatever the job has got to by then.
func TestKeyWhileAJobBegins(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for i := range rig.QuickOrFull(40, 600) {
				cmd, keys := begin(t, p.Command("sleep", "1000").Args...)
				for end := time.Now().Add(time.Duration(i%40) * 100 * time.Microsecond); time.Now().Before(end); {
				}
				_, _ = keys.Write([]byte{3})
				late := time.AfterFunc(rig.Patience, func() { _ = keys.Close() }) // hangs up
				err := cmd.Wait()
				late.Stop()
				if code := cmd.ProcessState.ExitCode(); code != int(syscall.SIGINT) {
					t.Errorf("Ctrl-C after %d µs: %v", i%40*100, err)
				}
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
		cmd, keys := begin(t, rig.Pair.Command(rig.Mode("signals", "15")...).Args...)
		outer, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
		rig.NoError(t, err)
		for end := time.Now().Add(rig.Patience); len(procfs.ChildrenOf(t, outer)) == 0; { // it is too short a moment to sleep
			if time.Now().After(end) {
				t.Fatal("fini starts no second one")
			}
		}
		rig.MustKill(t, outer, syscall.SIGSTOP)
		screen := rig.NewLines(t, keys)
		screen.Want("ready")
		_, _ = keys.Write([]byte{3})
		screen.Want("signal 2")
		rig.MustKill(t, outer, syscall.SIGCONT)
		rig.MustKill(t, outer, syscall.SIGUSR1)
		screen.Want("signal 10")
		rig.MustKill(t, outer, syscall.SIGTERM)
		_ = cmd.Wait()
		if n := strings.Count(screen.Text(), "signal 2\r\n"); n != 1 && n != 2 {
			t.Errorf("Ctrl-C reaches the command %d times: %q", n, screen.Text())
		}
		_ = keys.Close()
	}
}
