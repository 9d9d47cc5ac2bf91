package life

import (
	"time"

	"github.com/seed-126c5d8a/fini/signals"
)

// paused is the machine of --pause. There is no command. The processes that fini inherits are treated like the
// leftovers of a command.
//
//	state    event   where it leads
//	pausing  signal  the sweep, if the signal ends the pause: see requestOf. PID 1 ignores signals from inside
//	         stop    the sweep, if the reason overrules --orphans
type paused struct {
	Rules
	*records
}

func (p paused) step(now time.Duration, e event) (do []action, next Machine) {
	p.OrphansGrace = p.Grace // --orphans-grace is for leftovers of a command
	switch e := e.(type) {
	case Signal:
		switch request := p.requestOf(e); {
		case request&endsPause != 0: // stops everything that fini has inherited, even with --orphans=wait
			return newSweep(p.Rules, p.records).begin(now, false, noMain{},
				say{level: Normal, text: "ending the pause: " + signals.Name(e.Signal)})
		case request == ignoredFromInside:
			return p.ignore(e), p
		}
	case listed:
		return whom(p).onListed(now, e), p
	case looked:
		return whom(p).stopOrphans(now, e), p
	case stop:
		if e.why.overrules() {
			p.Orphans = StopAll
			return newSweep(p.Rules, p.records).begin(now, false, noMain{},
				say{level: Normal, text: "ending the pause", why: e.why})
		}
	}
	return nil, p
}

// ignore counts ignored signals. It warns only about the first, because each `kill 1` has a different sender.
func (r *records) ignore(got Signal) (do []action) {
	if r.ignored++; r.ignored == 1 {
		return []action{ignore{got}}
	}
	return nil
}

func (paused) stops() bool { return false }

func (paused) waitEnd() (*time.Duration, time.Duration, time.Duration) { return nil, 0, 0 }
