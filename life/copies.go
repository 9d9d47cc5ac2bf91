package life

import (
	"syscall"
	"time"
)

// copies recognises the second copy of a signal. Who signals fini may signal both processes of a pair, as pkill(1)
// does: then one copy comes directly, and the other one is relayed by the outer fini.
type copies struct {
	seen map[copyKey]time.Duration
}

type copyKey struct {
	sig     syscall.Signal
	sender  int
	relayed bool
}

// second reports whether a signal is the copy of one that came the other way.
func (c *copies) second(now time.Duration, sig syscall.Signal, sender int, relayed bool) bool {
	if c == nil || sender == 0 {
		return false
	}
	if at, ok := c.seen[copyKey{sig, sender, !relayed}]; ok {
		delete(c.seen, copyKey{sig, sender, !relayed})
		if now-at <= sameEnd {
			return true
		}
	}
	if c.seen == nil || len(c.seen) > 100 { // most senders send one signal
		c.seen = map[copyKey]time.Duration{}
	}
	c.seen[copyKey{sig, sender, relayed}] = now
	return false
}
