package life

import (
	"slices"
	"strings"
	"syscall"
	"time"
)

// A scenario is a world to begin with, and what may happen in it.
type scenario struct {
	name  string
	begin func() *world
	depth int
}

// A role is where fini and its command stand.
type role struct {
	name         string
	pair, begins bool // fini is two processes, which have not started the command yet
	job          bool // the command is in the job
	leader       bool // the outer fini leads the session
	orphaned     bool // without the inner fini nothing links the job to its session
	first        bool // fini is PID 1
}

var roles = []role{
	{name: "solo"},
	{name: "pair", pair: true},
	{name: "PID 1", first: true},
	{name: "pair that begins", pair: true, begins: true},
	{name: "pair in a job", pair: true, job: true},
	{name: "solo in a job", job: true},
	{name: "pair that leads its session", pair: true, job: true, leader: true},
	{name: "pair in an orphaned job", pair: true, job: true, orphaned: true},
	{name: "pair that begins in a job", pair: true, job: true, begins: true},
}

// begin makes the world of a role, with a command that has just been started.
func (as role) begin(r Rules, unbound bool) *world {
	w := &world{now: epoch, orphaned: as.orphaned, supply: supply{bond: !as.first && !unbound}}
	c := &w.cast
	add := func(id *handle, pid int, parent handle, group, session int, is traits) *proc {
		p := &w.all[w.lastID]
		w.lastID++
		*id, *p = w.lastID, proc{id: w.lastID, pid: pid, parent: parent, group: group, session: session, start: epoch - 500*ms, state: 'S', is: is}
		return p
	}
	add(&c.shell, 10, 0, 10, 10, 0)
	session, group, top, mainGroup := 10, 10, c.shell, firstMain
	if as.job {
		group, mainGroup = 20, 20
		r.Job, r.Group, r.Leader = 20, false, as.leader
	}
	switch {
	case as.leader, as.orphaned: // the parent process is in another session, and so no link of the job
		session = 20
	case as.first:
		session, group, top = 20, 20, 0
	}
	bonds := []bond{}
	add(&c.outer, 20, top, group, session, isFini|subreaper)
	worker, deathsig := c.outer, syscall.SIGKILL
	if as.pair {
		add(&c.inner, 21, c.outer, 21, session, isFini|subreaper)
		worker, deathsig = c.inner, syscall.SIGTERM
	}
	if !as.first {
		add(&c.sibling, 22, c.shell, group, session, 0)
		add(&c.bound, 23, 0, 23, 23, 0)
		bonds = append(bonds, bond{c.bound, BoundEnded})
	}
	if w.supply.bond {
		bonds = append(bonds, bond{c.shell, ParentDied})
	}
	add(&c.main, firstMain, worker, mainGroup, session, ofTree).deathsig = deathsig
	r.Initial = as.first
	w.rules, w.ghost.firstLeftover = r, w.lastID+1
	life := func(id handle) fini {
		return fini{Loop: *New(&kernel{w: w}, r, firstMain, true), id: id, bound: bonds}
	}
	w.finis = []fini{life(c.outer)}
	if as.pair {
		r.Outer = 20
		inner := life(c.inner)
		inner.bound = append([]bond{{c.outer, FiniDied}}, bonds...)
		w.finis = append(w.finis, inner)
		w.finis[0].outer = true
	}
	return w
}

// with adds a leftover to be: a child of the main child, in its group, or in a session of its own.
func (w *world) with(parent handle, is traits, own bool) *proc {
	p := w.fork(w.get(parent))
	p.start, p.is = w.now-200*ms, p.is&^holding|is|ofTree
	if own {
		w.setsid(p)
	}
	return p
}

// trace adds a tracer, which does not wait for its tracee.
func (w *world) trace(id handle) {
	w.get(id).is |= traced
	tracer := w.with(w.cast.main, 0, true)
	tracer.parent, tracer.is, w.cast.tracer = 0, 0, tracer.id
}

// The kinds of tree.
var kinds = []struct {
	name  string
	grow  func(w *world)
	moves []string
}{
	{"a command alone", func(*world) {}, nil},
	{"a group and an escapee that holds", func(w *world) {
		w.with(w.cast.main, 0, false)
		w.with(w.cast.main, holding, true)
	}, nil},
	{"stubborn", func(w *world) {
		w.get(w.cast.main).is |= patient
		a := w.with(w.cast.main, ignores|holding, true)
		w.with(a.id, 0, false)
	}, nil},
	{"cleans up", func(w *world) {
		w.with(w.cast.main, cleans|holding, true)
		w.with(w.cast.main, cleans|holding, false)
	}, nil},
	{"another user's", func(w *world) { w.with(w.cast.main, privileged|ignores, true) }, nil},
	{"asleep", func(w *world) {
		w.get(w.cast.main).is |= asleep
		w.with(w.cast.main, holding, true)
	}, []string{"wakes"}},
	{"traced", func(w *world) {
		w.with(w.cast.main, holding, false)
		w.trace(w.cast.main)
	}, []string{"waits for its tracee"}},
	{"does not wait for its children", func(w *world) {
		w.get(w.cast.main).is |= neglects
		a := w.with(w.cast.main, neglects, false)
		w.with(a.id, holding, false)
	}, nil},
	{"never a zombie", func(w *world) { w.with(w.cast.main, autoreap|holding, true) }, nil},
	{"stopped", func(w *world) { w.with(w.cast.main, 0, true).state = 'T' }, nil},
	{"one from before", func(w *world) {
		w.with(w.cast.main, ignores|holding, true)
		p := w.with(w.cast.main, 0, false)
		p.parent, p.is = w.finis[0].id, earlier
		p.group, p.session = w.top().group, w.top().session
	}, nil},
	{"the inner fini is traced", func(w *world) {
		w.with(w.cast.main, holding, true)
		w.trace(w.cast.inner)
	}, []string{"waits for its tracee"}},
	{"one that may stay", func(w *world) {
		a := w.with(w.cast.main, mayStay|ignores|holding, true)
		w.with(a.id, mayStay, false)
		w.with(w.cast.main, 0, true)
	}, nil},
	{"a daemon", func(w *world) {
		a := w.with(w.cast.main, 0, true)
		b := w.with(a.id, holding|ignores, true)
		b.parent = w.worker().id
	}, nil},
}

// The settings are flags that decide, beside the policy.
var settings = []struct {
	name  string
	set   func(*Rules)
	moves []string
	more  func(w *world)
}{
	{"defaults", func(*Rules) {}, nil, nil},
	{"--grace 0", func(r *Rules) { r.Grace = 0 }, nil, nil},
	{"--linger 0", func(r *Rules) { r.Linger = 0 }, nil, nil},
	{"-k", func(r *Rules) { r.KillAfter = 30 * ms }, nil, nil},
	{"-k longer than --grace", func(r *Rules) { r.KillAfter = 200 * ms }, nil, nil},
	{"-k and -r", func(r *Rules) {
		r.Linger, r.KillAfter = 0, 30*ms
		r.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGHUP: syscall.SIGUSR1, syscall.SIGUSR1: syscall.SIGTERM}
	}, nil, func(w *world) { w.get(w.cast.main).is |= patient }},
	{"-c", func(r *Rules) { r.Group = false }, nil, nil},
	{"-e 3", func(r *Rules) { r.Remap = []int{3} }, nil, nil},
	{"--orphans-exit", func(r *Rules) { r.OrphansExit, r.Remap = 9, []int{3} }, nil, nil},
	{"--orphans-exit and --timeout", func(r *Rules) { r.OrphansExit, r.Linger = 9, 100*ms }, nil, timesOut},
	{"--allow-orphan", func(r *Rules) { r.Allow = true }, nil, nil},
	{"-p INT", func(r *Rules) { r.Deathsig = syscall.SIGINT }, nil, nil},
	{"-p none", func(*Rules) {}, nil, nil},
	{"--stdin-eof", func(*Rules) {}, []string{"closes stdin", "reads"}, func(w *world) {
		w.stdin.unread = 2
		w.worker().stdin = true
	}},
	{"--timeout", func(*Rules) {}, nil, timesOut},
	{"--timeout and -k", func(r *Rules) { r.KillAfter = 200 * ms }, nil, func(w *world) {
		timesOut(w)
		w.get(w.cast.main).is |= patient
	}},
	{"--idle", func(*Rules) {}, []string{"writes"}, goesIdle},
	{"--idle, and something to read", func(*Rules) {}, []string{"reads"}, func(w *world) {
		goesIdle(w)
		w.stdin.unread = 1
	}},
	{"--idle, no /proc", func(*Rules) {}, []string{"writes"}, func(w *world) {
		goesIdle(w)
		w.blind = true
	}},
	{"--pause", func(*Rules) {}, nil, pauses},
	{"--stop-signal and --timeout", func(r *Rules) { r.StopSignals = []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} }, nil, func(w *world) {
		timesOut(w)
		w.may(syscall.SIGUSR1, false)
	}},
	{"a freeze", func(r *Rules) { r.Grace, r.Linger = time.Second, 600*ms }, []string{"all is frozen"}, nil},
	{"no /proc", func(*Rules) {}, nil, func(w *world) { w.blind = true }},
	{"no pidfds", func(*Rules) {}, nil, func(w *world) {
		w.noPidfds, w.top().deathsig = true, parentSignal
		inner := &w.finis[1]
		inner.byPidfd = false
		inner.bound = slices.DeleteFunc(slices.Clone(inner.bound), func(b bond) bool { return b.id == w.cast.shell })
	}},
}

// pauses makes the main child and all that it has started what others have left to fini.
func pauses(w *world) {
	f := &w.finis[0]
	w.get(w.cast.main).deathsig, w.cast.main = 0, 0
	f.Loop = *New(&kernel{w: w}, w.rules, 0, false)
	w.ghost.mainEnded = true
}

// goesIdle begins a world under --idle.
func goesIdle(w *world) {
	worker := w.worker()
	w.rules.Idle = 80 * ms
	worker.rules.Idle, worker.machine.(*ladder).Idle = w.rules.Idle, w.rules.Idle
	worker.wake = w.now + w.rules.lookIdle()
	w.traffic, w.ghost.talkedAt, w.ghost.talked = 1, w.now, true
}

func timesOut(w *world) {
	w.supply.timeout = w.now + 60*ms
	w.worker().timeout = w.supply.timeout
	w.ghost.mustEnd = w.supply.timeout + w.ladder()
	w.may(syscall.SIGTERM, false)
}

// The moves come in bunches, so that each bunch can go deep.
var bunches = []struct {
	name  string
	moves []string
	job   []string // in a job also, or instead
}{
	{"growth", []string{"forks", "ends", "calls", "is sent TERM", "20 ms"}, nil},
	{"deaths", []string{"ends", "is killed", "and its group", "is sent TERM", "and inner", "20 ms", "2 s"}, []string{"gets Ctrl-C"}},
	{"stops", []string{"is stopped", "is continued", "is sent TERM", "is sent INT", "is killed", "ends"}, []string{"gets", "sends the job"}},
	{"signals", []string{"is sent", "and inner", "and its group are sent", "ends", "20 ms", "2 s"}, []string{"gets Ctrl-C", "is hung", "sends the job", "and the job"}},
	{"others", []string{"becomes", "a stranger", "forks one", "ends", "is killed", "is sent TERM"}, nil},
}

// scenarios are every combination of two of policy, setting, role, tree and moves with the
// plainest of the rest; whole gives every combination of all.
func scenarios(whole bool, depth int) (all []scenario) {
	for p, policy := range []string{StopAll, StopPipes, WaitAll, LeaveAll} {
		for s, setting := range settings {
			for _, as := range roles {
				for k, kind := range kinds {
					odd := boolToInt(p > 0) + boolToInt(s > 0) + boolToInt(as.first || as.job) + boolToInt(k > 1)
					most := 1 + boolToInt(p > 0 && k > 0 || kind.name == "one that may stay" && setting.name == "--allow-orphan") +
						boolToInt(policy == StopPipes && setting.name == "no /proc" && !as.begins && !as.job)
					if !possible(as, setting.name, kind.name) || !whole && odd > most {
						continue
					}
					deeper := odd == 0 || odd == 1 && as.name == "solo" && (setting.name == "a freeze" && k == 1 || setting.name == "--stdin-eof")
					for _, bunch := range bunches {
						names := slices.Concat(bunch.moves, kind.moves, setting.moves)
						if as.pair && bunch.name != "growth" {
							names = append(names, "gives up")
						}
						if as.begins && bunch.name != "growth" {
							names = append(names, "asks", "can't start")
						}
						if as.job {
							names = append(names, bunch.job...)
						}
						all = append(all, scenario{
							name: strings.Join([]string{as.name, policy, setting.name, kind.name, bunch.name}, ", "),
							begin: func() *world {
								r := Rules{Policy{Grace: 50 * ms, Linger: 20 * ms, Orphans: policy, OrphansExit: -1, Deathsig: syscall.SIGTERM}, Identity{Group: true}}
								setting.set(&r)
								w := as.begin(r, setting.name == "-p none")
								kind.grow(w)
								if setting.more != nil {
									setting.more(w)
								}
								if as.pair {
									w.fallAsleep(as.begins)
								}
								w.supply.may = mayMove(names...)
								if !as.leader {
									w.supply.may &^= mayMove("is hung")
								}
								if as.leader || as.orphaned {
									w.supply.may &^= mayMove("gets fg")
								}
								return w
							},
							depth: depth + boolToInt(deeper),
						})
					}
				}
			}
		}
	}
	return all
}

// possible reports whether a role goes with a setting and a kind of tree.
func possible(as role, setting, kind string) bool {
	switch {
	case setting == "-c" && as.job,
		setting == "--pause" && (as.pair || as.job),
		setting == "no pidfds" && (!as.pair || kind == "traced"), // nothing shows an end that a tracer hides
		kind == "the inner fini is traced" && !as.pair:
		return false
	}
	return !as.begins || slices.Contains([]string{"a command alone", "stubborn", "one from before"}, kind)
}
