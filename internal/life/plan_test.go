package life

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/signals"
)

// String is the plan in words.
func (p Plan) String() string {
	group := p.commandGroup(mainPid) // as in proc_pid_stat(5)
	words := []string{cmp.Or(map[int]string{mainPid: "own group", 0: "job outside"}[group], fmt.Sprint("job ", group))}
	for _, w := range []struct {
		is   bool
		word string
	}{
		{p.Group, "signals to group"}, {p.Leader, "leads session"}, {p.BeAlone, "be alone"}, {len(p.Stops) == 3, "stops with job"},
		{p.Deathsig != 0, signals.Name(p.Deathsig)}, {p.GivesTerminal, "gives terminal"},
		{p.NoShield != "", fmt.Sprintf("%v: %.16s", [...]string{"failure", "warning", "detail"}[p.Level], p.NoShield)},
	} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ", ")
}

func TestPlan(t *testing.T) {
	yes, no := new(bool), new(bool)
	*yes = true
	group := Wanted{ToGroup: true}
	first := Facts{Initial: true, Pid: 1, Group: 1, Session: 1}
	inner := Facts{Inner: true, Pid: 7, Group: 5, Session: 3}
	alone := Facts{Pid: 7, Group: 5, Session: 3}
	refused, limited, leader := alone, alone, inner
	refused.NoFork, limited.Limited, leader.Session = syscall.EAGAIN, true, leader.Pid
	atTerminal := func(f Facts) Facts { f.Terminal = true; return f }
	outside := func(f Facts) Facts { f.Group, f.Session = 0, 0; return atTerminal(f) }
	for _, tt := range []struct {
		name string
		w    Wanted
		f    Facts
		want string
	}{
		{"inner", group, inner, "own group, signals to group, SIGTERM"},
		{"inner, for the main child alone", Wanted{}, inner, "own group, SIGTERM"},
		{"inner of a session's leader", group, leader, "own group, signals to group, leads session, SIGTERM"},
		{"inner at a terminal", group, atTerminal(inner), "job 5, SIGTERM"},
		{"inner at a terminal, --no-foreground", Wanted{Foreground: no, ToGroup: true}, atTerminal(inner), "own group, signals to group, SIGTERM"},
		{"inner without a terminal, --foreground", Wanted{Foreground: yes, ToGroup: true}, inner, "job 5, SIGTERM"},
		{"inner of a group outside", group, outside(inner), "job outside, be alone, SIGTERM"},
		{"inner of a group outside, --no-foreground", Wanted{Foreground: no, ToGroup: true}, outside(inner), "own group, signals to group, SIGTERM"},
		{"inner, --no-shield", Wanted{Shield: no, ToGroup: true}, inner, "own group, signals to group, be alone, SIGTERM"},
		{"inner, --pause at a terminal", Wanted{Pause: true, ToGroup: true}, atTerminal(inner), "own group, signals to group, be alone, SIGTERM"},

		{"alone, --no-shield", Wanted{Shield: no, ToGroup: true}, alone, "own group, signals to group, SIGKILL"},
		{"alone, --no-shield, at a terminal", Wanted{Shield: no, ToGroup: true}, atTerminal(alone), "job 5, stops with job, SIGKILL"},
		{"alone, --pause without a fork", Wanted{Pause: true}, refused, "own group, SIGKILL"},
		{"alone by a word in front", group, alone, "own group, signals to group, SIGKILL, failure: a word in front "},
		{"alone in a group outside", group, outside(alone), "job outside, stops with job, SIGKILL, detail: this process gro"},
		{"alone, the fork refused", group, refused, "own group, signals to group, SIGKILL, failure: cannot fork: res"},
		{"a limited build", group, limited, "own group, signals to group, SIGKILL, detail: a build with lim"},
		{"a limited build, --shield", Wanted{Shield: yes}, limited, "own group, SIGKILL, failure: a build with lim"},

		{"PID 1", group, first, "own group, signals to group, leads session, gives terminal"},
		{"PID 1, --shield", Wanted{Shield: yes}, first, "own group, leads session, gives terminal"},
		{"PID 1, --pause", Wanted{Pause: true}, first, "own group, leads session, gives terminal"},
		{"PID 1 at a terminal", group, atTerminal(first), "own group, signals to group, leads session, gives terminal"},
		{"PID 1 at a terminal, --foreground", Wanted{Foreground: yes, ToGroup: true}, atTerminal(first), "job 1, leads session, stops with job"},
		{"PID 1 in a group outside", group, outside(first), "job outside, stops with job"},

		{"heir", group, Facts{Heir: true, Pid: 7, Group: 5, Session: 7, Terminal: true}, "own group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := PlanOf(tt.w, tt.f).String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
