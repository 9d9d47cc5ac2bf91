package host

import (
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// What one process of a pair says arrives in the other complete; the hang-up comes behind it.
func TestSocket(t *testing.T) {
	near, far := check.Socketpair(t)
	inner, outer := socketOf(near), socketOf(far)
	messages, open := outer.Receive()
	check.Equal(t, "nothing was said, and it is open", len(messages) == 0 && open, true)
	inner.Starting()
	inner.Started(7, true, -1)
	inner.Done(3 << 8)
	_ = near.Close()
	messages, open = outer.Receive()
	check.Equal(t, "the messages", messages,
		[]entry.Message{{Kind: entry.Starting}, {Kind: entry.Started, Value: 7, InJob: true}, {Kind: entry.Done, Value: 3 << 8}})
	check.Equal(t, "it is open", open, false)
}

func socketOf(end *os.File) Socket { return Socket{int(end.Fd())} }
