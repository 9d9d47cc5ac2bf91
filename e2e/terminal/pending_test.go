package terminal

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"golang.org/x/sys/unix"
)

// blocked is a shell that starts one job in the foreground. The job blocks SIGTSTP, and executes the command once that signal
// is pending. The shell continues the job when it is suspended, and ends with its status.
const blocked = `import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
    os.write(1, b"blocked\n")
    while not signal.sigpending():
        time.sleep(0.001)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    status = os.waitpid(pid, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        break
    os.write(1, b"suspended by %d\n" % os.WSTOPSIG(status))
    os.killpg(pid, signal.SIGCONT)
os._exit(abs(os.waitstatus_to_exitcode(status)))
`

// A Ctrl-Z that was typed before there was a command, and that fini gets only when the command is there, suspends fini, once.
func TestControlZFromBeforeTheCommand(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			argv := slices.Concat([]string{"-I", "-S", "-c", blocked}, p.Command("-v", "--").Args, rig.Mode("signals", "15"))
			l, screen, keys := pty.Start(t, exec.Command(python, argv...))
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
