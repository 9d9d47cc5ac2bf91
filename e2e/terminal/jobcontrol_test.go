package terminal

import (
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
)

// At a terminal fini is as if it were not there. The same keys are typed to a shell twice, once for
// the bare command and once with fini before it: the screen, the statuses and what is left alive
// are the same. The cases are those of package shells.
func TestJobControl(t *testing.T) {
	t.Parallel()
	b := shells.NewBench(t)
	for _, c := range shells.TypedCases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for _, shell := range c.Shells() {
				t.Run(shell.Name, func(t *testing.T) {
					t.Parallel()
					if !c.IsQuick(shell, rig.Pair) && !c.IsQuick(shell, rig.Alone) {
						rig.Long(t)
					}
					need.Program(t, shell.Name)
					c.MustHave(t, b)
					bare := b.Bare(t, shell, c)
					for _, p := range []rig.Place{rig.Pair, rig.Alone} {
						rig.Case(t, c.IsQuick(shell, p), p.Name, func(t *testing.T) { b.Compare(t, shell, c, p, bare) })
					}
				})
			}
		})
	}
}

// writer starts a command in the background of a terminal that lets nobody there write, and exits with 0 once the
// kernel has suspended it, as a whole.
const writer = `import os, signal, sys, termios
modes = termios.tcgetattr(0)
modes[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, modes)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
os.kill(-pid, signal.SIGKILL)
sys.exit(not os.WIFSTOPPED(status))
`

// A job that writes as soon as it can is suspended, although fini may not know yet that its command is there.
func TestWriterInTheBackground(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			for range rig.QuickOrFull(20, 600) {
				argv := append([]string{"-I", "-S", "-c", writer}, p.Command("--", "/bin/sh", "-c", "echo said").Args...)
				l, _, keys := pty.Start(t, exec.Command(python, argv...))
				// Nobody has waited for those whom the SIGKILL ends, and it spares an inner fini.
				rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
				l.MustEnd(0)
				_ = keys.Close()
			}
		})
	}
}
