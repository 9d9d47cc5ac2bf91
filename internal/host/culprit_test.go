package host

import (
	"testing"

	"github.com/seed-126c5d8a/fini/internal/life"
)

// The line of a stop names the process whose exit is the reason, if it is known which one that is.
func TestCulprit(t *testing.T) {
	parent, first := bond{pid: 7, name: "make", why: life.ParentDied}, bond{pid: 8, name: "server", why: life.BoundEnded}
	second := bond{pid: 9, why: life.BoundEnded, ended: true}
	for want, c := range map[string]struct {
		bonds []bond
		why   life.Reason
	}{
		"its parent (make, 7) has died; -p none keeps it": {[]bond{first, parent}, life.ParentDied},
		"its parent has died; -p none keeps it":           {[]bond{first}, life.ParentDied},
		"a process of --bind (?, 9) exited":               {[]bond{first, second}, life.BoundEnded},
		"a process of --bind exited":                      {[]bond{parent, first}, life.BoundEnded},
	} {
		if got := (&kernel{bonds: c.bonds}).because(c.why); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
