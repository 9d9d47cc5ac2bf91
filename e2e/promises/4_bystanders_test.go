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
	// Signals that would end the shell and the rest of its pipeline make them speak instead. The command of fini, which is
	// "$@", leaves one process in its own group, and one that has left that.
	const script = `
		trap "echo the shell is hit" HUP INT TERM USR1 USR2
		sh -c 'sleep 1000 >/dev/null & echo earlier child $!; exec "$@"' sh "$@" |
			(trap "echo the rest of the pipeline is hit" HUP INT TERM USR1 USR2; while read line; do echo "$line"; done)
		echo the shell goes on`
	for _, p := range []rig.Place{rig.Pair, rig.Alone} { // as PID 1 it would have nobody else beside it
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			fini := p.Command("--grace=100ms", "--linger=0", "--", "sh", "-c", "setsid sleep 1000 & sleep 1000 & echo the command").Args
			l := rig.StartCmd(t, exec.Command("sh", append([]string{"-c", script, "sh"}, fini...)...))
			earlier := l.Out.WantPID("earlier child ")
			l.Out.Want("the command")
			rig.MustRecord(t, "the shell says", l.Out.Rest(), "the shell goes on") // fini has ended, and the pipeline with it
			if err := syscall.Kill(earlier, syscall.SIGKILL); err != nil {
				t.Fatalf("the child that fini's process had before it executed fini: %v", err)
			}
			rig.Until(t, "nothing of all this is alive", func() bool { return rig.HungUp(l.Witness) })
			l.MustEnd(0)
		})
	}
}
