package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A clean command adds no wait. The machine's noise only ever adds: on a busy one
// there are more rounds.
func TestCleanCommandAddsNoWait(t *testing.T) {
	serial(t, "it measures milliseconds")
	inPlaces(t, func(t *testing.T, p place) {
		best := time.Hour
		for end := time.Now().Add(patience); best > 20*time.Millisecond && time.Now().Before(end); {
			cmd := p.command(append([]string{"--"}, mode("clock")...)...)
			status, stdout, _ := ask(t, cmd)
			after := monotonic()
			var before int64
			if _, err := fmt.Sscanf(stdout, "now %d", &before); err != nil || status != 0 {
				t.Fatalf("status %d, %q: %v", status, stdout, err)
			}
			best = min(best, time.Duration(after-before))
		}
		t.Logf("main child's end to fini's end: %v", best)
		if best > 20*time.Millisecond {
			t.Errorf("fini ended %v after its command, want at most 20ms", best)
		}
	})
}

// A launcher that starts and stops fini many times keeps its descriptors and has no
// zombies; each status is right.
func TestManyLives(t *testing.T) {
	serial(t, "it counts this process's descriptors and children")
	fds, children := countFDs(t, os.Getpid()), len(childrenOf(t, os.Getpid()))
	for i := range quickOrFull(100, 1000) {
		if out, err := exec.Command(finiPath, "--", "/bin/true").CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("run %d: %v, %q", i, err, out)
		}
	}
	for i := range quickOrFull(30, 200) {
		want := 128 + 15
		script := "echo ready; exec sleep 1000"
		if i%2 == 1 {
			want, script = i, "trap 'exit "+strconv.Itoa(i)+"' TERM; echo ready; while :; do sleep 0.01; done"
		}
		cmd := exec.Command(finiPath, "--", "/bin/sh", "-c", script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		newLines(t, out).want("ready")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := shellStatus(cmd.ProcessState); got != want {
			t.Fatalf("cycle %d: status %d, want %d", i, got, want)
		}
	}
	if got := countFDs(t, os.Getpid()); got != fds {
		t.Errorf("%d descriptors after, %d before", got, fds)
	}
	if got := len(childrenOf(t, os.Getpid())); got != children {
		t.Errorf("%d children after, %d before", got, children)
	}
}
