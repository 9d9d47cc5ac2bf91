package life

import "time"

// paused is the machine of --pause. There is no command, so the processes that fini inherits are its leftovers, and it
// stops them as it does after a command has exited.
//
//	state    event   where it leads
//	pausing  signal  the sweep, at a signal that ends the pause: see asks
//	         stop    the sweep, if the reason overrules --orphans
type paused struct {
	Rules
	*records
}

func (p paused) step(now time.Duration, e event) (do []action, next Machine) {
	p.OrphansGrace = p.Grace // these are no leftovers of a command
	switch e := e.(type) {
	case Signal:
		if p.asks(e)&endsPause != 0 { // which asks what is inherited to end, even under --orphans=wait
			return newSweep(p.Rules, p.records).begin(now, false, noMain{})
		}
	case stop:
		if e.why.overrules() {
			p.Orphans = StopAll
			return newSweep(p.Rules, p.records).begin(now, false, noMain{}, say{level: Normal, text: "ending the pause", why: e.why})
		}
	}
	return nil, p
}

func (paused) stops() bool { return false }
