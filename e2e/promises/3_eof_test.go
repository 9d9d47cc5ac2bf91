package promises

import (
	"io"
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
			cmd := p.Command("--", "sh", "-c", script)
			stdin, _ := cmd.StdinPipe()
			stdout, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(stdout) // to the end of file
			_ = stdin.Close()
			_ = cmd.Wait()
			return string(text)
		}
		// A process that the command leaves behind, in a session of its own, holds the pipe for a thousand seconds.
		if got := read("echo first; setsid sleep 1000 & echo last"); got != "first\nlast\n" {
			t.Errorf("beside a process that holds stdout the reader gets %q", got)
		}
		// A command closes its stdout and goes on until its stdin ends, which is after the reader had the end of file.
		if got := read("echo all; exec >&-; read line"); got != "all\n" {
			t.Errorf("of a command that closes stdout the reader gets %q", got)
		}
	})
}
