package life

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// What was there before fini is asked at the very end, once, with what descends from it, and has --orphans-grace. Nothing else is
// asked then.
func TestParting(t *testing.T) {
	worker := orphans.Process{Pid: 50, Parent: 1, PGID: 50, Name: "worker", State: 'S', Start: 10 * ms, Inherited: true}
	stopped := orphans.Process{Pid: 51, Parent: 50, PGID: 50, Name: "stopped", State: 'T', Start: 10 * ms, Inherited: true}
	const asksWorker = "worker<-15, "
	for name, turns := range map[string][]turn{
		"it exits": {
			{0, found(worker, stopped, escapee), asksWorker + "stopped<-15, stopped<-18, wake 5ms", "parting"},
			{5 * ms, sees(elapsed{}, found(worker, escapee)), "wake 10ms", "parting"},
			{9 * ms, reap(true, worker.Pid), "exit 3", "over"},
		},
		"its parent exits": {
			{0, found(worker, escapee), asksWorker + "wake 5ms", "parting"},
			{3 * ms, reap(false, worker.Pid), "hurry 5ms", "parting"},
			{8 * ms, sees(elapsed{}, found(escapee)), "exit 3", "parting, over"},
		},
		"it stays": {
			{0, found(worker), asksWorker + "wake 5ms", "parting"},
			{4999 * ms, sees(elapsed{}, found(worker)), "wake 1ms", "parting"},
			{5000 * ms, elapsed{}, "exit 3", "over"},
		},
		"a freeze": {
			{0, found(worker), asksWorker + "wake 5ms", "parting"},
			{100 * ms, late{95 * ms}, "", "parting"},
			{5094 * ms, sees(elapsed{}, found(worker)), "wake 1ms", "parting"},
			{5095 * ms, elapsed{}, "exit 3", "over"},
		},
		"Ctrl-C, twice": {
			{0, found(worker), asksWorker + "wake 5ms", "parting"},
			{1, signal(syscall.SIGINT), "", "parting"},
			{2, signal(syscall.SIGTERM), "", "parting"},
			{3, signal(syscall.SIGINT), "exit 3", "over"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(&script{}, defaults(), mainPid, false)
			l.machine = newParting(defaults(), l.records, End{Result: Result{Code: 3}})
			play(t, l, turns)
		})
	}
}
