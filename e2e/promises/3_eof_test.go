package promises

import (
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 3, End of file: a reader of the command's output gets the end of file as early as it would without fini, and at
// the latest when fini exits. Before that it can read everything that was written.
func TestEndOfFile(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		read := func(script string) string {
			l := rig.Start(t, p, "--", "sh", "-c", script)
			text := l.Out.Whole() // to the end of file
			_ = l.Stdin.Close()
			l.MustEnd(0)
			return text
		}
		// A process that the command leaves behind, in a session of its own, holds the pipe for a thousand seconds.
		if got := read("echo first; setsid sleep 1000 & echo last"); got != "first\nlast\n" {
			t.Errorf("beside a process that holds stdout the reader gets %q", got)
		}
		// A command closes its stdout and goes on until its stdin ends, which is after the reader had the end of file.
		if got := read("echo all; exec >&-; read line || exit 0"); got != "all\n" {
			t.Errorf("of a command that closes stdout the reader gets %q", got)
		}
	})
}
