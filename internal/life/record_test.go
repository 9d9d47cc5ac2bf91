package life

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/reaper"
)

// One Record says what a process was sent, and when, whoever has decided that.
func TestRecords(t *testing.T) {
	rules := defaults()
	rules.Linger, rules.KillAfter = 0, 5*time.Second
	l := New(&script{}, rules, mainPid, true)
	below := below(member, 2000*ms)
	for i, c := range []struct {
		turn
		of orphans.Process
		is []Sent // nil for no Record
	}{
		{turn{100 * ms, signal(syscall.SIGUSR1), "command<-10", "running"}, mainChild, []Sent{{10, 100 * ms, true}}},
		{turn{200 * ms, signal(syscall.SIGUSR1), "command<-10", "running"}, mainChild, []Sent{{10, 200 * ms, true}}},
		{turn{300 * ms, signal(syscall.SIGTERM), "command<-15, wake 5s", "stopping"}, mainChild, []Sent{{10, 200 * ms, true}, {15, 300 * ms, true}}},
		{turn{300 * ms, reap(false, 300), "", "stopping"}, orphans.Process{Pid: 300}, nil}, // of which a command may have thousands
		{turn{400 * ms, mainStops(syscall.SIGTSTP), "command<-18", "stopping"}, mainChild, []Sent{{10, 200 * ms, true}, {15, 300 * ms, true}, {18, 400 * ms, true}}},
		{turn{2000 * ms, sees(mainExits(exited(0), false), found(member, sleeping, below)), "(stopping member), (stopping stopped), stopped<-15, stopped<-18, wake 5ms", "asking"},
			member, []Sent{{15, 300 * ms, true}}},
		{turn{2005 * ms, sees(elapsed{}, found(member, sleeping, below)), "wake 10ms", "asking"}, sleeping, []Sent{{15, 2000 * ms, false}, {18, 2000 * ms, false}}},
		{turn{7000 * ms, sees(elapsed{}, found(member, sleeping, below)), "(killing member), (killing stopped), (killing below), kill children", "killing"}, below, []Sent{}},
		{turn{7000 * ms, swept{hit: []int{member.Pid, 300}}, "kill children", "killing"}, member, []Sent{{15, 300 * ms, true}, {9, 7000 * ms, false}}},
		{turn{7001 * ms, reap(false, member.Pid), "hurry 5ms", "killing"}, member, nil},
		{turn{7001 * ms, reap(false), "", "killing"}, orphans.Process{Pid: 300, Start: time.Second}, []Sent{{9, 7000 * ms, false}}},
	} {
		play(t, l, []turn{c.turn})
		got := l.of(c.of)
		if c.of == mainChild {
			got = &l.main
		}
		if (got == nil) != (c.is == nil) || got != nil && !slices.Equal(got.Sent, c.is) {
			t.Errorf("%d, at %v: %+v, want %v", i, c.at, got, c.is)
		}
	}
	if (tell{agent, "leaving", ByName, false, 0}).do(l); l.of(agent) != nil {
		t.Error("one that is left alone has a Record")
	}
}

// A leftover's Record is not that of another process that has its pid.
func TestRecordsOfOnePid(t *testing.T) {
	l := newLoop(&script{}, defaults(), mainPid)
	first := l.leftover(escapee)
	first.note(syscall.SIGTERM, time.Second, false)
	next, unread := escapee, escapee
	next.Start += tick
	unread.Start = 0
	for p, want := range map[orphans.Process]*Record{escapee: first, unread: first, next: nil} {
		check.Equal(t, fmt.Sprintf("the Record of %+v", p.ID()), l.of(p), want)
	}
	check.Equal(t, "the number of signals that the next one has had", len(l.leftover(next).Sent), 0)
}

// Which exits the kernel may have caused because memory ran out.
func TestKillsOfOthers(t *testing.T) {
	killed := func(pids ...int) []reaper.Exit { return exits(signaled(syscall.SIGKILL), pids...) }
	over, toLeftover := noMain{}, signalLeftover{orphans.Process{Pid: 300}, syscall.SIGKILL}
	for what, c := range map[string]struct {
		before []action
		exits  []reaper.Exit
		want   []int
	}{
		"the command":                      {nil, killed(mainPid), []int{mainPid}},
		"the command, by fini":             {[]action{signalCommand{syscall.SIGKILL, true}}, killed(mainPid), nil},
		"after another signal":             {[]action{signalCommand{syscall.SIGTERM, false}}, killed(mainPid), []int{mainPid}},
		"an orphan while it runs":          {nil, killed(300), nil},
		"an orphan that is reaped with it": {nil, killed(300, mainPid), []int{300, mainPid}},
		"leftovers":                        {[]action{over}, killed(300, 301), []int{300, 301}},
		"leftovers, one by fini":           {[]action{over, toLeftover}, killed(300, 301), []int{301}},
		"leftovers, one by a round":        {[]action{over, kill{}}, killed(201, 301), []int{301}},
		"leftovers of a killed group":      {[]action{signalCommand{syscall.SIGKILL, false}, over}, killed(300), nil},
		"a leftover of a killed command":   {[]action{signalCommand{syscall.SIGKILL, true}, over}, killed(300), []int{300}},
		"all, by one call":                 {[]action{over, kill{own: true}}, killed(300), nil},
		"a pid that fini killed once":      {[]action{over, toLeftover}, killed(300, 300), []int{300}},
		"other ends": {[]action{over}, []reaper.Exit{
			{Pid: mainPid, Status: suspended(syscall.SIGKILL)}, {Pid: mainPid, Status: exited(9)},
			{Pid: 300, Status: signaled(syscall.SIGTERM)}, {Pid: 301, Status: exited(137)},
		}, nil},
		"137": {nil, exits(exited(137), mainPid), []int{mainPid}},
	} {
		k := &script{}
		l := New(k, defaults(), mainPid, true)
		l.rules.Allow = what == "leftovers, one by a round" // each of which finds out whom it hits
		for _, a := range c.before {
			a.do(l)
		}
		k.reaps, k.killed = []reaping{{exits: c.exits}}, nil
		l.collect()
		check.Equal(t, what, k.killed, c.want)
		check.Equal(t, what+", and it keeps more than one", len(l.leftovers) > 1, false)
	}
}

// The answer to SIGKILL for all doesn't list a leftover that isn't a child yet, and the Record has it even so.
func TestKilledByOneCall(t *testing.T) {
	k := &script{}
	l := newLoop(k, defaults(), mainPid)
	left := l.leftover(escapee)
	kill{own: true}.do(l)
	k.reaps = []reaping{{exits: exits(signaled(syscall.SIGKILL), escapee.Pid)}}
	l.collect()
	check.Equal(t, "what it was sent", left.Signals(), []syscall.Signal{syscall.SIGKILL})
}
