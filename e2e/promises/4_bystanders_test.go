package promises

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 4, Nobody else: fini signals no process except the command and its descendants. That spares a shell that shares
// the output pipe, the rest of a pipeline, and a child that fini's process had before it executed fini.
func TestNobodyElse(t *testing.T) {
	t.Parallel()
	// Signals that would end the shell and its pipeline make them speak instead. What "$@" is, fini with its command,
	// leaves one process in fini's group, and one that has left it.
	const script = `
		trap "echo the shell is hit" HUP INT TERM USR1 USR2
		(trap "echo the rest of the pipeline is hit" HUP INT TERM USR1 USR2; cat) < /dev/null &
		sh -c 'sleep 1000 & echo earlier child $!; exec "$@"' sh "$@" | cat
		echo the shell goes on`
	for _, p := range []rig.Place{rig.Pair, rig.Alone} { // as PID 1 it would have nobody else beside it
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			fini := p.Command("--grace=100ms", "--linger=0", "--", "sh", "-c", "setsid sleep 1000 & sleep 1000 & echo the command").Args
			l := rig.StartCmd(t, exec.Command("sh", append([]string{"-c", script, "sh"}, fini...)...))
			earlier := l.Out.WantPID("earlier child ")
			l.Out.Want("the command")
			rig.MustStay(t, "the child that fini's process had before it executed fini", earlier)
			if err := syscall.Kill(earlier, syscall.SIGKILL); err != nil { // the pipeline waits for it
				t.Fatal(err)
			}
			rig.MustRecord(t, "the shell says", l.Out.Rest(), "the shell goes on")
			l.MustEnd(0) // nothing of all this is alive
		})
	}
}
