package check

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience limits a wait in a test that fails, even on a very slow machine. No test relies on it to pass.
const Patience = 5 * time.Minute

// Enough limits a wait in a test that fails, on a machine that is not busy. Things that a test is not about, such as a
// garbage collection in Node, may take up to a minute.
const Enough = 3 * time.Minute

// A Wait measures how long a test would have waited on a machine of its own.
type Wait struct {
	began, last time.Time
	used        time.Duration
}

// Over reports whether a wait has exceeded the time that it may take on a machine that is not busy. If three processes
// per processor want to run, it allows three times as long, and on a slow machine even more, but not longer than
// Patience. Call it a few times per second.
func (w *Wait) Over(within time.Duration) bool {
	now := time.Now()
	if w.began.IsZero() {
		w.began, w.last = now, now
	}
	// Don't count the time during which the machine was suspended.
	w.used += time.Duration(float64(min(now.Sub(w.last), time.Second)) / max(1, slowness(), busyness()))
	w.last = now
	return w.used > within || now.Sub(w.began) > within+Patience
}

// busyness returns how many threads per processor currently want to run.
func busyness() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var a, b, c string
	var running float64
	_, _ = fmt.Sscanf(strings.ReplaceAll(string(text), "/", " "), "%s %s %s %f", &a, &b, &c, &running)
	return running / float64(runtime.NumCPU())
}

// slowness returns how much longer it takes to start a process here than without an emulator.
var slowness = sync.OnceValue(func() float64 {
	took := time.Hour
	for range 3 {
		began := time.Now()
		_ = exec.Command("/bin/true").Run()
		took = min(took, time.Since(began))
	}
	return float64(took) / float64(5*time.Millisecond)
})

// Closed waits until a channel is closed, for Enough at most, and reports whether it is.
func Closed(c <-chan struct{}) bool {
	for w := new(Wait); ; {
		select {
		case <-c:
			return true
		case <-time.After(100 * time.Millisecond):
			if w.Over(Enough) {
				return false
			}
		}
	}
}

// Until waits for a fact that has to be polled.
func Until(t testing.TB, what string, fact func() bool) {
	t.Helper()
	if !Await(Enough, fact) {
		t.Fatalf("never came true: %s", what)
	}
}

// UntilOlder waits until processes that are ready now are older than a tick of 10 ms. In the tick in which a process
// started, it can't be shown to have received a signal.
func UntilOlder(t testing.TB) {
	t.Helper()
	ready := time.Now()
	Until(t, "all are older than a tick", func() bool { return time.Since(ready) > 20*time.Millisecond })
}

// Await polls a fact until it is true or has had enough time on a machine that is not busy. It reports whether it is
// true.
func Await(within time.Duration, fact func() bool) bool {
	w, asked := new(Wait), time.Time{}
	return poll(fact, func() bool {
		if time.Since(asked) < 100*time.Millisecond {
			return false
		}
		asked = time.Now()
		return w.Over(within)
	})
}

// Poll polls a fact until it is true or the limit has passed. It reports whether it is true.
func Poll(limit time.Duration, fact func() bool) bool {
	end := time.Now().Add(limit)
	return poll(fact, func() bool { return time.Now().After(end) })
}

// poll is the only function that sleeps while waiting. It sleeps longer each time, to save work in long waits.
func poll(fact, over func() bool) bool {
	for pause := time.Millisecond; !fact(); time.Sleep(pause) {
		if over() {
			return false
		}
		pause = min(pause+pause/4, 20*time.Millisecond)
	}
	return true
}

// UntilSleeps is a line of a shell script that waits until its last background process is executing sleep(1). Inside
// execve(2), a process has no start time and does not show which streams it holds.
const UntilSleeps = `until test "$(grep -c -e '^Name:.sleep' -e '^State:.S' /proc/$!/status)" = 2; do :; done`
