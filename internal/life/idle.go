package life

import (
	"fmt"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// idleLooks is how many looks in a row have to find the same before --idle stops the command. fini looks after each
// eighth of that time, so even a long sleep of the machine counts as one look.
const idleLooks = 8

// lookIdle is the time from one look to the next.
func (p Policy) lookIdle() time.Duration { return max(p.Idle/idleLooks, tick) }

// A standstill is what the looks of --idle have shown.
type standstill struct {
	sum   uint64 // of the last look, see orphans.Traffic
	looks int    // in a row that found the same sum
	said  bool   // fini has said why it can't tell
}

type (
	measure  struct{} // what the processes with standard input have read and written; answered by measured
	measured struct {
		orphans.Traffic
		unread int // bytes of standard input
		err    error
	}
)

func (measure) do(l *Loop) {
	traffic, err := l.Traffic()
	l.queue = append(l.queue, measured{Traffic: traffic, unread: l.Unread(), err: err})
}

// measured counts a look of --idle. A command that is suspended, or can't be looked at, is not idle, and neither is one
// with something to read.
func (l *ladder) measured(now time.Duration, e measured) (do []action) {
	s := &l.standstill
	if l.rung != running {
		return nil
	}
	if s.looks++; e.err != nil || e.Busy || e.Sum != s.sum || l.isSuspended {
		s.looks = 0
	}
	s.sum = e.Sum
	if e.err != nil && !s.said {
		s.said = true
		do = append(do, say{level: Normal, text: fmt.Sprintf("%v; as long as that is so, --idle has no effect", e.err)})
	}
	if s.looks >= idleLooks && e.unread == 0 {
		return append(do, l.stop(now, stop{why: WentIdle})...)
	}
	return append(do, wake{l.lookIdle()})
}
