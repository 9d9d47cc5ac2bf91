package life

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

const (
	mainPid = 100
	ms      = time.Millisecond
)

// One leftover of each kind that the step tells apart.
var (
	member = orphans.Process{Pid: 201, Parent: 1, PGID: mainPid, Session: 1, Name: "member", State: 'S', Start: 10 * ms, Holds: orphans.Holds(0)}
	// What a shell without job control starts by "&".
	background = orphans.Process{Pid: 202, Parent: 1, PGID: mainPid, Session: 1, Name: "background", State: 'S', Start: 10 * ms, Ignored: 1 << (syscall.SIGINT - 1), Holds: orphans.Holds(0)}
	escapee    = orphans.Process{Pid: 203, Parent: 1, PGID: 203, Session: 203, Name: "escapee", State: 'S', Start: 20 * ms, Holds: orphans.Holds(0)}
	holder     = orphans.Process{Pid: 204, Parent: 1, PGID: 204, Session: 204, Name: "holder", State: 'S', Start: 20 * ms, Holds: orphans.Holds(orphans.Stdout)}
	released   = orphans.Process{Pid: 204, Parent: 1, PGID: 204, Session: 204, Name: "released", State: 'S', Start: 20 * ms, Holds: orphans.Holds(0)}
	inGroup    = orphans.Process{Pid: 205, Parent: 1, PGID: mainPid, Session: 1, Name: "holder in group", State: 'S', Start: 20 * ms, Holds: orphans.Holds(orphans.Stderr)}
	opaque     = orphans.Process{Pid: 206, Parent: 1, PGID: 206, Session: 206, Name: "opaque", State: 'S', Start: 20 * ms}
	mainChild  = orphans.Process{Pid: mainPid, Parent: 1, PGID: mainPid, Session: 1, Name: "main", State: 'D', Start: 10 * ms, Holds: orphans.Holds(0)}
	agent      = orphans.Process{Pid: 208, Parent: 1, PGID: 208, Session: 208, Name: "agent", State: 'S', Start: 20 * ms, Holds: orphans.Holds(orphans.Stdout), Allowed: true}
	unread     = orphans.Process{Pid: 209, Parent: 1, PGID: 209, Session: 209, Name: "unread", State: 'S', Start: 20 * ms, Unread: true, Holds: orphans.Holds(0)}
	helper     = orphans.Process{Pid: 209, Parent: 1, PGID: mainPid, Session: 1, Name: "helper", State: 'S', Start: 20 * ms, Allowed: true, Holds: orphans.Holds(0)}
	sleeping   = orphans.Process{Pid: 207, Parent: 1, PGID: 207, Session: 207, Name: "stopped", State: 'T', Start: 20 * ms, Holds: orphans.Holds(0)}
)

// below is a child of p.
func below(p orphans.Process, start time.Duration) orphans.Process {
	return orphans.Process{Pid: int(start / ms), Parent: p.Pid, PGID: p.PGID, Session: p.Session, Name: "below", State: 'S', Start: start, Holds: orphans.Holds(0)}
}

// startedAt is p, if it has started then.
func startedAt(p orphans.Process, start time.Duration) orphans.Process {
	p.Start = start
	return p
}

// children is a list of fini's children half a second after the one before.
func children(pids ...int) listed { return listed{pids: pids, after: 500 * ms} }

// holdsOutput is p, if it holds standard output.
func holdsOutput(p orphans.Process) orphans.Process {
	p.Holds = orphans.Holds(orphans.Stdout)
	return p
}

func defaults() Rules {
	return Rules{
		Policy{Grace: 5 * time.Second, OrphansGrace: 5 * time.Second, Linger: 500 * ms, Orphans: StopAll, OrphansExit: -1, StopOnDeath: syscall.SIGTERM},
		Identity{ToGroup: true},
	}
}

// exited, signaled and suspended are wait(2) statuses.
func exited(code int) syscall.WaitStatus              { return syscall.WaitStatus(code << 8) }
func signaled(sig syscall.Signal) syscall.WaitStatus  { return syscall.WaitStatus(sig) }
func suspended(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(int(sig)<<8 | 0x7f) }

// signal, byKernel and byTree are signals from a process outside of the tree, the kernel, and a process of the tree.
func signal(sig syscall.Signal) Signal { return Signal{Received: signals.Received{Signal: sig}} }
func byKernel(sig syscall.Signal) Signal {
	return Signal{Received: signals.Received{Signal: sig, FromKernel: true}}
}
func byTree(sig syscall.Signal) Signal {
	return Signal{Received: signals.Received{Signal: sig}, OfTree: true}
}

// A reaping is what a Reap returns. A machine hears of it as the loop tells.
type reaping struct {
	exits []reaper.Exit
	none  bool
}

// exits are those of some processes in the same way.
func exits(status syscall.WaitStatus, pids ...int) (all []reaper.Exit) {
	for _, pid := range pids {
		all = append(all, reaper.Exit{Pid: pid, Status: status})
	}
	return all
}

func reap(none bool, pids ...int) reaping { return reaping{exits(exited(0), pids...), none} }

func mainExits(status syscall.WaitStatus, none bool) reaping {
	return reaping{exits(status, mainPid), none}
}
func mainStops(sig syscall.Signal) reaping { return mainExits(suspended(sig), false) }

// where is where a machine stands.
func where(m Machine) string {
	switch m := m.(type) {
	case *ladder:
		return [...]string{"running", "heeding", "closing", "stopping", "killed"}[m.rung]
	case *sweep:
		return [...]string{"lingering", "waiting", "clearing", "asking", "killing", "counting"}[m.stage]
	case paused:
		return "pausing"
	case *parting:
		return "parting"
	}
	return "over"
}

func found(p ...orphans.Process) looked   { return looked{View: orphans.View{Found: p, Complete: true}} }
func unstill(p ...orphans.Process) looked { return looked{View: orphans.View{Found: p}} }
func blind(p ...orphans.Process) looked {
	return looked{View: orphans.View{Found: p, Nameless: true}}
}

// text is a list of actions as the tables below write it.
func text(actions []action) string {
	var words []string
	for _, a := range actions {
		word := strings.TrimPrefix(fmt.Sprintf("%T", a), "life.")
		switch a := a.(type) {
		case signalCommand:
			word = fmt.Sprintf("command<-%d%s", a.sig, map[bool]string{true: " alone"}[a.alone])
		case signalLeftover:
			word = fmt.Sprintf("%s<-%d", a.process.Name, a.sig)
		case kill:
			word = map[bool]string{true: "kill children", false: "kill"}[a.own]
		case survey:
			word = map[bool]string{true: "survey in lines", false: "survey"}[a.named]
		case wake:
			word = fmt.Sprint("wake ", a.after)
		case list:
			word = fmt.Sprint("list ", a.after)
		case hurry:
			word = fmt.Sprint("hurry ", a.after)
		case tell:
			if word = fmt.Sprintf("(%s %s)", a.what, a.process.Name); a.quietly {
				continue
			}
		case say:
			if word = fmt.Sprintf("say %q", a.text); a.why != NoReason {
				word = fmt.Sprintf("(%s: %s)", a.text, a.why)
			}
			if a.level >= Detail {
				continue
			}
		case exit:
			if word = fmt.Sprint("exit ", a.Code); a.Sig != 0 {
				word = fmt.Sprint("end by ", int(a.Sig))
			}
			if a.Count > 0 {
				word += fmt.Sprintf(" (%s %d)", map[bool]string{true: "left", false: "stopped"}[a.Left], a.Count)
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// A turn is one event, what the step must make of it, and where the machine stands then.
type turn struct {
	at    time.Duration
	event event
	want  string
	then  string
}

// sees is an event that makes a machine look, and do nothing else, and the answers, each of which but for the last one makes it
// look again. If the machine does not stand in one place all the time, the turn names where it stands behind each of them.
func sees(first event, answers ...looked) []event {
	events := []event{first}
	for _, e := range answers {
		events = append(events, e)
	}
	return events
}

// step lets the machine of a loop make something of an event. The loop does what the machine wants, except for SIGKILL to many,
// and a later turn has the answers.
func step(l *Loop, now time.Duration, e event) (do []action) {
	k := l.Kernel.(*script)
	k.now = now
	switch is := e.(type) {
	case reaping:
		k.reaps, l.queue = []reaping{is}, nil
		if l.collect(); len(l.queue) == 0 {
			return nil
		}
		e = l.queue[0]
	case reaped:
		if is.hidden {
			l.mainEnded()
		}
	case swept:
		is.fresh = l.noteKills(now, is.hit)
		e = is
	}
	if l.machine == nil {
		return nil
	}
	do, l.machine = l.machine.step(now, e)
	l.bound(now)
	for _, a := range do {
		if _, is := a.(kill); !is {
			a.do(l)
		}
	}
	return do
}

// play lets the machines of a loop make of each event what a turn says.
func play(t *testing.T, l *Loop, turns []turn) {
	t.Helper()
	for i, is := range turns {
		if events, ok := is.event.([]event); ok {
			for _, e := range events[:len(events)-1] {
				between, then, _ := strings.Cut(is.then, ", ")
				play(t, l, []turn{{is.at, e, "look", between}})
				is.then = cmp.Or(then, between)
			}
			is.event = events[len(events)-1]
		}
		if got, then := text(step(l, is.at, is.event)), where(l.machine); got != is.want || then != is.then {
			t.Fatalf("turn %d, %+v:\n got %s, and then %s\nwant %s, and then %s", i, is.event, got, then, is.want, is.then)
		}
	}
}

// What the ladder does to a command that has not exited in time.
const killsByGrace = `say "killing the command: the command did not exit within 5s of the stop signal; --grace sets this time", ` +
	"command<-9 alone, wake 10s"

// Lives that begin with that: with --timeout, and with a signal under -k 1.
var (
	timedOut = turn{0, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-15, look, wake 5s", "stopping"}
	afterK   = []turn{
		{0, signal(syscall.SIGTERM), "command<-15, wake 1s", "stopping"},
		{1 * ms, signal(syscall.SIGTERM), "command<-15", "stopping"},
		{1000 * ms, elapsed{}, "(killing the command: killAfter), command<-9 alone, wake 10s", "killed"},
	}
)

func TestStep(t *testing.T) {
	orphan := below(orphans.Process{Pid: 1, PGID: mainPid}, 500*ms)
	with := func(change func(*Rules)) Rules { r := defaults(); change(&r); return r }
	pipes := with(func(r *Rules) { r.Orphans = StopPipes })
	orphaned := with(func(r *Rules) { r.OrphanTimeout, r.OrphansGrace = 2*time.Second, 4*time.Second })
	ofMain := orphans.Process{Pid: 211, Parent: mainPid, PGID: 211, Session: 1, Name: "child of main", State: 'S', Start: 20 * ms, Holds: orphans.Holds(orphans.Stdout)}
	const s = time.Second
	rewrites := with(func(r *Rules) {
		r.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGHUP: syscall.SIGUSR1, syscall.SIGUSR1: syscall.SIGTERM, syscall.SIGUSR2: 0}
		r.KillAfter = time.Second
	})
	crowd := make([]orphans.Process, MaxNamed+3) // more than anybody reads
	for i := range crowd {
		crowd[i] = orphans.Process{Pid: 1000 + i, PGID: 1000 + i, Name: "x", State: 'S', Holds: orphans.Holds(0)}
	}
	audit := with(func(r *Rules) { r.Orphans, r.OrphansExit = LeaveAll, 9 })
	for _, life := range []struct {
		name  string
		rules Rules
		turns []turn
	}{
		{"a command whose end a tracer hides at first", defaults(), []turn{
			{0, reaped{hidden: true}, "look", "lingering"},
			{5 * ms, reap(false, 300), "", "lingering"},
			{10 * ms, mainExits(exited(3), true), "exit 3", "over"},
		}},
		{"the whole way to the end", defaults(), []turn{
			{1000 * ms, mainExits(exited(4), false), "look", "lingering"},
			{1500 * ms, sees(elapsed{}, found(member, escapee)), "(stopping member), member<-15, (stopping escapee), escapee<-15, wake 5ms", "asking"},
			{1505 * ms, sees(elapsed{}, found(escapee)), "wake 10ms", "asking"},
			{1506 * ms, reap(false, member.Pid), "hurry 5ms", "asking"},
			{6500 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
			{6502 * ms, reap(true, escapee.Pid), "exit 4 (stopped 2)", "over"},
		}},
		{"what a leftover has started since it had TERM with the group is spared as long as it lives", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			// Below the escapee is one that was started before that was asked; below the member's clean-up is its own.
			{900 * ms, sees(mainExits(signaled(15), false),
				found(member, escapee, below(member, 480*ms), below(member, 500*ms), below(escapee, 700*ms), below(below(member, 500*ms), 710*ms))),
				"(stopping member), (stopping escapee), escapee<-15, (stopping below), (stopping below), below<-15, wake 5ms", "asking"},
			{901 * ms, reap(false, member.Pid), "hurry 5ms", "asking"},
			// The clean-up's parent has ended: the clean-up is asked, and so is what it started before that.
			{906 * ms, sees(elapsed{}, found(orphan, below(orphan, 710*ms))), "(stopping below), below<-15, (stopping below), below<-15, wake 5ms", "asking"},
			{911 * ms, sees(elapsed{}, found(orphan, below(orphan, 710*ms), below(orphan, 900*ms))), "wake 10ms", "asking"},
		}},
		{"what started at a time that nobody knows is spared for five seconds", with(func(r *Rules) { r.Linger, r.Grace = 0, time.Minute }), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{900 * ms, sees(mainExits(signaled(15), false), found(member, below(member, 0))), "(stopping member), wake 5ms", "asking"},
			{5899 * ms, sees(elapsed{}, found(member, below(member, 0))), "wake 10ms", "asking"},
			{5909 * ms, sees(elapsed{}, found(member, below(member, 0))), "(stopping below), below<-15, wake 20ms", "asking"},
		}},
		{"or for half of a short --grace", with(func(r *Rules) { r.Linger, r.Grace = 0, time.Second }), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{900 * ms, sees(mainExits(signaled(15), false), found(member, below(member, 0))), "(stopping member), wake 5ms", "asking"},
			{1400 * ms, sees(elapsed{}, found(member, below(member, 0))), "(stopping below), below<-15, wake 10ms", "asking"},
		}},
		{"what was asked with the command keeps --grace from then, and all others --orphans-grace from the first question", with(func(r *Rules) {
			r.Linger, r.Grace, r.OrphansGrace = 0, time.Minute, time.Second
		}), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{900 * ms, sees(mainExits(signaled(15), false), found(member, escapee)), "(stopping member), (stopping escapee), escapee<-15, wake 5ms", "asking"},
			{30000 * ms, sees(elapsed{}, found(member, escapee, holder)), "(stopping holder), holder<-15, wake 10ms", "asking"},
			{31000 * ms, late{time.Second}, "", "asking"},
			{32000 * ms, sees(elapsed{}, found(below(member, 20000*ms), holder)), "(stopping below), below<-15, wake 0s", "asking"},
			{32000 * ms, sees(elapsed{}, found(holder)), "(killing holder), kill children", "killing"},
		}},
		{"and so does what that has started to clean up, which then has --orphans-grace", with(func(r *Rules) {
			r.Linger, r.Grace, r.OrphansGrace, r.Orphans = 0, time.Minute, time.Second, StopPipes
		}), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{900 * ms, sees(mainExits(signaled(15), false), found(member, holdsOutput(below(member, 800*ms)))), "wake 5ms", "asking"},
			{30000 * ms, sees(elapsed{}, found(member, holdsOutput(below(member, 800*ms)))), "wake 10ms", "asking"},
			{60000 * ms, sees(elapsed{}, found(holdsOutput(below(orphan, 800*ms)))), "(stopping below), below<-15, wake 20ms", "asking"},
			{61000 * ms, sees(elapsed{}, found(holdsOutput(below(orphan, 800*ms)))), "(killing below), below<-9, wake 0s", "killing"},
		}},
		{"--stop-within: TERM, what is left for the command, and then for leftovers", with(func(r *Rules) { r.StopWithin = 9 * time.Second }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{0, signal(syscall.SIGINT), "command<-2", "running"},
			{1000 * ms, signal(syscall.SIGTERM), "command<-15, wake 9s", "stopping"},
			{4000 * ms, signal(syscall.SIGTERM), "command<-15", "stopping"},
			{9099 * ms, elapsed{}, "", "stopping"},
			{9100 * ms, elapsed{}, "(killing the command: stopWithin), command<-9 alone, wake 10s", "killed"},
			{9101 * ms, sees(mainExits(signaled(9), false), found(member, escapee)), "wake 299ms", "lingering"},
			{9400 * ms, sees(elapsed{}, found(member, escapee)), "(killing member), member<-9, wake 5ms", "clearing"},
			{9550 * ms, sees(elapsed{}, found(member, escapee)), "member<-9, look", "clearing, asking"},
			{9550 * ms, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
			{9700 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
			{9700 * ms, swept{hit: []int{escapee.Pid}}, "kill children", "killing"},
			{9801 * ms, swept{hit: []int{escapee.Pid}}, "kill", "killing"},
			{19801 * ms, swept{hit: []int{escapee.Pid}}, `say "gave up on leftovers that do not exit: [203], so --stop-within=9s was not kept", end by 9 (stopped 2)`, "over"},
		}},
		{"--stop-within: what comes before SIGTERM leaves some time for that", with(func(r *Rules) {
			r.StopWithin, r.Grace, r.StopSignals = 10*time.Second, time.Minute, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
		}), []turn{
			{0, stop{why: StdinClosed}, "wake 1m0s", "closing"},
			{3000 * ms, elapsed{}, "(stopping the command: stdin), command<-2, look, wake 1m0s", "stopping"},
			{6000 * ms, elapsed{}, "command<-15, wake 1m0s", "stopping"},
			{8999 * ms, elapsed{}, "", "stopping"},
			{9000 * ms, elapsed{}, "(killing the command: stopWithin), command<-9 alone, wake 10s", "killed"},
			{9334 * ms, elapsed{}, "look", "clearing"},
		}},
		{"--stop-within begins with the command's exit, if nothing was before", with(func(r *Rules) { r.StopWithin, r.Linger = 2*time.Second, time.Second }), []turn{
			{1000 * ms, sees(mainExits(exited(0), false), found(escapee)), "wake 1s", "lingering"},
			{2000 * ms, sees(elapsed{}, found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
			{2933 * ms, sees(elapsed{}, found(escapee)), "wake 10ms", "asking"},
			{2934 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
		}},
		{"but not if fini waits, and -k's clock is another one", with(func(r *Rules) {
			r.StopWithin, r.KillAfter, r.Orphans = 2*time.Second, time.Hour, WaitAll
		}), []turn{
			{0, mainExits(exited(0), false), "look", "waiting"},
			{5000 * ms, sees(signal(syscall.SIGTERM), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
			{6934 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
		}},
		{"-k's clock may begin before that of --stop-within", with(func(r *Rules) { r.StopWithin, r.KillAfter = 2*time.Second, time.Hour }), []turn{
			{0, signal(syscall.SIGINT), "command<-2, wake 1h0m0s", "stopping"},
			{3000 * ms, elapsed{}, "", "stopping"},
			{3000 * ms, signal(syscall.SIGTERM), "command<-15", "stopping"},
			{4800 * ms, elapsed{}, "(killing the command: stopWithin), command<-9 alone, wake 10s", "killed"},
		}},
		{"who was there and comes to light late is asked, and who was started since is not", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{1000 * ms, sees(mainExits(exited(0), false), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
			{1005 * ms, sees(elapsed{}, found(escapee, below(escapee, 980*ms), below(escapee, 1000*ms))), "(stopping below), below<-15, wake 10ms", "asking"},
			// The member was not asked either: what it started before it is asked is no clean-up, even if no look has shown it.
			{1015 * ms, sees(elapsed{}, found(escapee, member, below(member, 1004*ms))), "(stopping member), member<-15, (stopping below), below<-15, wake 20ms", "asking"},
		}},
		{"--orphan-timeout: an orphan and what descends from it, but nobody whose parent lives, and what is started since is clean-up", orphaned, []turn{
			{1000 * ms, children(mainPid), "list 1s", "running"},
			{2000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{4000 * ms, children(mainPid, escapee.Pid), "look, list 1s", "running"},
			{4000 * ms, found(mainChild, escapee, ofMain, below(escapee, 500*ms)), "(stopping escapee), escapee<-15, (stopping below), below<-15, list 500ms", "running"},
			{4500 * ms, children(mainPid, escapee.Pid), "list 500ms", "running"},
			{3600 * s, children(mainPid, escapee.Pid), "look, list 500ms", "running"}, // a freeze counts as one part of the grace
			{3600 * s, found(mainChild, escapee, ofMain, below(escapee, 500*ms)), "", "running"},
			{3601 * s, children(mainPid, escapee.Pid), "list 500ms", "running"},
			{3602 * s, children(mainPid, escapee.Pid), "look, list 500ms", "running"}, // its time again: was something missed?
			{3602 * s, found(mainChild, escapee, ofMain, below(escapee, 500*ms), below(escapee, 4500*ms)), "", "running"},
			{3603 * s, children(mainPid, escapee.Pid), "list 500ms", "running"},
			{3604 * s, children(mainPid, escapee.Pid), "look, list 500ms", "running"},
			{3604 * s, found(mainChild, escapee, below(escapee, 500*ms)), "", "running"},
			{3605 * s, children(mainPid, escapee.Pid), "list 500ms", "running"},
			{3606 * s, children(mainPid, escapee.Pid), "look, list 10ms", "running"},
			{3606 * s, found(mainChild, escapee, ofMain, below(escapee, 500*ms), below(escapee, 4500*ms)),
				"(killing escapee), escapee<-9, (killing below), below<-9, (killing below), below<-9", "running"},
			{3607 * s, mainExits(exited(0), true), "exit 0 (stopped 2)", "over"},
		}},
		{"--orphan-timeout: who exits, and who has its pid then", orphaned, []turn{
			{1000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{2000 * ms, reap(false, escapee.Pid), "", "running"},
			{2000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{3500 * ms, children(mainPid), "list 1s", "running"}, // made with CLONE_AUTOREAP
			{4000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{6000 * ms, children(mainPid, escapee.Pid), "look, list 1s", "running"},
			{6000 * ms, found(mainChild, startedAt(escapee, 5000*ms)), "", "running"}, // the same between two lists
			{7000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{8000 * ms, children(mainPid, escapee.Pid), "look, list 1s", "running"},
			{8000 * ms, found(mainChild, startedAt(escapee, 5000*ms)), "(stopping escapee), escapee<-15, list 500ms", "running"},
			{8100 * ms, reap(false, escapee.Pid), "", "running"},
			{8500 * ms, children(mainPid), "list 1s", "running"},
		}},
		{"--orphan-timeout: who is asked, and who is spared, is as after the command's exit, and is asked once", with(func(r *Rules) {
			*r = orphaned
			r.Allow, r.Orphans = true, StopPipes
		}), []turn{
			{1000 * ms, children(mainPid, agent.Pid, escapee.Pid, holder.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, agent.Pid, escapee.Pid, holder.Pid), "look, list 1s", "running"},
			{3000 * ms, found(mainChild, agent, escapee, holder), "(stopping holder), holder<-15, list 500ms", "running"},
			{3500 * ms, children(mainPid, agent.Pid, escapee.Pid, holder.Pid), "list 500ms", "running"},
			{3600 * ms, sees(mainExits(exited(3), false), found(agent, escapee, holder)), "wake 5ms", "lingering"},
			{4100 * ms, sees(elapsed{}, found(agent, escapee, holder)), "wake 5ms", "asking"},
			{8100 * ms, sees(elapsed{}, found(agent, escapee, holder)), "(killing holder), holder<-9, wake 0s", "killing"},
			{8100 * ms, sees(elapsed{}, found(agent, escapee), found(agent, escapee)), "(leaving agent), (leaving escapee), exit 3 (stopped 1)", "killing, killing, over"},
		}},
		{"--orphan-timeout: one that fini has asked, and that no longer holds a stream, is let alone, and idle fini lists as before", with(func(r *Rules) {
			*r = orphaned
			r.Orphans = StopPipes
		}), []turn{
			{1000 * ms, children(mainPid, holder.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, holder.Pid), "look, list 1s", "running"},
			{3000 * ms, found(mainChild, holder), "(stopping holder), holder<-15, list 500ms", "running"},
			{5000 * ms, children(mainPid, holder.Pid), "look, list 500ms", "running"},
			{5000 * ms, found(mainChild, released), "", "running"},
			{5500 * ms, children(mainPid, holder.Pid), "list 1s", "running"},
			{7000 * ms, children(mainPid, holder.Pid), "look, list 1s", "running"},
			{7000 * ms, found(mainChild, released), "", "running"},
		}},
		{"--orphan-timeout: what an orphan reaps itself is forgotten when two looks have not found it", orphaned, []turn{
			{1000 * ms, children(mainPid, escapee.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, escapee.Pid), "look, list 1s", "running"},
			{3000 * ms, found(mainChild, escapee, below(escapee, 500*ms)), "(stopping escapee), escapee<-15, (stopping below), below<-15, list 500ms", "running"},
			{5000 * ms, children(mainPid, escapee.Pid), "look, list 500ms", "running"},
			{5000 * ms, found(mainChild, escapee), "", "running"},
			{5000 * ms, found(mainChild, escapee, below(escapee, 500*ms)), "", "running"}, // it was only missed
			{5000 * ms, found(mainChild, escapee), "", "running"},
			{5000 * ms, found(mainChild, escapee), "", "running"},
			{5500 * ms, reap(false, escapee.Pid), "", "running"},
			{5500 * ms, children(mainPid), "list 1s", "running"},
		}},
		{"--orphan-timeout: a process that the whole group's TERM has asked keeps --grace from then", with(func(r *Rules) {
			*r = orphaned
			r.Grace, r.OrphansGrace = time.Minute, 800*ms
		}), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{1000 * ms, children(mainPid, member.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, member.Pid), "look, list 1s", "running"},
			{3000 * ms, found(mainChild, member), "(stopping member), list 100ms", "running"},
			{50000 * ms, children(mainPid, member.Pid), "look, list 100ms", "running"},
			{50000 * ms, found(mainChild, member), "", "running"},
			{50500 * ms, children(mainPid, member.Pid), "list 100ms", "running"},
			{60500 * ms, children(mainPid, member.Pid), "look, list 10ms", "running"},
			{60500 * ms, found(mainChild, member), "(killing member), member<-9", "running"},
			{60501 * ms, reap(false, member.Pid), "", "running"},
			{60600 * ms, children(mainPid), "list 1s", "running"},
		}},
		{"--orphan-timeout: one that had SIGINT with the group has half of --grace before SIGTERM", with(func(r *Rules) {
			*r = orphaned
			r.Grace = 10 * time.Second
		}), []turn{
			{2000 * ms, signal(syscall.SIGINT), "command<-2", "running"},
			{2000 * ms, children(mainPid, member.Pid), "list 1s", "running"},
			{4000 * ms, children(mainPid, member.Pid), "look, list 1s", "running"},
			{4000 * ms, found(mainChild, member), "(stopping member), list 500ms", "running"},
			{6900 * ms, children(mainPid, member.Pid), "look, list 500ms", "running"},
			{6900 * ms, found(mainChild, member), "", "running"},
			{7000 * ms, children(mainPid, member.Pid), "look, list 500ms", "running"},
			{7000 * ms, found(mainChild, member), "member<-15, list 500ms", "running"},
		}},
		{"--orphan-timeout: without /proc fini says so, once", orphaned, []turn{
			{1000 * ms, listed{err: errors.New("no")}, `say "no; --orphan-timeout has no effect until this changes", list 1s`, "running"},
			{2000 * ms, listed{err: errors.New("no")}, "list 1s", "running"},
			{3000 * ms, blind(escapee), "", "running"},
		}},
		{"--orphan-timeout: a look at what is spared comes no sooner than its cost allows", with(func(r *Rules) {
			*r = orphaned
			r.Allow = true
		}), []turn{
			{1000 * ms, children(mainPid, agent.Pid), "list 1s", "running"},
			{3000 * ms, children(mainPid, agent.Pid), "look, list 1s", "running"},
			{3000 * ms, looked{View: orphans.View{Found: []orphans.Process{agent}}, took: 50 * ms}, "", "running"},
			{9399 * ms, children(mainPid, agent.Pid), "list 1s", "running"},
			{9400 * ms, children(mainPid, agent.Pid), "look, list 1s", "running"},
		}},
		{"a second SIGINT kills, if it comes after they were asked", defaults(), []turn{
			{0, signal(syscall.SIGINT), "command<-2", "running"},
			{1, mainExits(signaled(2), false), "look", "lingering"},
			{2, signal(syscall.SIGTERM), "look", "asking"},
			{2, signal(syscall.SIGINT), "", "asking"},
			{2, signal(syscall.SIGINT), "", "asking"},
			{2, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
			{3, signal(syscall.SIGTERM), "", "asking"},
			{4, signal(syscall.SIGINT), `say "killing the leftovers: a second SIGINT", look`, "killing"},
		}},
		{"one is left alone while others are killed", with(func(r *Rules) { r.Allow, r.Linger = true, 0 }), []turn{
			{0, sees(mainExits(exited(0), false), found(agent, member)), "(stopping member), member<-15, wake 5ms", "asking"},
			{5000 * ms, sees(elapsed{}, found(agent, member)), "(killing member), kill", "killing"},
			{5000 * ms, swept{hit: []int{member.Pid}}, "wake 0s", "killing"},
			{5000 * ms, elapsed{}, "kill", "killing"},
			{5000 * ms, sees(swept{}, found()), "wake 5ms", "killing"},
			{5005 * ms, elapsed{}, "kill", "killing"},
			{5005 * ms, sees(swept{}, found(agent), found(agent)), "(leaving agent), exit 0 (stopped 1)", "killing, killing, over"},
		}},
		{"a child that a tracer keeps, if one may be left alone", with(func(r *Rules) { r.Allow, r.Linger = true, 0 }), []turn{
			{0, sees(reaped{hidden: true}, found(member)), "(stopping member), member<-15, wake 5ms", "asking"},
			{5000 * ms, sees(elapsed{}, found()), "wake 5ms", "killing"},
			{14999 * ms, elapsed{}, "kill", "killing"},
			{14999 * ms, sees(swept{}, found()), "wake 1ms", "killing"},
			{15000 * ms, elapsed{}, "kill", "killing"},
			{15000 * ms, sees(swept{}, found()), `say "gave up on leftovers that do not exit: [201 100]", end by 9 (stopped 1)`, "killing, over"},
		}},
		{"wait, and one that is left alone", with(func(r *Rules) { r.Orphans, r.Allow = WaitAll, true }), []turn{
			{0, sees(mainExits(exited(5), false), found(agent, member)), "wake 5ms", "waiting"},
			{5 * ms, sees(elapsed{}, found(agent, member)), "wake 10ms", "waiting"}, // and so on, for a name that comes late
			{10 * ms, reap(false, 300), "hurry 245ms", "waiting"},                   // orphans that end all the time cost little
			{1000 * ms, reap(false, member.Pid), "hurry 5ms", "waiting"},
			{1005 * ms, sees(elapsed{}, found(agent), unstill(agent)), "wake 20ms", "waiting"},
			{1025 * ms, sees(elapsed{}, found(agent)), "(leaving agent), exit 5", "waiting, over"},
		}},
		{"an audit tells of who is left after the linger, and touches nobody", audit, []turn{
			{0, mainExits(exited(0), false), "look", "lingering"},
			{10 * ms, reap(false, 300), "", "lingering"},
			{20 * ms, stop{why: StdinClosed}, "", "lingering"},
			{500 * ms, sees(elapsed{}, found(member, escapee)),
				`(leaving member), (leaving escapee), say "exit 9 instead of 0: --orphans-exit, 2 leftovers", exit 9 (left 2)`, "counting, over"},
		}},
		{"an audit of a command that was stopped", audit, []turn{
			timedOut,
			{1 * ms, mainExits(signaled(15), false), "look", "lingering"},
			{501 * ms, sees(elapsed{}, found(member)), "(leaving member), exit 124 (left 1)", "counting, over"},
		}},
		{"the time cuts an audit short, and the parent's death overrules it, also while it counts", audit, []turn{
			{0, mainExits(exited(0), false), "look", "lingering"},
			{10 * ms, stop{why: TimedOut}, "look", "counting"},
			{10 * ms, stop{why: ParentDied}, "(stopping the leftovers: launcher), look", "asking"},
			{10 * ms, found(member), "(stopping member), member<-15, wake 5ms", "asking"},
		}},
		{"one may be allowed, and can't be asked: said once", with(func(r *Rules) { r.Allow = true }), []turn{
			{0, sees(mainExits(exited(0), false), found(unread)), "wake 5ms", "lingering"},
			{500 * ms, sees(elapsed{}, found(unread)), `say "cannot read the command line or environment of leftover 209 (unread), so --allow-orphan does not match it", ` +
				"(stopping unread), unread<-15, wake 5ms", "asking"},
			{505 * ms, sees(elapsed{}, found(unread)), "wake 10ms", "asking"},
		}},
		{"pipes: an empty look is no proof while processes come and go", pipes, []turn{
			{0, sees(mainExits(exited(5), false), unstill(escapee), unstill(escapee)), "wake 5ms", "lingering"},
			{5 * ms, sees(elapsed{}, unstill(holder)), "wake 10ms", "lingering"},
			{500 * ms, sees(elapsed{}, unstill(escapee), unstill(escapee)), "wake 5ms", "asking"},
			{5500 * ms, sees(elapsed{}, unstill(escapee)), "wake 5ms", "killing"},
			{15500 * ms, sees(elapsed{}, unstill(escapee)), `say "gave up on leftovers: processes come and go all the time", (leaving escapee), exit 5`, "killing, over"},
		}},
		{"wait until a signal asks for an end", with(func(r *Rules) { r.Orphans = WaitAll }), []turn{
			{1, mainExits(exited(5), false), "look", "waiting"},
			{2, reap(false, 300), "", "waiting"},
			{3, signal(syscall.SIGUSR1), "", "waiting"},
			{4, sees(signal(syscall.SIGHUP), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"pipes: holders and those who may be", pipes, []turn{
			{0, sees(mainExits(exited(5), false), found(holder, opaque, escapee)), "wake 5ms", "lingering"},
			{500 * ms, sees(elapsed{}, found(holder, opaque, escapee)), "(stopping holder), holder<-15, (stopping opaque), opaque<-15, wake 5ms", "asking"},
			{5500 * ms, sees(elapsed{}, found(holder, escapee)), "(killing holder), holder<-9, wake 0s", "killing"},
			{5501 * ms, sees(elapsed{}, found(holder, escapee)), "holder<-9, wake 5ms", "killing"},
			{5507 * ms, sees(elapsed{}, found(), found()), "exit 5 (stopped 1)", "killing, killing, over"}, // a zombie that a tracer keeps holds nothing
		}},
		{"pipes: one that may be a holder decides no status", with(func(r *Rules) { r.Orphans, r.OrphansExit = StopPipes, 7 }), []turn{
			{0, sees(mainExits(exited(0), false), found(opaque, escapee)), "wake 5ms", "lingering"},
			{500 * ms, sees(elapsed{}, found(opaque, escapee)), "(stopping opaque), opaque<-15, wake 5ms", "asking"},
			{505 * ms, reap(true, opaque.Pid), "exit 0", "over"},
		}},
		{"pipes: one that lets go when it is asked is not left alone", pipes, []turn{
			{0, mainExits(exited(5), false), "look", "lingering"},
			{500 * ms, sees(elapsed{}, found(holder, escapee)), "(stopping holder), holder<-15, wake 5ms", "asking"},
			{505 * ms, sees(elapsed{}, found(released, escapee), found(released, escapee)), "(leaving escapee), exit 5 (stopped 1)", "asking, asking, over"},
		}},
		{"without /proc pipes is stop, and nobody is left alone", with(func(r *Rules) { r.Orphans, r.Allow = StopPipes, true }), []turn{
			{0, sees(mainExits(exited(5), false), blind(opaque)),
				`say "stopping every leftover: without /proc fini can't tell which processes hold the output", ` +
					`say "--allow-orphan has no effect: without /proc fini can't tell the names of processes", wake 500ms`, "lingering"},
			{500 * ms, sees(elapsed{}, blind(opaque)), "(stopping opaque), opaque<-15, wake 5ms", "asking"},
			{505 * ms, sees(elapsed{}, blind()), "wake 10ms", "asking"}, // it has ended, and what it has left was missed
			{5500 * ms, sees(elapsed{}, blind()), "kill children", "killing"},
		}},
		{"pipes: also when holders are being killed", pipes, []turn{
			{0, mainExits(exited(5), false), "look", "lingering"},
			{500 * ms, sees(elapsed{}, found(holder, escapee)), "(stopping holder), holder<-15, wake 5ms", "asking"},
			{5500 * ms, sees(elapsed{}, found(holder, escapee)), "(killing holder), holder<-9, wake 0s", "killing"},
			{5500 * ms, stop{why: FiniDied}, "(stopping the leftovers: fini), look", "asking"},
			{5500 * ms, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"one that may not be signalled is waited for, not for long", with(func(r *Rules) { r.Linger, r.OrphansGrace, r.OrphansExit = 0, 0, 0 }), []turn{
			{0, sees(mainExits(exited(0), false), found(escapee)), "(stopping escapee), escapee<-15, wake 0s", "asking"},
			{1 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
			{1 * ms, swept{refused: []int{escapee.Pid}}, "kill", "killing"},
			{1 * ms, swept{refused: []int{escapee.Pid}}, "wake 5ms", "killing"},
			{1000 * ms, swept{refused: []int{escapee.Pid}}, "wake 10ms", "killing"},
			{2001 * ms, swept{refused: []int{escapee.Pid}}, `say "gave up on leftovers that do not exit: [203]", exit 0 (stopped 1)`, "over"},
		}},
		{"one that SIGKILL does not end is waited for longer", with(func(r *Rules) { r.Linger, r.OrphansGrace = 0, 0 }), []turn{
			{0, sees(mainExits(exited(0), false), found(escapee)), "(stopping escapee), escapee<-15, wake 0s", "asking"},
			{1 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
			{1 * ms, swept{hit: []int{escapee.Pid}}, "kill children", "killing"},
			{1 * ms, swept{hit: []int{escapee.Pid}}, "kill", "killing"},
			{1 * ms, swept{hit: []int{escapee.Pid}}, "wake 5ms", "killing"},
			{9000 * ms, elapsed{}, "kill children", "killing"},
			{9000 * ms, swept{hit: []int{escapee.Pid, 300}}, "kill children", "killing"},
			{9050 * ms, swept{hit: []int{escapee.Pid, 301}}, "kill children", "killing"},
			{9100 * ms, swept{hit: []int{escapee.Pid, 302}}, "kill", "killing"}, // there may be others than children
			{18000 * ms, swept{hit: []int{escapee.Pid}}, "wake 5ms", "killing"},
			{19101 * ms, swept{hit: []int{escapee.Pid}}, `say "gave up on leftovers that do not exit: [203]", exit 0 (stopped 1)`, "over"},
		}},
		{"and --stop-within is kept if it was longer", with(func(r *Rules) { r.Linger, r.OrphansGrace, r.StopWithin = 0, 0, time.Minute }), []turn{
			{0, sees(mainExits(exited(0), false), found(escapee)), "(stopping escapee), escapee<-15, wake 0s", "asking"},
			{1 * ms, sees(elapsed{}, found(escapee)), "(killing escapee), kill children", "killing"},
			{1 * ms, swept{hit: []int{escapee.Pid}}, "kill children", "killing"},
			{102 * ms, swept{hit: []int{escapee.Pid}}, "kill", "killing"},
			{11000 * ms, swept{hit: []int{escapee.Pid}}, `say "gave up on leftovers that do not exit: [203]", exit 0 (stopped 1)`, "over"},
		}},
		{"the launcher dies, and a long -k is shortened: TERM, grace, KILL", with(func(r *Rules) { r.KillAfter = time.Hour }), []turn{
			{0, signal(syscall.SIGINT), "command<-2, wake 1h0m0s", "stopping"},
			{1000 * ms, stop{why: ParentDied}, "(stopping the command: launcher), command<-15, look, wake 5s", "stopping"},
			{1001 * ms, stop{why: StdinClosed}, "", "stopping"},
			{6000 * ms, elapsed{}, killsByGrace, "killed"},
			{6001 * ms, signal(syscall.SIGTERM), "", "killed"},
			{6001 * ms, stop{why: BoundEnded}, "", "killed"},
			{6002 * ms, mainExits(signaled(9), true), "end by 9", "over"},
		}},
		{"the launcher dies in the job, by a key that the command heeds too", with(func(r *Rules) { r.Job = 7 }), []turn{
			{0, stop{why: ParentDied}, "wake 500ms", "heeding"},
			{1 * ms, stop{why: StdinClosed}, "", "heeding"},
			{2 * ms, mainExits(signaled(2), true), "end by 2", "over"},
		}},
		{"in the job by TERM, which the whole job gets", with(func(r *Rules) { r.Job = 7 }), []turn{
			{0, stop{why: ParentDied}, "wake 500ms", "heeding"},
			{1 * ms, signal(syscall.SIGTERM), "command<-15", "heeding"},
			{500 * ms, elapsed{}, "(stopping the command: launcher), look, wake 5s", "stopping"},
		}},
		{"a TERM that came with the launcher's death is not passed on again, be it by -r", rewrites, []turn{
			{1, stop{why: ParentDied}, "(stopping the command: launcher), command<-15, look, wake 5s", "stopping"},
			{2, signal(syscall.SIGUSR1), "", "stopping"},
			{3, signal(syscall.SIGTERM), "command<-15", "stopping"},
		}},
		{"one that came more than a second before it replaces nothing, whatever the grace", with(func(r *Rules) { r.Grace = time.Minute }), []turn{
			{0, signal(syscall.SIGTERM), "command<-15", "running"},
			{1001 * ms, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-15, look, wake 1m0s", "stopping"},
			{1002 * ms, stop{why: ParentDied}, "", "stopping"},
		}},
		{"wait does not wait for what a command leaves that was asked to exit", with(func(r *Rules) { r.Orphans = WaitAll }), []turn{
			{0, signal(syscall.SIGTERM), "command<-15", "running"},
			{1 * ms, sees(mainExits(exited(143), false), found(escapee)), "wake 500ms", "lingering"},
			{501 * ms, sees(elapsed{}, found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"nor for one that a reload ended", with(func(r *Rules) { r.Orphans, r.Linger = WaitAll, 0 }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{1 * ms, sees(mainExits(signaled(1), false), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"or a key of the terminal", with(func(r *Rules) { r.Orphans, r.Linger, r.Job, r.ToGroup = WaitAll, 0, 7, false }), []turn{
			{0, byKernel(syscall.SIGINT), "", "running"},
			{1 * ms, sees(mainExits(signaled(2), false), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"but it waits if that only made it exit, or the tree sent it", with(func(r *Rules) { r.Orphans, r.Linger, r.Job, r.ToGroup = WaitAll, 0, 7, false }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{0, byTree(syscall.SIGTERM), "", "running"},
			{1 * ms, sees(mainExits(signaled(15), false), found(escapee)), "", "waiting"},
			{2 * ms, signal(syscall.SIGHUP), "look", "asking"},
		}},
		{"who had INT with the command gets TERM after half of the grace, unless that ignores INT", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{500 * ms, signal(syscall.SIGINT), "command<-2", "running"},
			{900 * ms, sees(mainExits(signaled(2), false), found(member, background, below(member, 700*ms))),
				"(stopping member), (stopping background), background<-15, wake 5ms", "asking"},
			{2999 * ms, sees(elapsed{}, found(member, below(member, 700*ms))), "wake 10ms", "asking"},
			{3009 * ms, sees(elapsed{}, found(member, below(member, 700*ms))), "member<-15, wake 20ms", "asking"},
			{5900 * ms, sees(elapsed{}, found(member, below(member, 700*ms))), "(killing member), (killing below), kill children", "killing"},
		}},
		{"and half of the grace after a late TERM", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{500 * ms, signal(syscall.SIGINT), "command<-2", "running"},
			{500 * ms, sees(mainExits(signaled(2), false), found(member)), "(stopping member), wake 5ms", "asking"},
			{5501 * ms, sees(elapsed{}, found(member)), "member<-15, wake 10ms", "asking"},
			{8000 * ms, elapsed{}, "look", "asking"},
			{8001 * ms, elapsed{}, "look", "killing"},
		}},
		{"but at once if a signal comes after the command's exit", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{500 * ms, signal(syscall.SIGINT), "command<-2", "running"},
			{500 * ms, sees(mainExits(signaled(2), false), found(member)), "(stopping member), wake 5ms", "asking"},
			{501 * ms, sees(signal(syscall.SIGTERM), found(member)), "member<-15, wake 10ms", "asking"},
		}},
		{"leave names nobody who was asked with the command before --linger is over", with(func(r *Rules) { r.Orphans = LeaveAll }), []turn{
			{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
			{501 * ms, sees(mainExits(signaled(15), false), found(member, escapee)), "wake 5ms", "lingering"},
			{506 * ms, sees(elapsed{}, found(escapee)), "look", "lingering, counting"},
			{506 * ms, found(escapee), "(leaving escapee), end by 15 (left 1)", "over"},
		}},
		{"-i keeps its grace in the time of -k", with(func(r *Rules) { r.KillAfter = time.Minute }), []turn{
			{0, signal(syscall.SIGTERM), "command<-15, wake 1m0s", "stopping"},
			{2000 * ms, stop{StdinClosed, 10}, "wake 5s", "closing"},
			{7000 * ms, elapsed{5}, "wake 5s", "closing"},
			{12000 * ms, elapsed{5}, "(stopping the command: stdin), command<-15, look, wake 5s", "stopping"},
			{17000 * ms, elapsed{}, killsByGrace, "killed"},
		}},
		{"which ends all of it", with(func(r *Rules) { r.KillAfter = 9 * time.Second }), []turn{
			{0, signal(syscall.SIGTERM), "command<-15, wake 9s", "stopping"},
			{2000 * ms, stop{StdinClosed, 10}, "wake 5s", "closing"},
			{7000 * ms, elapsed{5}, "wake 2s", "closing"},
			{9000 * ms, elapsed{1}, "(killing the command: killAfter), command<-9 alone, wake 10s", "killed"},
		}},
		{"a reload does not start the clock of -k, and a hang-up does", with(func(r *Rules) { r.KillAfter = time.Second }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{0, signal(syscall.SIGQUIT), "command<-3", "running"},
			{1, byKernel(syscall.SIGHUP), "command<-1, wake 1s", "stopping"},
		}},
		{"what is running is read once, but for a stop of fini's own again, and before that", with(func(r *Rules) { r.Reports = true }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{0, signal(syscall.SIGTERM), "command<-15, survey", "running"},
			{1, signal(syscall.SIGINT), "command<-2", "running"},
			{2000 * ms, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-15, look, wake 5s", "stopping"},
			{2001 * ms, signal(syscall.SIGINT), "command<-2", "stopping"},
		}},
		{"at the end of stdin it is for the report alone", with(func(r *Rules) { r.Reports = true }), []turn{
			{0, stop{why: StdinClosed}, "wake 5s", "closing"},
			{5000 * ms, elapsed{}, "(stopping the command: stdin), survey, command<-15, look, wake 5s", "stopping"},
		}},
		{"somebody else's stop comes first", with(func(r *Rules) { r.Reports = true }), []turn{
			{0, stop{why: BoundEnded}, "(stopping the command: bind), command<-15, survey, look, wake 5s", "stopping"},
		}},
		{"the end of stdin is behind what the command still reads", defaults(), []turn{
			{0, stop{StdinClosed, 65536}, "wake 5s", "closing"},
			{5000 * ms, elapsed{4096}, "wake 5s", "closing"},
			{6000 * ms, elapsed{0}, "", "closing"}, // too soon
			{10000 * ms, elapsed{4096}, "(stopping the command: stdin), command<-15, look, wake 5s", "stopping"},
		}},
		{"which has a grace of its own, also if it comes at the end of the first", defaults(), []turn{
			{0, stop{why: StdinClosed}, "wake 5s", "closing"},
			{5000 * ms, signal(syscall.SIGTERM), "command<-15, wake 5s", "stopping"},
			{5000 * ms, elapsed{}, "", "stopping"},
		}},
		{"a command that is still there after --timeout, whatever stops it", with(func(r *Rules) { r.KillAfter = time.Second }), []turn{
			{0, signal(syscall.SIGTERM), "command<-15, wake 1s", "stopping"},
			{1, stop{why: TimedOut}, "(the exit status will be 124: timeout)", "stopping"},
			{2, mainExits(exited(7), true), "exit 124", "over"},
		}},
		{"-k: the rest of the group has --linger before SIGKILL, and escapees are asked", with(func(r *Rules) { r.KillAfter = time.Second }), slices.Concat(afterK, []turn{
			{1001 * ms, sees(mainExits(signaled(9), false), found(member, escapee)), "wake 500ms", "lingering"},
			{1501 * ms, sees(elapsed{}, found(member, escapee)), "(killing member), member<-9, wake 5ms", "clearing"},
			{1502 * ms, reap(false, member.Pid), "hurry 5ms", "clearing"},
			{1503 * ms, signal(syscall.SIGINT), "", "clearing"},
			{1503 * ms, signal(syscall.SIGINT), "", "clearing"},
			{1506 * ms, sees(elapsed{}, found(escapee), found(escapee), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "clearing, clearing, asking"},
		})},
		{"for as long as one does not end, and not one that may stay", with(func(r *Rules) {
			r.Orphans, r.Linger, r.KillAfter, r.Allow, r.Remap, r.OrphansExit = LeaveAll, 0, time.Second, true, []int{137}, 9
		}), slices.Concat(afterK, []turn{
			{1001 * ms, sees(mainExits(signaled(9), false), found(member, helper)), "(killing member), member<-9, wake 5ms", "clearing"},
			{11000 * ms, sees(elapsed{}, found(member, helper)), "member<-9, wake 1ms", "clearing"},
			{11001 * ms, sees(elapsed{}, found(member, helper)), "member<-9, look", "clearing, counting"},
			{11001 * ms, found(member, helper), `(leaving member), (leaving helper), say "exit 9 instead of 0: --orphans-exit, 1 leftover", exit 9 (left 1)`, "over"},
		})},
		{"which counts for --orphans-exit", with(func(r *Rules) {
			r.Orphans, r.Linger, r.KillAfter, r.Remap, r.OrphansExit = StopAll, 0, time.Second, []int{137}, 9
		}), slices.Concat(afterK, []turn{
			{1001 * ms, sees(mainExits(signaled(9), false), found(member)), "(killing member), member<-9, wake 5ms", "clearing"},
			{1002 * ms, reap(true, member.Pid), `say "exit 9 instead of 0: --orphans-exit, 1 leftover", exit 9 (stopped 1)`, "over"},
		})},
		{"but not under -c, where only the command was asked", with(func(r *Rules) { r.ToGroup, r.Linger = false, 0 }), []turn{
			{500 * ms, timedOut.event, timedOut.want, "stopping"},
			{5500 * ms, elapsed{}, killsByGrace, "killed"},
			{5501 * ms, sees(mainExits(signaled(9), false), found(member)), "(stopping member), member<-15, wake 5ms", "asking"},
		}},
		{"a reload is not the stop signal of -t", with(func(r *Rules) { r.StopSignals = []syscall.Signal{syscall.SIGHUP} }), []turn{
			{0, signal(syscall.SIGHUP), "command<-1", "running"},
			{600 * ms, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-1, look, wake 5s", "stopping"},
		}},
		{"each signal of --stop-signal has a grace", with(func(r *Rules) { r.StopSignals = []syscall.Signal{syscall.SIGQUIT, syscall.SIGTERM} }), []turn{
			{0, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-3, look, wake 5s", "stopping"},
			{1, stop{why: StdinClosed}, "", "stopping"},
			{2, late{time.Second}, "", "stopping"}, // which the command gets back
			{5999 * ms, elapsed{}, "", "stopping"},
			{6000 * ms, elapsed{}, "command<-15, wake 5s", "stopping"},
			{11000 * ms, elapsed{}, killsByGrace, "killed"},
		}},
		{"the parent's death has the signal of -p, and no others behind it", with(func(r *Rules) {
			r.StopSignals, r.StopOnDeath = []syscall.Signal{syscall.SIGQUIT, syscall.SIGTERM}, syscall.SIGINT
		}), []turn{
			{0, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-3, look, wake 5s", "stopping"},
			{1000 * ms, stop{why: ParentDied}, "(stopping the command: launcher), command<-2, look, wake 5s", "stopping"},
			{2001 * ms, signal(syscall.SIGINT), "command<-2", "stopping"}, // more than a second behind it, this is no copy
			{6000 * ms, elapsed{}, killsByGrace, "killed"},
		}},
		{"a command that SIGKILL does not end: those are not spared that hold nothing", pipes, []turn{
			timedOut,
			{5000 * ms, elapsed{}, killsByGrace, "killed"},
			{15000 * ms, sees(elapsed{}, found(mainChild), found(mainChild), found(mainChild, escapee)),
				"(stopping main), main<-15, (stopping escapee), escapee<-15, wake 5ms", "clearing, clearing, asking"},
		}},
		{"the signal that -r sends decides what is asked for", rewrites, []turn{
			{0, signal(syscall.SIGUSR2), "", "running"},
			{0, signal(syscall.SIGHUP), "command<-10", "running"},
			{1, signal(syscall.SIGUSR1), "command<-15, wake 1s", "stopping"},
			{2, mainExits(exited(0), false), "look", "lingering"},
			{3, signal(syscall.SIGUSR2), "", "lingering"},
			{4, sees(signal(syscall.SIGUSR1), found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"what was ignored when fini started is forwarded, and cuts nothing short", with(func(r *Rules) {
			r.KillAfter, r.Ignored = time.Second, []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
		}), []turn{
			{0, mainStops(syscall.SIGSTOP), "", "running"},
			{0, signal(syscall.SIGINT), "command<-2", "running"},
			{0, stop{why: StdinClosed}, "wake 5s", "closing"},
			{1, signal(syscall.SIGINT), "command<-2", "closing"},
			{2, mainExits(exited(0), false), "look", "lingering"},
			{3, signal(syscall.SIGINT), "", "lingering"},
			{500 * ms, elapsed{}, "", "lingering"},
			{501 * ms, sees(elapsed{}, found(escapee)), "(stopping escapee), escapee<-15, wake 5ms", "asking"},
		}},
		{"who stops the command himself continues it himself, unless it has to act on a signal", defaults(), []turn{
			{0, signal(syscall.SIGUSR1), "command<-10", "running"},
			{0, mainStops(syscall.SIGSTOP), "", "running"},
			{1 * ms, signal(syscall.SIGUSR1), "command<-10", "running"},
			{2 * ms, signal(syscall.SIGINT), "command<-2, command<-18", "running"},
			{3 * ms, signal(syscall.SIGINT), "command<-2", "running"},
			{4 * ms, mainStops(syscall.SIGTSTP), "command<-18", "running"}, // this was under way
			{1500 * ms, mainStops(syscall.SIGTSTP), "", "running"},
			{1600 * ms, stop{why: TimedOut}, "(stopping the command: timeout), survey in lines, command<-15, command<-18, look, wake 5s", "stopping"},
			{4000 * ms, mainStops(syscall.SIGSTOP), "command<-18", "stopping"},
		}},
		{"Ctrl-C again and again, in the job", with(func(r *Rules) { r.ToGroup, r.Job = false, 50 }), []turn{
			{0, byKernel(syscall.SIGINT), "", "running"},
			{0, mainExits(signaled(2), false), "look", "lingering"},
			{1, byKernel(syscall.SIGINT), "", "lingering"}, // which the leftovers have had too
			{500 * ms, sees(elapsed{}, found(member)), "(stopping member), member<-15, wake 5ms", "asking"},
			{501 * ms, byKernel(syscall.SIGINT), "", "asking"}, // the first one for them alone
			{502 * ms, byKernel(syscall.SIGINT), `say "killing the leftovers: a second SIGINT", look`, "killing"},
			{502 * ms, found(member), "(killing member), kill children", "killing"},
			{502 * ms, byKernel(syscall.SIGINT), "", "killing"},
			{503 * ms, reap(true, member.Pid), "end by 2 (stopped 1)", "over"},
		}},
		{"the lines and the report of many leftovers that are stopped", with(func(r *Rules) { r.Linger = 0 }), []turn{
			{0, sees(mainExits(exited(0), false), found(crowd...)),
				strings.Repeat("(stopping x), x<-15, ", MaxNamed) + "x<-15, x<-15, x<-15, wake 5ms", "asking"},
			{1, reap(true), `say "stopped 23 leftovers in all", exit 0 (stopped 23)`, "over"},
		}},
		{"and of many that are left", with(func(r *Rules) { r.Linger, r.Orphans = 0, LeaveAll }), []turn{
			{0, sees(mainExits(exited(0), false), found(crowd...)),
				strings.Repeat("(leaving x), ", MaxNamed) + `say "left 23 leftovers in all", exit 0 (left 23)`, "counting, over"},
		}},
	} {
		t.Run(life.name, func(t *testing.T) { play(t, New(&script{}, life.rules, mainPid, true), life.turns) })
	}
}

// What each signal asks for, as docs/behavior.md has it, and package entry for the outer fini, which has no table yet.
func TestWhatSignalsAskFor(t *testing.T) {
	r := defaults()
	r.StopSignals = []syscall.Signal{syscall.SIGUSR1, syscall.SIGQUIT}
	r.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGUSR2: syscall.SIGTERM, syscall.SIGALRM: 0, syscall.SIGXCPU: syscall.SIGALRM}
	r.Ignored = []syscall.Signal{syscall.SIGXFSZ}
	r.Rewrite[syscall.SIGXFSZ] = syscall.SIGALRM
	const all = startsKillAfter | startsStopWithin | endsWaiting | endsPause | asksLeftover | ignoredFromInside | terminates
	for _, c := range []struct {
		got  Signal
		want request
	}{
		{signal(syscall.SIGTERM), all},
		{signal(syscall.SIGINT), all&^(startsStopWithin|asksLeftover) | asksUnlessIgnored},
		{signal(syscall.SIGHUP), endsWaiting | endsPause | ignoredFromInside | terminates},
		{byKernel(syscall.SIGHUP), startsKillAfter | endsWaiting | endsPause | ignoredFromInside | terminates},
		{signal(syscall.SIGQUIT), all &^ asksLeftover}, // --stop-signal
		{signal(syscall.SIGUSR1), startsKillAfter | startsStopWithin | endsWaiting | terminates},
		{signal(syscall.SIGUSR2), all}, // -r makes it SIGTERM
		{signal(syscall.SIGALRM), 0},   // and drops this
		{signal(syscall.SIGXCPU), 0},
		{signal(syscall.SIGXFSZ), 0},
		{signal(syscall.SIGWINCH), 0},
		{signal(rtmin3), endsPause | ignoredFromInside},
	} {
		check.Equal(t, fmt.Sprintf("what %+v asks for", c.got), r.requestOf(c.got), c.want)
	}
	r.StopSignals, r.Rewrite[syscall.SIGTERM], r.Rewrite[syscall.SIGINT] = nil, syscall.SIGQUIT, 0
	check.Equal(t, "what SIGQUIT asks for", r.requestOf(signal(syscall.SIGQUIT)), endsWaiting|endsPause|ignoredFromInside|terminates)
	check.Equal(t, "what SIGTERM asks for as SIGQUIT", r.requestOf(signal(syscall.SIGTERM)), all)
	check.Equal(t, "what SIGINT asks for that is dropped", r.requestOf(signal(syscall.SIGINT)), request(0))
	r.Ignored = []syscall.Signal{syscall.SIGHUP}
	check.Equal(t, "what a hang-up asks for that is ignored", r.requestOf(byKernel(syscall.SIGHUP)), request(0))

	r = defaults()
	r.Pause, r.Initial = true, true
	outside := signal(syscall.SIGTERM)
	outside.Outside = true
	check.Equal(t, "what SIGTERM asks a sandbox for", r.requestOf(outside), all)
	check.Equal(t, "what SIGTERM from inside asks a sandbox for", r.requestOf(signal(syscall.SIGTERM)), ignoredFromInside)
	check.Equal(t, "what SIGUSR1 from inside asks a sandbox for", r.requestOf(signal(syscall.SIGUSR1)), request(0))

	early, late := entry.Sleeper{}, entry.Sleeper{Main: 1, InJob: true}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if bit := uint64(1) << (sig - 1); sig != syscall.SIGCHLD {
			check.Equal(t, fmt.Sprintf("that signal %d ends a fini that begins", sig), early.Takes()&bit != 0, requests[sig]&terminates != 0)
			check.Equal(t, fmt.Sprintf("that signal %d suspends a job", sig), late.Takes()&bit == 0, slices.Contains(suspending, sig))
		}
	}
}

// The command in the job: what reaches that by itself is not sent to it again.
func TestInTheJobsGroup(t *testing.T) {
	early := func(sig syscall.Signal) Signal {
		return Signal{Received: signals.Received{Signal: sig, FromKernel: true}, Early: true}
	}
	all := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGHUP, syscall.SIGCONT, syscall.SIGTERM}
	for name, c := range map[string]struct {
		comes func(syscall.Signal) Signal
		leads bool // fini leads the session: a hang-up reaches only that
		had   int  // so many of all
	}{
		"a process sends it":                      {signal, false, 0},
		"the tree sends it to the job":            {byTree, false, 6},
		"the terminal's keys":                     {byKernel, false, 5},
		"the terminal's keys, and fini leads":     {byKernel, true, 3},
		"a key from before the command was there": {early, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for i, sig := range all {
				got := Identity{Job: 50, Leader: c.leads}.reachedCommand(c.comes(sig))
				check.Equal(t, fmt.Sprintf("the command has had signal %d", sig), got, i < c.had)
			}
		})
	}
}

func TestHeir(t *testing.T) {
	r := defaults()
	r.Orphans, r.Linger, r.OrphansGrace, r.OrphansExit = WaitAll, 0, time.Second, 9
	for name, c := range map[string]struct {
		result Result
		turns  []turn
	}{
		"the inner fini was killed": {Result{Sig: syscall.SIGKILL}, []turn{
			{0, found(member, inGroup, escapee, holder), // escapees that hold a stream come first
				"(stopping holder), holder<-15, (stopping member), member<-15, (stopping holder in group), holder in group<-15, (stopping escapee), escapee<-15, wake 5ms", "asking"},
			{1, reap(false, mainPid), "hurry 5ms", "asking"},                  // the main child ends before others
			{4999 * ms, sees(elapsed{}, found(member)), "wake 1ms", "asking"}, // each has --grace, because the command is among them
			{5000 * ms, reap(true, holder.Pid), "end by 9 (stopped 4)", "over"},
		}},
		"no policy counts": {Result{Code: ExitFailed}, []turn{
			{0, stop{why: ParentDied}, "", "asking"},
			{0, signal(syscall.SIGTERM), "", "asking"},
			{0, found(member), "(stopping member), member<-15, wake 5ms", "asking"},
			{1, reap(true, mainPid), "exit 125 (stopped 1)", "over"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewHeir(&script{}, r, mainPid, c.result, 0)
			check.Equal(t, "how it begins", text(l.todo), `say "stopping the command: the inner fini was killed", look`)
			play(t, l, c.turns)
		})
	}
	t.Run("all has ended before", func(t *testing.T) {
		l := NewHeir(&script{reaps: []reaping{reap(true, mainPid, 300)}}, r, mainPid, Result{Sig: syscall.SIGKILL}, 0)
		l.turn()
		check.Equal(t, "what it does", text(l.todo), "end by 9")
	})
}

// What was asked with the command gets back what a freeze has taken.
func TestFrozenWithTheCommand(t *testing.T) {
	r := defaults()
	r.Linger, r.Grace, r.OrphansGrace = 0, time.Minute, time.Second
	l := New(&script{}, r, mainPid, true)
	play(t, l, []turn{
		{500 * ms, signal(syscall.SIGTERM), "command<-15", "running"},
		{900 * ms, sees(mainExits(signaled(15), false), found(member)), "(stopping member), wake 5ms", "asking"},
	})
	l.givenBack += time.Second
	play(t, l, []turn{
		{901 * ms, late{time.Second}, "", "asking"},
		{60600 * ms, sees(elapsed{}, found(member)), "wake 10ms", "asking"},
		{61499 * ms, sees(elapsed{}, found(member)), "wake 1ms", "asking"},
		{61500 * ms, sees(elapsed{}, found(member)), "(killing member), kill children", "killing"},
	})
}

func TestPause(t *testing.T) {
	pausing := []turn{
		{0, reap(false), "", "pausing"},
		{1, reap(true, 300), "", "pausing"},
		{2, signal(syscall.SIGUSR1), "", "pausing"},
		{3, stop{why: TimedOut}, "", "pausing"},
	}
	pause := func(orphans string, turns ...turn) {
		r := defaults()
		r.OrphansGrace = time.Second // which is for leftovers of a command
		r.Orphans = orphans
		play(t, New(&script{}, r, 0, false), append(pausing, turns...))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, rtmin3} {
		pause(StopAll,
			turn{4, signal(sig), fmt.Sprintf("noMain, say %q, look", "ending the pause: "+signals.Name(sig)), "lingering"},
			turn{4, found(holder), "wake 500ms", "lingering"},
			turn{500*ms + 4, sees(elapsed{}, found(holder)), "(stopping holder), holder<-15, wake 5ms", "asking"},
			turn{5 * time.Second, sees(elapsed{}, found(holder)), "wake 10ms", "asking"},
			turn{6 * time.Second, reap(true, holder.Pid), "exit 0 (stopped 1)", "over"})
	}
	pause(LeaveAll,
		turn{4, signal(syscall.SIGTERM), `noMain, say "ending the pause: SIGTERM", look`, "counting"},
		turn{4, found(holder), "(leaving holder), exit 0 (left 1)", "over"})
	for _, why := range []Reason{ParentDied, BoundEnded} {
		pause(LeaveAll,
			turn{4, stop{why: why}, "noMain, (ending the pause: " + why.String() + "), look", "lingering"},
			turn{4, reap(true), "exit 0", "over"})
	}

	// As PID 1 it takes only what comes from outside, and stops those who have come from there, and then what they have left.
	r := defaults()
	r.Pause, r.Initial = true, true
	outside := signal(rtmin3)
	outside.Outside = true
	entrant, below := orphans.Process{Pid: 60, Name: "entrant", Entered: true}, orphans.Process{Pid: 61, Name: "below", Parent: 60}
	left := below
	left.Parent = 1
	play(t, New(&script{}, r, 0, false), []turn{
		{0, signal(syscall.SIGTERM), "ignore", "pausing"},
		{1, signal(syscall.SIGQUIT), "", "pausing"},
		{2, signal(rtmin3), "", "pausing"},
		{3, outside, `noMain, say "ending the pause: SIGRTMIN+3", look`, "lingering"},
		{3, found(entrant, below), "wake 500ms", "lingering"},
		{4, signal(syscall.SIGTERM), "", "lingering"},
		{500*ms + 3, sees(elapsed{}, found(entrant, below)), "(stopping entrant), entrant<-15, wake 5ms", "asking"},
		{510 * ms, sees(elapsed{}, found(left)), "(stopping below), below<-15, wake 10ms", "asking"},
		{511 * ms, signal(syscall.SIGINT), "", "asking"},
		{512 * ms, signal(syscall.SIGINT), "", "asking"},
		{600 * ms, reap(true, left.Pid), `say "ignored at least 6 signals from inside this PID namespace in all", exit 0 (stopped 2)`, "over"},
	})
}

// In a long wait looks cost little, however many leftovers there are, and however slow the machine is.
func TestPauseFollowsTheLook(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: longPause, ms: longPause, 20 * ms: 2560 * ms, time.Second: costlyPause} {
		s := &sweep{deadline: time.Hour, pause: shortPause, lookTook: took}
		var last action
		for range 20 {
			last = s.again(0)
		}
		check.Equal(t, "the longest pause after looks that take "+took.String(), last, action(wake{want}))
	}
}
