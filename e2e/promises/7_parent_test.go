package promises

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 7, Parent's death: when the parent process dies, fini stops the tree, under every --orphans policy.
func TestParentsDeath(t *testing.T) {
	t.Parallel()
	const tree = `trap "" TERM; setsid sleep 1000 & echo ready; while :; do sleep 1000; done` // it is deaf to SIGTERM
	for _, policy := range []string{"stop", "pipes", "wait", "leave"} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} { // the parent of a PID 1 is outside of its namespace
			t.Run(p.Name+"/"+policy, func(t *testing.T) {
				t.Parallel()
				end, held := rig.Pipe(t) // each process of the tree inherits the one end, and the test has the other
				fini := p.Command("--grace=200ms", "--linger=0", "--orphans="+policy, "--", "sh", "-c", tree)
				parent := exec.Command("sh", append([]string{"-c", `"$@" & wait`, "sh"}, fini.Args...)...)
				parent.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				parent.ExtraFiles = []*os.File{held}
				stdout, _ := parent.StdoutPipe()
				if err := parent.Start(); err != nil {
					t.Fatal(err)
				}
				_ = held.Close()
				if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
					t.Fatalf("the tree says %q", line)
				}
				_ = parent.Process.Kill() // by SIGKILL, of which the parent can tell nobody
				_, _ = end.Read(make([]byte, 1))
				_ = parent.Wait() // the pipe has ended: no process of the tree is alive
			})
		}
	}
}
