// Package rest tells whether a fini is at rest, by how often the kernel has put it on a processor.
package rest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Finis are both of a pair, or the one.
func Finis(l *rig.Life) []int {
	if worker := l.Worker(); worker != l.PID() {
		return []int{l.PID(), worker}
	}
	return []int{l.PID()}
}

// Switches adds up how often the threads of processes were put on a processor.
func Switches(t testing.TB, pids []int) (sum int) {
	t.Helper()
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("process %d has no threads: %v", pid, err)
		}
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for line := range strings.Lines(string(text)) {
				if _, count, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok { // nonvoluntary too
					n, err := strconv.Atoi(strings.TrimSpace(count))
					rig.NoError(t, err)
					sum += n
				}
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
// e2e/ran.
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
