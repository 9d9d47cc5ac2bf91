package life

import (
	"syscall"
	"time"
)

// copies finds what came twice: a sender that means fini may send the same signal to both
// processes of a pair, and one of the two copies comes by way of the other process.
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
	if c == nil {
		return false
	}
	if sender == 0 {
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
