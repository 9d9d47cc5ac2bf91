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

// Patience ends a failing wait on a machine that is as slow as can be. No test passes because of it.
const Patience = 5 * time.Minute

// Enough ends a failing wait on a machine that is free. What is not itself the subject, such as the garbage collection of
// node, may well take one minute.
const Enough = 3 * time.Minute

// A Wait measures the time that a test would have waited if it had the machine for itself.
type Wait struct {
	began, last time.Time
	used        time.Duration
}

// Over reports whether what takes this long on a free machine has had its time: a busy machine, on which three processes
// wait for each processor, gives it three times as much, and a slow one more. It never takes longer than Patience. It is
// to be asked a few times in a second.
func (w *Wait) Over(within time.Duration) bool {
	now := time.Now()
	if w.began.IsZero() {
		w.began, w.last = now, now
	}
	// A machine that was suspended has taken no time.
	w.used += time.Duration(float64(min(now.Sub(w.last), time.Second)) / max(1, slowness(), busyness()))
	w.last = now
	return w.used > within || now.Sub(w.began) > within+Patience
}

// busyness is how many processes or threads want to run for each processor, at this moment.
func busyness() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var a, b, c string
	var running float64
	_, _ = fmt.Sscanf(strings.ReplaceAll(string(text), "/", " "), "%s %s %s %f", &a, &b, &c, &running)
	return running / float64(runtime.NumCPU())
}

// slowness is how much longer it takes to start a process than on a machine without an emulator.
var slowness = sync.OnceValue(func() float64 {
	took := time.Hour
	for range 3 {
		began := time.Now()
		_ = exec.Command("/bin/true").Run()
		took = min(took, time.Since(began))
	}
	return float64(took) / float64(5*time.Millisecond)
})

// Closed reports whether a channel is closed before what takes Enough has had its time.
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

// Until waits for a fact that can only be polled.
func Until(t testing.TB, what string, fact func() bool) {
	t.Helper()
	if !Await(Enough, fact) {
		t.Fatalf("never came true: %s", what)
	}
}

// UntilOlder waits until what is ready is older than a tick of 10 ms: within the one in which it
// started it may have come after a signal.
func UntilOlder(t testing.TB) {
	t.Helper()
	ready := time.Now()
	Until(t, "all are older than a tick", func() bool { return time.Since(ready) > 20*time.Millisecond })
}

// Await asks for a fact until it is true, or has had the time that it takes on a free machine, and reports which.
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

// Poll asks for a fact until it is true, or the limit has passed, and reports which.
func Poll(limit time.Duration, fact func() bool) bool {
	end := time.Now().Add(limit)
	return poll(fact, func() bool { return time.Now().After(end) })
}

// poll is the one place that sleeps to wait, at first for a short time: what takes long is not asked for all the time.
func poll(fact, over func() bool) bool {
	for pause := time.Millisecond; !fact(); time.Sleep(pause) {
		if over() {
			return false
		}
		pause = min(pause+pause/4, 20*time.Millisecond)
	}
	return true
}

// UntilSleeps is the part of a shell script that waits until its last background process sleeps as sleep(1). A process
// that is still inside execve(2) has no start time, and does not show what it holds.
const UntilSleeps = `until test "$(grep -c -e '^Name:.sleep' -e '^State:.S' /proc/$!/status)" = 2; do :; done`
