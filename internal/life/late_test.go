package life

import (
	"slices"
	"testing"
	"time"
)

// A noting machine notes its events and decides nothing.
type noting struct {
	events   *[]event
	stopping bool
}

func (n noting) step(_ time.Duration, e event) ([]action, Machine) {
	*n.events = append(*n.events, e)
	return nil, n
}

func (n noting) stops() bool { return n.stopping }

// What a freezer takes of a stop's wait is given back, to the machine's deadline and to the next wake alike: until a whole grace
// was given back, and in no other wait.
func TestTimeIsGivenBack(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		stopping bool
		now      []time.Duration
		want     []event
		wake     time.Duration
	}{
		"in time":         {true, []time.Duration{shortSlice}, nil, 10 * s},
		"late":            {true, []time.Duration{shortSlice + s}, []event{late{s}}, 11 * s},
		"late twice":      {true, []time.Duration{shortSlice + s, 2*shortSlice + 3*s}, []event{late{s}, late{2 * s}}, 13 * s},
		"a grace at most": {true, []time.Duration{shortSlice + 6*s, 2*shortSlice + 7*s}, []event{late{6 * s}}, 16 * s},
		"no stop":         {false, []time.Duration{shortSlice + s}, nil, 10 * s},
	} {
		var events []event
		k := &script{}
		l := newLoop(k, defaults(), mainPid)
		l.machine, l.wake = noting{&events, c.stopping}, 10*s
		for _, k.now = range c.now {
			l.tick()
		}
		if !slices.Equal(events, c.want) || l.wake != c.wake {
			t.Errorf("%s: the machine hears %v, and the wake is at %v; want %v and %v", name, events, l.wake, c.want, c.wake)
		}
	}
	ladder, sweep := newLadder(defaults(), nil), newSweep(defaults(), nil)
	ladder.step(0, late{s})
	sweep.step(0, late{s})
	if ladder.deadline != s || sweep.deadline != s {
		t.Errorf("the deadlines become later by %v and %v, want %v", ladder.deadline, sweep.deadline, s)
	}
}
