package life

import (
	"syscall"
	"time"
)

// paused is the machine of --pause. There is no command, so the processes that fini inherits are its leftovers, and it
// stops them as it does after a command has exited.
//
//	state    event   where it leads
//	pausing  signal  the sweep, at SIGTERM or SIGINT
//	         stop    the sweep, if the reason overrules --orphans
type paused struct {
	Rules
	*records
}

func (p paused) step(now time.Duration, e event) (do []action, next Machine) {
	p.OrphansGrace = p.Grace // these are no leftovers of a command
	switch e := e.(type) {
	case Signal:
		if sig := p.rewritten(e.Signal); sig == syscall.SIGTERM || sig == syscall.SIGINT {
			return newSweep(p.Rules, p.records).begin(now, true, noMain{})
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
