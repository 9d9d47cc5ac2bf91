package promises

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// Promise 6, Transparent: the command sees the environment, directory, umask, limits, priority, ignored and blocked signals
// that it would see without fini. At a terminal every key works as without fini.
func TestTransparent(t *testing.T) {
	t.Parallel()
	const surroundings = `cd /tmp; umask 027; ulimit -n 99; ulimit -c 0; trap "" HUP USR1; export WORD="a  word" EMPTY=; exec nice -n 3 "$@"`
	const asks = `env | sort; pwd; umask; ulimit -a; nice; ls /proc/self/fd | wc -l; grep -E "^(SigBlk|SigIgn|Uid|Gid|Groups|NoNewPrivs)" /proc/self/status`
	run := func(t *testing.T, fini ...string) string {
		argv := append([]string{"-c", surroundings, "sh"}, append(fini, "sh", "-c", asks)...)
		status, out, stderr := rig.Ask(t, exec.Command("sh", argv...))
		return fmt.Sprintf("%sstatus %d, stderr %q", out, status, stderr)
	}
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			if want, got := run(t), run(t, p.Command("--").Args...); got != want {
				t.Errorf("under fini the command sees\n%s\nand without fini\n%s", got, want)
			}
			// At a terminal: a line reaches the command, Ctrl-Z suspends it, fg continues it, and Ctrl-C ends it.
			const command = ` sh -c 'trap "echo goes on" CONT; echo ready; read x; echo got $x; while :; do sleep 0.05; done'`
			l, screen, keys := pty.Start(t, exec.Command("bash", "--norc", "--noediting", "-i"))
			for _, step := range []struct{ typed, shows string }{
				{`stty -echo; PS1='\nstatus $?\n'` + "\n", "status 0"},
				{p.Command("--").String() + command + "\n", "ready"},
				{"a line\n", "got a line"},
				{"\x1a", "status 148"},
				{"fg\n", "goes on"},
				{"\x03", "status 130"},
			} {
				_, _ = io.WriteString(keys, step.typed)
				screen.Want(step.shows)
			}
			_, _ = io.WriteString(keys, "exit 0\n")
			l.MustEnd(0)
		})
	}
}
