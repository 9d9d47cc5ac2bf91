package life

import (
	"syscall"
	"time"
)

// paused is the machine of --pause: there is no command.
type paused struct{ warnReaped bool }

func (p paused) step(_ time.Duration, e event) (do []action, next Machine) {
	switch e := e.(type) {
	case received:
		if e.sig == syscall.SIGTERM || e.sig == syscall.SIGINT {
			return []action{exit{}}, nil
		}
	case stop:
		if e.why.overrules() {
			return []action{exit{}}, nil
		}
	case ended:
		do, _ = sortExits(e.exits, 0, p.warnReaped)
	}
	return do, p
}
