package life

import (
	"fmt"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// idleLooks is the number of looks in a row that must find no change before --idle stops the command. fini divides the
// time of --idle by this number to get the interval, so a suspension of the machine counts as only one look.
const idleLooks = 8

// lookIdle returns the time between two looks.
func (p Policy) lookIdle() time.Duration { return max(p.Idle/idleLooks, tick) }

// A standstill counts how long nothing has changed.
type standstill struct {
	sum   uint64 // traffic at the last look: see orphans.Traffic
	looks int    // number of looks in a row with the same sum
	said  bool   // a message about a failed look has been written
}

type (
	measure  struct{} // asks how much the processes with standard input have read and written; measured is the result
	measured struct {
		orphans.Traffic
		unread int // bytes of stdin that the command has not read
		err    error
	}
)

func (measure) do(l *Loop) {
	traffic, err := l.Traffic()
	l.queue = append(l.queue, measured{Traffic: traffic, unread: l.Unread(), err: err})
}

// onMeasured decides whether the command is idle. A command does not count as idle if it is suspended, if fini can't
// look at it, or if there is something for it to read.
func (l *ladder) onMeasured(now time.Duration, e measured) (do []action) {
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
		do = append(do, say{level: Normal, text: fmt.Sprintf("%v; --idle has no effect until this changes", e.err)})
	}
	if s.looks >= idleLooks && e.unread == 0 {
		return append(do, l.onStop(now, stop{why: WentIdle})...)
	}
	return append(do, wake{l.lookIdle()})
}
