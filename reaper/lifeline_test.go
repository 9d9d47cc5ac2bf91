package reaper

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who awaits goes on when it may, and when the writer or another process has ended.
func TestLifelineAwait(t *testing.T) {
	const begins = "it may begin"
	for name, happen := range map[string]func(l Lifeline, process Child){
		begins:               func(l Lifeline, _ Child) { l.Begin() },
		"the writer is gone": func(l Lifeline, _ Child) { check(t, unix.Close(l.Write)) },
		"a process is gone":  func(_ Lifeline, process Child) { check(t, unix.Kill(process.Pid, unix.SIGKILL)) },
	} {
		l, err := NewLifeline()
		check(t, err)
		process := spawned(t, "sleep", "1000")
		if process.FD < 0 && name == "a process is gone" {
			continue
		}
		passed := make(chan bool)
		go func() { passed <- l.Await(process.FD) }()
		select {
		case <-passed:
			t.Errorf("%s: passed before", name)
		case <-time.After(20 * time.Millisecond): // what must not happen can only be given time to
		}
		happen(l, process)
		if got := <-passed; got != (name == begins) {
			t.Errorf("%s: Await = %t", name, got)
		}
	}
}

// What is told is told before the end.
func TestLifelineTold(t *testing.T) {
	l, err := NewLifeline()
	check(t, err)
	l.Begin()
	l.ParentDied()
	check(t, unix.Close(l.Write))
	for i, want := range []bool{true, true, false, false} {
		if got := l.Told(); got != want {
			t.Errorf("Told = %t the %d. time, want %t", got, i+1, want)
		}
	}
}
