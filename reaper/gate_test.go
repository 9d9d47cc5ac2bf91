package reaper

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A gate is waited at until it is open, or a process has ended.
func TestGate(t *testing.T) {
	const opened = "it is opened"
	for name, open := range map[string]func(g *Gate, process Child){
		opened:              func(g *Gate, process Child) { g.Open() },
		"a process is gone": func(g *Gate, process Child) { check(t, unix.PidfdSendSignal(process.FD, unix.SIGKILL, nil, 0)) },
	} {
		g, process := NewGate(), spawned(t, "sleep", "1000")
		passed := make(chan bool)
		go func() { passed <- g.Await(process.FD) }()
		select {
		case <-passed:
			t.Errorf("%s: passed before", name)
		case <-time.After(20 * time.Millisecond): // what must not happen can only be given time to
		}
		open(g, process)
		if got := <-passed; got != (name == opened) {
			t.Errorf("%s: Await = %t", name, got)
		}
	}
}
