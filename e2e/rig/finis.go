package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FinisOf are both of a pair, or the one.
func FinisOf(l *Life) []int {
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
					if err != nil {
						t.Fatal(err)
					}
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
	Until(t, fmt.Sprintf("processes %v are at rest", pids), func() bool {
		if now := Switches(t, pids); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}
