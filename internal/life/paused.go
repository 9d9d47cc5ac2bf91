package life

import (
	"syscall"
	"time"
)

// paused is the machine of --pause. There is no command: what other processes leave to fini are its leftovers, and they
// are stopped as behind a command that has exited.
type paused struct{ Rules }

func (p paused) step(now time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case received:
		if sig := p.rewritten(e.sig); sig == syscall.SIGTERM || sig == syscall.SIGINT {
			return newSweep(p.Rules).begin(now, true, noMain{})
		}
	case stop:
		if e.why.overrules() {
			p.Orphans = StopAll
			return newSweep(p.Rules).begin(now, false, noMain{}, say{Warning, "ending the pause", e.why})
		}
	case ended:
		do, _ = sortExits(e.exits, 0, p.WarnReaped)
	}
	return do, p
}

func (paused) stops() bool { return false }
