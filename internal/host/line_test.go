package host

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
)

// What one process of a pair says arrives in the other whole, with a descriptor; the hang-up comes behind it.
func TestLine(t *testing.T) {
	inner, outer := aLine(t)
	if messages, open := outer.Receive(); len(messages) != 0 || !open {
		t.Errorf("nothing was said: %v, %t", messages, open)
	}
	inner.Starting()
	inner.Started(7, entry.InJob, -1)
	inner.Done(3 << 8)
	_ = unix.Close(inner.FD)
	want := []entry.Message{{Kind: entry.Starting}, {Kind: entry.Started, Value: 7, Job: entry.InJob}, {Kind: entry.Done, Value: 3 << 8}}
	if messages, open := outer.Receive(); !slices.Equal(messages, want) || open {
		t.Errorf("%v, %t, want %v and no more", messages, open, want)
	}
	_ = unix.Close(outer.FD)
}

// aLine is both ends of a line.
func aLine(t *testing.T) (inner, outer Line) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	return Line{ends[0]}, Line{ends[1]}
}
