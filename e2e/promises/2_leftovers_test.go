package promises

import (
	"bufio"
	"io"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 2, Nothing left: when fini exits, no process of the tree is alive, even if it called setsid, forked twice or
// ignores SIGTERM.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	const script = `
		setsid sh -c 'trap "" TERM; echo in a session of its own, deaf to SIGTERM; sleep 1000; sleep 1000' &
		sh -c '(setsid sh -c "echo forked twice; exec sleep 1000" &)'
		(echo in the background; exec sleep 1000) &
		read line # until all of them are there
		exit 5`
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		end, held := rig.Pipe(t) // each process of the tree inherits the one end, and the test has the other
		cmd := p.Command("--grace=300ms", "--", "sh", "-c", script)
		cmd.ExtraFiles = []*os.File{held}
		stdin, _ := cmd.StdinPipe()
		stdout, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = held.Close()
		for out, n := bufio.NewScanner(stdout), 0; n < 3 && out.Scan(); n++ {
		}
		_, _ = io.WriteString(stdin, "all are there\n")
		_ = cmd.Wait()
		if rig.HeldOpen(end) {
			t.Error("fini has exited, and a process of the tree still holds its end of the pipe")
		}
		if code := cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("status %d, want the command's 5", code)
		}
	})
}
