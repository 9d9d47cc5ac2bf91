package rig

import (
	"testing"
	"time"
)

// size is what a fini takes that must not grow.
type size struct {
	Threads string
	fds     int
}

func SizeOf(t testing.TB, pid int) size {
	t.Helper()
	return size{ProcStatus(pid, "Threads"), CountFDs(t, pid)}
}

// Sizes are those of fini, or of both of the pair.
func (l *Life) Sizes() [2]size {
	l.T.Helper()
	return [2]size{SizeOf(l.T, l.PID()), SizeOf(l.T, l.Worker())}
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
