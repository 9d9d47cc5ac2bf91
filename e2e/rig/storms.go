package rig

import (
	"strconv"
	"testing"
	"time"
)

// Size is what a fini takes that must not grow.
type Size struct{ threads, fds int }

func sizeOf(t testing.TB, pid int) Size {
	t.Helper()
	threads, _ := strconv.Atoi(ProcStatus(pid, "Threads"))
	return Size{threads, CountFDs(t, pid)}
}

// Within reports whether s is no more than another. On a busy machine the runtime of an idle fini may have
// one thread more than its five.
func (s Size) Within(o Size) bool { return s.threads <= max(o.threads, 6) && s.fds <= o.fds }

// Sizes are those of fini, or of both of the pair.
func (l *Life) Sizes() [2]Size {
	l.T.Helper()
	return [2]Size{sizeOf(l.T, l.PID()), sizeOf(l.T, l.Worker())}
}

// Next waits longer than the patience for a line.
func (l *Life) Next(t testing.TB, want string, long time.Duration) {
	t.Helper()
	select {
	case line := <-l.Out.C:
		if line != want {
			t.Fatalf("%q instead of %q", line, want)
		}
	case <-time.After(Patience + long):
		t.Fatalf("no line %q", want)
	}
}
