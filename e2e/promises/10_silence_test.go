package promises

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// Promise 10, Silence: standard output belongs to the command. Of a command that ends by itself and leaves nothing behind,
// fini says not one byte on standard error either, nor on a terminal.
func TestSilence(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, flags := range [][]string{nil, {"-i"}, {"--timeout=1h"}, {"--orphans=leave"}, {"--orphans-exit=9"}, {"--kill-after=5s"}} {
			for _, end := range []string{"exit 0", "exit 3", "kill -TERM $$", "kill -KILL $$", "sleep 0.01 & wait"} {
				cmd := p.Command(append(flags, "--", "sh", "-c", "echo to stdout; echo to stderr >&2; "+end)...)
				stdin, _ := cmd.StdinPipe()
				_, stdout, stderr := rig.Ask(t, cmd) // runs it, and reads both to their end
				if stdout != "to stdout\n" || stderr != "to stderr\n" {
					t.Errorf("%q, with %q: stdout has %q, and stderr %q", end, flags, stdout, stderr)
				}
				_ = stdin.Close()
			}
		}
		screenOf := func(status int, cmd *exec.Cmd) string {
			cmd.Args = append(cmd.Args, "sh", "-c", fmt.Sprintf("read line; echo said $line; read line; exit %d", status))
			l, screen, keys := pty.Start(t, cmd)
			_, _ = io.WriteString(keys, "a word\n")
			screen.Want("said a word")
			_, _ = io.WriteString(keys, "\n")
			l.MustHaveStatus(status)
			return screen.Whole()
		}
		for status := range 2 {
			if want, got := screenOf(status, exec.Command("env")), screenOf(status, p.Command("--")); got != want {
				t.Errorf("on a terminal is %q, without fini %q", got, want)
			}
		}
	})
}
