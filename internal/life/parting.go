package life

import (
	"fmt"
	"syscall"
	"time"
)

// parting is the last machine of PID 1 if this process had children before it executed fini, as in `worker & exec fini
// -- cmd`. They are not leftovers, so nothing has waited for them. But when PID 1 exits, the kernel kills every process
// in the namespace. Therefore parting sends SIGTERM to these children and their descendants, and waits for them.
//
//	state    event    where it leads
//	parting  reaped   over, if no child is left
//	         looked   over, if none of them is left
//	         elapsed  over, after --orphans-grace
//	         signal   over, at a second SIGINT
type parting struct {
	Rules
	*records
	end         End // the outcome of the life
	deadline    time.Duration
	pause       time.Duration // time until the next look
	interrupted bool          // a first SIGINT has arrived
}

func newParting(r Rules, known *records, end End) *parting {
	return &parting{Rules: r, records: known, end: end, pause: shortPause}
}

func (p *parting) step(now time.Duration, e event) (do []action, next Machine) {
	over := false
	switch e := e.(type) {
	case Signal:
		interrupts := p.rewritten(e.Signal) == syscall.SIGINT
		over = interrupts && p.interrupted
		p.interrupted = p.interrupted || interrupts
	case reaped:
		if over = e.none; !over {
			do = append(do, hurry{shortPause})
		}
	case elapsed:
		if over = now >= p.deadline; !over {
			do = append(do, look{})
		}
	case looked:
		do, over = p.ask(now, e)
	case late:
		p.deadline += e.by
	}
	if over {
		return []action{exit{p.end}}, nil
	}
	return do, p
}

// ask sends SIGTERM to each of these processes once. It also reports whether there are none.
func (p *parting) ask(now time.Duration, e looked) (do []action, none bool) {
	if p.deadline == 0 {
		p.deadline = now + p.OrphansGrace
	}
	none = true
	for _, q := range e.Found {
		if !q.Inherited {
			continue
		}
		none = false
		if _, asked := p.of(q).wasSent(syscall.SIGTERM); asked {
			continue
		}
		do = append(do, say{level: Detail, text: fmt.Sprintf("stopping %d (%s), from before fini", q.Pid, q.Name)},
			signalLeftover{process: q, sig: syscall.SIGTERM})
		if q.State == 'T' {
			do = append(do, signalLeftover{process: q, sig: syscall.SIGCONT})
		}
	}
	after := min(p.pause, max(p.deadline-now, 0))
	p.pause = min(2*p.pause, longPause)
	return append(do, wake{after}), none
}

func (*parting) stops() bool { return true }

func (p *parting) waitEnd() (end *time.Duration, keeps, waits time.Duration) {
	return &p.deadline, 1, 1
}
