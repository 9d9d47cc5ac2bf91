package life

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

func TestPlan(t *testing.T) {
	const term, kill = syscall.SIGTERM, syscall.SIGKILL
	ofInner, ofFirst := Identity{ToGroup: true, Outer: 7}, Identity{Initial: true, Leader: true}
	stops := []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
	yes, no := true, false
	group, noShield := Wanted{ToGroup: true}, Wanted{ToGroup: true, Shield: &no}
	foreground, noForeground := Wanted{ToGroup: true, Foreground: &yes}, Wanted{ToGroup: true, Foreground: &no}
	first := Facts{Initial: true, Pid: 1, PGID: 1, Session: 1}
	inner := Facts{Inner: true, Pid: 7, PGID: 5, Session: 3}
	alone := Facts{Pid: 7, PGID: 5, Session: 3}
	refused, limited, leader := alone, alone, inner
	refused.NoFork, limited.Limited, leader.Session = syscall.EAGAIN, true, leader.Pid
	atTerminal := func(f Facts) Facts { f.Terminal = true; return f }
	outside := func(f Facts) Facts { f.PGID, f.Session = 0, 0; return atTerminal(f) }
	for _, tt := range []struct {
		name string
		w    Wanted
		f    Facts
		want Plan
	}{
		{"inner", group, inner, Plan{Identity: ofInner, Deathsig: term}},
		{"inner, for the main child alone", Wanted{}, inner, Plan{Identity: Identity{Outer: 7}, Deathsig: term}},
		{"inner of a session's leader", group, leader, Plan{Identity: Identity{ToGroup: true, Leader: true, Outer: 7}, Deathsig: term}},
		{"inner at a terminal", group, atTerminal(inner), Plan{Identity: Identity{Job: 5, Outer: 7}, Deathsig: term}},
		{"inner at a terminal, --no-foreground", noForeground, atTerminal(inner), Plan{Identity: ofInner, Deathsig: term}},
		{"inner without a terminal, --foreground", foreground, inner, Plan{Identity: Identity{Job: 5, Outer: 7}, Deathsig: term}},
		{"inner of a group outside", group, outside(inner), Plan{Identity: Identity{Job: OutsideJob, Outer: 7}, BeAlone: true, Deathsig: term}},
		{"inner of a group outside, --no-foreground", noForeground, outside(inner), Plan{Identity: ofInner, Deathsig: term}},
		{"inner, --no-shield", noShield, inner, Plan{Identity: ofInner, BeAlone: true, Deathsig: term}},
		{"inner, --pause at a terminal", Wanted{Pause: true, ToGroup: true}, atTerminal(inner), Plan{Identity: ofInner, BeAlone: true, Deathsig: term}},

		{"alone, --no-shield", noShield, alone, Plan{Identity: Identity{ToGroup: true}, Deathsig: kill}},
		{"alone, --no-shield, at a terminal", noShield, atTerminal(alone), Plan{Identity: Identity{Job: 5}, Stops: stops, Deathsig: kill}},
		{"alone, --pause without a fork", Wanted{Pause: true}, refused, Plan{Deathsig: kill}},
		{"alone by a word in front", group, alone, Plan{Identity: Identity{ToGroup: true}, Deathsig: kill, NoShield: "a word in front "}},
		{"alone in a group outside", group, outside(alone), Plan{Identity: Identity{Job: OutsideJob}, Stops: stops, Deathsig: kill, Level: Detail, NoShield: "this process gro"}},
		{"alone, the fork refused", group, refused, Plan{Identity: Identity{ToGroup: true}, Deathsig: kill, NoShield: "cannot fork: res"}},
		{"a limited build", group, limited, Plan{Identity: Identity{ToGroup: true}, Deathsig: kill, Level: Detail, NoShield: "this build has l"}},
		{"a limited build, --shield", Wanted{Shield: &yes}, limited, Plan{Deathsig: kill, NoShield: "this build has l"}},

		{"PID 1", group, first, Plan{Identity: Identity{Initial: true, ToGroup: true, Leader: true}, GivesTerminal: true}},
		{"PID 1, --shield", Wanted{Shield: &yes}, first, Plan{Identity: ofFirst, GivesTerminal: true}},
		{"PID 1, --pause", Wanted{Pause: true}, first, Plan{Identity: ofFirst, GivesTerminal: true}},
		{"PID 1 at a terminal", group, atTerminal(first), Plan{Identity: Identity{Initial: true, ToGroup: true, Leader: true}, GivesTerminal: true}},
		{"PID 1 at a terminal, --foreground", foreground, atTerminal(first), Plan{Identity: Identity{Initial: true, Job: 1, Leader: true}, Stops: stops}},
		{"PID 1 in a group outside", group, outside(first), Plan{Identity: Identity{Initial: true, Job: OutsideJob}, Stops: stops}},

		{"heir", group, Facts{Heir: true, Pid: 7, PGID: 5, Session: 7, Terminal: true}, Plan{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := PlanOf(tt.w, tt.f)
			got.NoShield = got.NoShield[:min(16, len(got.NoShield))]
			check.Equal(t, "the plan", got, tt.want)
			// As in proc_pid_stat(5), where the number of a group outside of the PID namespace is 0.
			group := map[Job]int{NoJob: mainPid, OutsideJob: 0, 1: 1, 5: 5}[tt.want.Job]
			check.Equal(t, "the command's group", got.commandGroup(mainPid), group)
		})
	}
}
