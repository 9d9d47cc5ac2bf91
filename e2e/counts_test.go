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

func TestOrphansAreReapedAndFiniDoesNotGrow(t *testing.T) {
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, append([]string{"--"}, mode("orphans", "1")...)...)
		l.Out.want("made")
		fini := l.worker()
		threads, fds := procStatus(fini, "Threads"), countFDs(t, fini)

		made := make(chan struct{})
		go func() { l.Out.want("made"); close(made) }()
		write(t, l, "1000\n")
		oldest := watchZombies(t, fini, made)
		if oldest > 100*time.Millisecond {
			t.Errorf("a zombie was there for %v", oldest)
		}
		if got := procStatus(fini, "Threads"); got != threads {
			t.Errorf("%s threads after 1000 more orphans, %s before", got, threads)
		}
		if got := countFDs(t, fini); got != fds {
			t.Errorf("%d descriptors after 1000 more orphans, %d before", got, fds)
		}
		_ = l.Stdin.Close()
		l.mustEnd(0)
	})
}

// watchZombies looks at the children of pid until done, and then until no zombie is
// left, and returns for how long the oldest zombie was seen.
func watchZombies(t *testing.T, pid int, done <-chan struct{}) (oldest time.Duration) {
	since := map[int]time.Time{}
	over := false
	until(t, "all orphans reaped", func() bool {
		select {
		case <-done:
			over = true
		default:
		}
		zombies := map[int]time.Time{}
		for _, child := range childrenOf(t, pid) {
			if state := procStatus(child, "State"); state == "" || state[0] != 'Z' {
				continue
			}
			first, known := since[child]
			if !known {
				first = time.Now()
			}
			zombies[child] = first
			oldest = max(oldest, time.Since(first))
		}
		since = zombies
		return over && len(zombies) == 0
	})
	return oldest
}

// A clean command adds no wait. The best of some rounds is taken: the machine's noise
// only ever adds.
func TestCleanCommandAddsNoWait(t *testing.T) {
	inPlaces(t, func(t *testing.T, p place) {
		best := time.Hour
		for range 10 {
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
	fds, children := countFDs(t, os.Getpid()), len(childrenOf(t, os.Getpid()))
	for i := range 1000 {
		if out, err := exec.Command(finiPath, "--", "/bin/true").CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("run %d: %v, %q", i, err, out)
		}
	}
	for i := range 200 {
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
