// Package rest tells whether a fini is at rest, by how often the kernel has put it on a processor.
package rest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// Finis are both of a pair, or the one.
func Finis(l *rig.Life) []int { return slices.Compact([]int{l.PID(), l.Worker()}) }

// Switches adds up how often the threads of processes were put on a processor.
func Switches(t testing.TB, pids []int) (sum int) {
	t.Helper()
	for _, pid := range pids {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		rig.NoError(t, err)
		for _, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			for _, kind := range []string{"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"} {
				n, _ := strconv.Atoi(procfs.Status(tid, kind))
				sum += n
			}
		}
	}
	return sum
}

// Settled waits until processes have nothing left to do.
func Settled(t testing.TB, pids []int) {
	t.Helper()
	last, since := -1, time.Now()
	rig.Until(t, fmt.Sprintf("processes %v are at rest", pids), func() bool {
		if now := Switches(t, pids); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

// Typically takes a measurement that a busy machine disturbs, up to three times. That it was taken again is counted: see
// tools/ran.
func Typically(t testing.TB, what string, measure func() (ok bool, found string)) {
	t.Helper()
	for try := 1; ; try++ {
		ok, found := measure()
		if ok {
			t.Logf("%s: %s", what, found)
			return
		}
		if try == 3 {
			t.Errorf("three times not so: %s: %s", what, found)
			return
		}
		t.Logf("TRIED AGAIN: %s: %s", what, t.Name())
		t.Log(found)
	}
}

// MustSleep asserts that processes which are at rest are not put on a processor for three seconds. The Go runtime looks at
// the clock once in a minute, and a machine may stop a process once to look at it.
func MustSleep(t testing.TB, pids []int) {
	t.Helper()
	Typically(t, "asleep for three seconds", func() (bool, string) {
		before := Switches(t, pids)
		time.Sleep(3 * time.Second)
		woken := Switches(t, pids) - before
		return woken == 0, fmt.Sprintf("put on a processor %d times", woken)
	})
}

// MustWake asserts that the thread which waits in a process that is at rest wakes up once in each period, and no more often.
func MustWake(t testing.TB, pid int, period time.Duration) {
	t.Helper()
	wakes := func() int {
		n, _ := strconv.Atoi(procfs.Status(pid, "voluntary_ctxt_switches"))
		return n
	}
	Typically(t, "wakes up once in each period", func() (bool, string) {
		before, since := wakes(), time.Now()
		time.Sleep(10 * period)
		woken, want := wakes()-before, int(time.Since(since)/period)
		return woken >= want-1 && woken <= want+1, fmt.Sprintf("woke up %d times, want %d", woken, want)
	})
}
