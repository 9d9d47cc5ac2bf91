package life

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// A script is a Kernel that answers what it is told to, and notes what is asked of it.
type script struct {
	now   time.Duration
	waits []Woken         // what each Wait returns, in order
	after time.Duration   // which each one takes
	lasts bool            // each lasts until the time has come
	lates []time.Duration // and so much longer
	reaps []reaping       // what each Reap does; behind the last one nothing has ended

	calls  []string
	killed []int // of Exited
}

// shift takes the first of a list, or nothing.
func shift[T any](list *[]T) (first T) {
	if len(*list) > 0 {
		first, *list = (*list)[0], (*list)[1:]
	}
	return first
}

func (k *script) note(format string, args ...any) {
	k.calls = append(k.calls, fmt.Sprintf(format, args...))
}

func (k *script) Now() time.Duration { return k.now }

func (k *script) Wait(until time.Duration, main bool) (woken Woken) {
	k.note("wait %v %t", until, main)
	if k.now += k.after; k.lasts {
		k.now = max(k.now, until) + shift(&k.lates)
	}
	return shift(&k.waits)
}

func (k *script) Reap() (exits []reaper.Exit, none bool) {
	k.note("reap")
	r := shift(&k.reaps)
	return r.exits, r.none
}

func (k *script) Survey(named bool) { k.note("survey %t", named) }

func (k *script) Kill(own bool) (hit, refused []int) {
	k.note("kill %t", own)
	return []int{201}, nil
}

func (k *script) Exit(end End)           { k.note("exit %d", end.Status()) }
func (k *script) RecordMainEnd()         { k.note("main ended") }
func (k *script) RecordSignal(Signal)    {}
func (k *script) WarnIgnored(got Signal) { k.note("dropped %d", got.Signal) }
func (k *script) Unread() int            { return 0 }
func (k *script) Look() orphans.View     { k.note("look"); return orphans.View{} }
func (k *script) IncludeInherited()      { k.note("include") }
func (k *script) SignalCommand(_ int, sig syscall.Signal, group bool) {
	k.note("command<-%d %t", sig, group)
}
func (k *script) SignalLeftover(to orphans.Process, sig syscall.Signal) (may bool) {
	k.note("send %d %d", to.Pid, sig)
	return true
}
func (k *script) Traffic() (orphans.Traffic, error)                             { return orphans.Traffic{}, nil }
func (k *script) Tell(_ orphans.Process, _, _ string, _ bool, _ int, _ *Record) {}
func (k *script) Children() ([]int, error)                                      { return nil, nil }

func (k *script) RecordExit(x reaper.Exit, killed bool) {
	if killed {
		k.killed = append(k.killed, x.Pid)
	}
}

func (k *script) Say(_ Level, text string, _ Reason) {
	if strings.HasPrefix(text, "reaped") {
		k.note("%s", text)
	}
}

// bySIGTERM is a Wait that a signal from a process ends.
var bySIGTERM = Woken{Signals: []Signal{signal(syscall.SIGTERM)}}

// settle lets a loop go on until all Waits of its script have returned, and it would wait again.
func settle(l *Loop) {
	k := l.Kernel.(*script)
	for !l.over() && len(k.calls) < 100 && (len(k.waits) > 0 || l.mustReap || len(l.todo)+len(l.queue) > 0) {
		l.turn()
	}
}

// What the loop makes of what the kernel reports, beyond what the explorer shows.
func TestLoop(t *testing.T) {
	child := Woken{} // a Wait that SIGCHLD ends
	for name, c := range map[string]struct {
		rules func(*Rules)
		waits []Woken
		after time.Duration
		reaps []reaping
		want  string
	}{
		"orphans are reaped at once": {waits: []Woken{child, child}, reaps: []reaping{{}, reap(false, 300), reap(false, 300)},
			want: "reap, wait 0s true, reap, wait 0s true, reap"},
		"it was stopped, and has ended since": {waits: []Woken{bySIGTERM, child},
			reaps: []reaping{{}, {}, {append(mainStops(syscall.SIGSTOP).exits, mainExits(exited(3), true).exits...), true}},
			want:  "reap, wait 0s true, reap, command<-15 true, wait 0s true, reap, main ended, exit 3"},
		"it has ended, and then the time: reap before deciding": {rules: func(r *Rules) { r.Timeout = 10 * ms }, waits: []Woken{bySIGTERM}, after: 30 * ms,
			reaps: []reaping{{}, mainExits(exited(3), true)}, want: "reap, wait 1.01s true, reap, main ended, exit 3"},
		"-w": {rules: func(r *Rules) { r.WarnReaped = true }, reaps: []reaping{reap(true, 300, mainPid, mainPid)},
			want: "reap, reaped zombie 300 (), which exited with status 0, main ended, reaped zombie 100 (), which exited with status 0, exit 0"},
		"a tracer keeps its end for a while": {rules: func(r *Rules) { r.Linger = 0 }, waits: []Woken{{Main: true}, child, child},
			reaps: []reaping{{}, {}, {}, {}, mainExits(exited(3), true)},
			want:  "reap, wait 0s true, reap, main ended, reap, look, wait 1.005s false, reap, wait 1.005s false, reap, exit 3"},
		"what a round of SIGKILL has ended is reaped at once": {rules: func(r *Rules) { r.Linger, r.OrphansGrace = 0, 0 }, waits: []Woken{child},
			reaps: []reaping{mainExits(exited(0), false)},
			want:  "reap, main ended, reap, look, wait 1s false, reap, reap, look, kill true, reap, kill true, reap, kill false, reap"},
		"PID 1 had children before": {waits: []Woken{child}, rules: func(r *Rules) { r.HasInherited = true },
			reaps: []reaping{{}, mainExits(exited(3), true)}, want: "reap, wait 0s true, reap, main ended, include, reap, look, exit 3"},
		"a look finds no child left": {waits: []Woken{child}, rules: func(r *Rules) { r.Linger = 0 },
			reaps: []reaping{{}, mainExits(exited(0), false), {none: true}}, want: "reap, wait 0s true, reap, main ended, reap, exit 0"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := defaults()
			if c.rules != nil {
				c.rules(&rules)
			}
			k := &script{now: time.Second, waits: c.waits, after: c.after, reaps: c.reaps}
			settle(New(k, rules, mainPid, true))
			check.Equal(t, "its calls", strings.Join(k.calls, ", "), c.want)
		})
	}
}

// What a freeze takes from the wait of a stop is given back, but a fini that is stopped and continued again and again kills
// after two graces at most. --timeout goes on.
func TestLateSlices(t *testing.T) {
	const s = time.Second
	anHour, again := []time.Duration{time.Hour}, append([]time.Duration{0}, slices.Repeat([]time.Duration{s}, 100)...)
	for name, c := range map[string]struct {
		grace, after, timeout time.Duration // of the command line: after is -k
		lates                 []time.Duration
		want                  time.Duration // from the signal to SIGKILL
		exits                 bool          // of that signal, so that fini asks the leftovers
	}{
		"never late":                  {5 * s, 5 * s, 0, nil, 5 * s, false},
		"frozen for an hour":          {5 * s, 5 * s, 0, anHour, time.Hour + 5*s, false},
		"late again and again":        {5 * s, 5 * s, 0, again, 10250 * ms, false}, // of each 1.25 s it counts 250 ms, until 5 s are given back
		"a grace longer than -k":      {9 * s, 5 * s, 0, again, 14 * s, false},
		"-k alone":                    {0, 5 * s, 0, anHour, time.Hour + 5*s, false},
		"a --timeout that has passed": {5 * s, 5 * s, 60 * s, anHour, time.Hour + 5*s, false},
		"leftovers, after an hour":    {5 * s, 5 * s, 0, anHour, time.Hour + 4755*ms, true}, // of the 5 ms to the next look it counts 250 ms
	} {
		t.Run(name, func(t *testing.T) {
			rules := defaults()
			rules.Grace, rules.KillAfter, rules.Timeout, rules.Linger = c.grace, c.after, c.timeout, 0
			k := &script{now: s, after: time.Hour, waits: []Woken{bySIGTERM}} // an hour of idleness, which is not for later
			if c.exits {
				k.reaps = []reaping{{}, mainExits(signaled(15), false)}
			}
			l := New(k, rules, mainPid, true)
			settle(l)
			asked := k.now
			kills := func(call string) bool { return call == "command<-9 false" || call == "kill true" }
			for k.after, k.lasts, k.lates = 0, true, c.lates; !slices.ContainsFunc(k.calls, kills) && len(k.calls) < 1000; {
				l.turn()
			}
			check.Equal(t, "the time until SIGKILL", k.now-asked, c.want)
		})
	}
}

// Only the waits of a stop wake fini for each slice.
func TestNothingElseIsSliced(t *testing.T) {
	for _, m := range []Machine{&ladder{}, &sweep{stage: waiting}, paused{}} {
		l := &Loop{Kernel: &script{}, machine: m, wake: time.Hour}
		check.Equal(t, where(m)+", when it is woken", l.next(), time.Hour)
	}
}

// The report has the first reason for which fini has stopped anything.
func TestTheFirstReasonCounts(t *testing.T) {
	closed, died := Woken{Stop: []Reason{StdinClosed}}, Woken{Stop: []Reason{ParentDied}}
	for name, c := range map[string]struct {
		waits []Woken
		want  Reason
		reaps []reaping
	}{
		"closed":                         {[]Woken{closed}, StdinClosed, nil},
		"closed, and died later":         {[]Woken{closed, died}, StdinClosed, nil},
		"closed, and the command exits":  {[]Woken{closed}, StdinClosed, []reaping{{}, mainExits(exited(0), true)}},
		"the command exits, then closed": {[]Woken{{}, closed}, NoReason, []reaping{{}, mainExits(exited(0), false)}},
		"died":                           {[]Woken{died}, ParentDied, nil},
		"another reason was the first":   {[]Woken{{Stop: []Reason{BoundEnded}}, closed, died}, BoundEnded, nil},
	} {
		l := New(&script{now: time.Second, waits: c.waits, after: 10 * ms, reaps: c.reaps}, defaults(), mainPid, true)
		settle(l)
		check.Equal(t, name, l.why, c.want)
	}
}

// What wakes the loop sooner does not put anything off.
func TestHurry(t *testing.T) {
	l := &Loop{Kernel: &script{now: time.Second}}
	for _, c := range []struct{ before, want time.Duration }{
		{0, 1005 * ms}, {1003 * ms, 1003 * ms}, {2000 * ms, 1005 * ms},
	} {
		l.wake = c.before
		hurry{5 * ms}.do(l)
		check.Equal(t, fmt.Sprintf("when it is woken instead of at %v", c.before), l.wake, c.want)
	}
}

// Send knows only the processes of the last look, so the machine gets no earlier answer after that look.
func TestAnEarlierLookIsDropped(t *testing.T) {
	l := newLoop(&script{}, Rules{}, mainPid)
	l.queue = []event{elapsed{}}
	look{}.do(l)
	look{}.do(l)
	check.Equal(t, "the queue", l.queue, []event{elapsed{}, looked{}})
}

// An inner fini takes what the outer fini relays, and names one other signal that it drops.
func TestWhoseSignalsAreTaken(t *testing.T) {
	from := func(sender int) Signal {
		return Signal{Received: signals.Received{Signal: 15, Sender: sender}}
	}
	early, relayed := from(9), from(9)
	early.Early, relayed.Relayed = true, true
	for name, c := range map[string]struct {
		outer int
		got   []Signal
		taken int
		want  string
	}{
		"alone":                           {0, []Signal{from(9), byKernel(2), early}, 3, ""},
		"relayed by the outer fini":       {20, []Signal{relayed}, 1, ""},
		"from others":                     {20, []Signal{from(9), from(9)}, 0, "dropped 15"},
		"from the outer fini itself":      {20, []Signal{from(20)}, 0, ""},
		"from the kernel":                 {20, []Signal{byKernel(1)}, 0, ""},
		"to the group that both have had": {20, []Signal{early}, 0, ""},
	} {
		k := &script{}
		l := newLoop(k, Rules{Identity: Identity{Outer: c.outer}}, mainPid)
		for _, got := range c.got {
			l.Accept(got)
		}
		check.Equal(t, name, strings.Join(k.calls, ", "), c.want)
		check.Equal(t, name+", how many are taken", len(l.queue), c.taken)
	}
}
