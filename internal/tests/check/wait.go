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

// Enough limits a wait in a test that fails, on an idle machine: what never comes is red within half a minute. No test
// relies on it to pass, and on a machine that is late a Wait allows more.
const Enough = 25 * time.Second

// others is what takes the place of Enough where a test waits for others: an engine that starts a container, a browser, or a
// garbage collection in Node, may take minutes.
const others = 3 * time.Minute

// Patience limits what a test gives to others, such as a timeout of theirs, and what a Wait allows beyond that if a machine
// is late.
const Patience = 5 * time.Minute

var least time.Duration

// WaitForOthers makes all waits of this process long enough for what is not fini's, but for those that are short on purpose.
func WaitForOthers() { least = others }

// A Wait measures how long a test would have waited on a machine of its own.
type Wait struct {
	began, last time.Time
	Used        time.Duration
}

// Over reports whether a wait has exceeded the time that it may take on an idle machine, or on this one if that is late.
// Call it every 100 ms: if a call comes later than that, so may what the test waits for.
func (w *Wait) Over(within time.Duration) bool {
	now := time.Now()
	if w.began.IsZero() {
		w.began, w.last = now, now
	}
	w.Used += time.Duration(float64(min(now.Sub(w.last), 150*time.Millisecond)) / late())
	w.last = now
	if within >= Enough {
		within = max(within, least)
	}
	return w.Used > within || now.Sub(w.began) > max(within, others)+Patience
}

// EnoughNow is how long a wait may take at the moment.
func EnoughNow() time.Duration {
	return min(time.Duration(late()*float64(max(Enough, least))), others+Patience)
}

// late is how much longer something takes now than on an idle machine, at most 20 times. If two threads per processor want to
// run, it takes twice as long; if four do, eight times, because each of several processes in turn has to wait for its time;
// or if it waits for the disk; and all of that longer on a slow machine.
func late() float64 {
	busy := busyness()
	return min(20, max(1, slowness())*max(1, busy, busy*busy/2, stalled()))
}

// busyness returns how many threads per processor currently want to run.
func busyness() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var a, b, c string
	var running float64
	_, _ = fmt.Sscanf(strings.ReplaceAll(string(text), "/", " "), "%s %s %s %f", &a, &b, &c, &running)
	return running / float64(runtime.NumCPU())
}

// stalled returns how much longer a process takes that waits for a disk, or for memory, as those of the last ten seconds had
// to: see PSI in proc(5).
func stalled() float64 {
	most := 0.0
	for _, what := range []string{"io", "memory"} {
		var percent float64
		text, _ := os.ReadFile("/proc/pressure/" + what)
		_, _ = fmt.Sscanf(string(text), "some avg10=%f", &percent)
		most = max(most, percent)
	}
	return 100 / max(5, 100-most)
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
