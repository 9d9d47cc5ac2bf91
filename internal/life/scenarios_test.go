package life

import (
	"slices"
	"strings"
	"syscall"
	"time"
)

// A scenario is a world to begin with, and what may happen in it.
type scenario struct {
	name, policy string
	role         role
	parts        []part
	moves        []string
	depth        int  // how many moves
	rows         rows // of the machines' tables, as often as they were taken
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
func (as role) begin(r Rules) *world {
	w := &world{now: epoch, orphaned: as.orphaned || as.leader, supply: supply{bond: !as.first}}
	var bonds []bond
	c := &w.cast
	add := func(id *handle, pid int, parent handle, group, session int, is traits) *proc {
		p := &w.all[w.lastID]
		w.lastID++
		*p = proc{id: w.lastID, pid: pid, parent: parent, group: group, session: session, start: epoch - 500*ms, state: 'S', is: is}
		*id = p.id
		return p
	}
	add(&c.shell, 10, 0, 10, 10, 0)
	session, group, top, mainGroup := 10, 10, c.shell, firstMain
	if as.job {
		group, mainGroup = 20, 20
		r.Job, r.ToGroup, r.Leader = 20, false, as.leader
	}
	switch {
	case as.leader, as.orphaned: // the parent process is in another session, and so no link of the job
		session = 20
	case as.first:
		session, group, top = 20, 20, 0
	}
	add(&c.outer, 20, top, group, session, isFini|subreaper)
	worker, deathsig := c.outer, syscall.SIGKILL
	if as.pair {
		add(&c.inner, 21, c.outer, 21, session, isFini|subreaper)
		if worker, deathsig = c.inner, syscall.SIGTERM; as.orphaned || as.leader {
			w.setsid(w.get(c.inner))
		}
	}
	if !as.first {
		add(&c.sibling, 22, c.shell, group, session, 0)
		add(&c.bound, 23, 0, 23, 23, 0)
		bonds = []bond{{c.bound, BoundEnded}, {c.shell, ParentDied}}
	}
	add(&c.main, firstMain, worker, mainGroup, session, ofTree).deathsig = deathsig
	r.Initial = as.first
	w.rules, w.ghost.firstLeftover = r, w.lastID+1
	w.finis = []fini{{Loop: *New(&modelKernel{w: w}, r, firstMain, true), id: c.outer, bound: bonds}}
	if as.pair {
		r.Outer = 20
		inner := fini{Loop: *New(&modelKernel{w: w}, r, firstMain, true), id: c.inner, bound: append([]bond{{c.outer, FiniDied}}, bonds...)}
		w.finis = append(w.finis, inner)
	}
	return w
}

// A branch is a leftover to be, in the group of its parent or in a session of its own, and what that has started.
type branch struct {
	is    traits
	own   bool
	below []branch
}

func grouped(is traits, below ...branch) branch { return branch{is, false, below} }
func apart(is traits, below ...branch) branch   { return branch{is, true, below} }

// grow lets a process start a tree.
func (w *world) grow(from handle, tree ...branch) {
	for _, b := range tree {
		p := w.fork(w.get(from))
		p.start, p.is = w.now-200*ms, p.is&^holding|b.is|ofTree
		if b.own {
			w.setsid(p)
		}
		w.grow(p.id, b.below...)
	}
}

// last is the process that was forked last.
func (w *world) last() *proc { return w.get(w.lastID) }

// trace adds a tracer, which does not wait for its tracee.
func (w *world) trace(id handle) {
	w.get(id).is |= traced
	w.grow(w.cast.main, apart(0))
	tracer := w.last()
	tracer.parent, tracer.is, w.cast.tracer = 0, 0, tracer.id
}

// A part of a scenario is a kind of tree, or flags that decide, beside the policy.
type part struct {
	name  string
	set   func(*Rules)
	main  traits   // of the main child
	tree  []branch // that it has started
	more  func(w *world)
	moves []string
}

// The kinds of tree.
var kinds = []part{
	{name: "a command alone"},
	{name: "a group and an escapee that holds", tree: []branch{grouped(0), apart(holding)}},
	{name: "stubborn", main: ignores, tree: []branch{apart(ignores|holding, grouped(0))}},
	{name: "cleans up", tree: []branch{apart(cleans | holding), grouped(cleans | holding)}},
	{name: "another user's", tree: []branch{apart(privileged | ignores)}},
	{name: "another user's, in the group", main: ignores, tree: []branch{grouped(privileged | ignores), grouped(0)}},
	{name: "one that ignores INT, and one that handles it", tree: []branch{grouped(ignoresInt), grouped(ignores)}},
	{name: "asleep", main: asleep, tree: []branch{apart(holding)}},
	{name: "traced", tree: []branch{grouped(holding)}, more: func(w *world) { w.trace(w.cast.main) }},
	{name: "does not wait for its children", main: neglects, tree: []branch{grouped(neglects, grouped(holding))}},
	{name: "never a zombie", tree: []branch{apart(autoreap | holding)}},
	{name: "stopped", tree: []branch{apart(0)}, more: func(w *world) { w.last().state = 'T' }},
	{name: "one from before", tree: []branch{apart(ignores | holding), grouped(0)}, more: func(w *world) {
		p, top := w.last(), w.top()
		p.parent, p.is, p.group, p.session = top.id, inherited, top.group, top.session
	}},
	{name: "the inner fini is traced", tree: []branch{apart(holding)}, more: func(w *world) { w.trace(w.cast.inner) }},
	{name: "one that may stay", tree: []branch{apart(mayStay|ignores|holding, grouped(mayStay)), apart(0)}},
	{name: "a daemon", tree: []branch{apart(0, apart(holding|ignores))}, more: func(w *world) { w.last().parent = w.worker().id }},
}

// The settings are flags.
var settings = []part{
	{name: "defaults"},
	{name: "--grace 0", set: func(r *Rules) { r.Grace = 0 }},
	{name: "--orphans-grace", set: func(r *Rules) { r.Grace, r.OrphansGrace = 2*time.Second, 30*ms }, tree: []branch{grouped(ignores), apart(ignores)}},
	{name: "--stop-within", set: func(r *Rules) {
		r.Grace, r.OrphansGrace, r.StopWithin = 2*time.Second, time.Second, 600*ms
	}, tree: []branch{grouped(ignores), apart(ignores)}},
	{name: "--stop-within of a deaf command", set: func(r *Rules) {
		r.Grace, r.Linger, r.StopWithin, r.Timeout, r.StopSignals = 2*time.Second, time.Second, 600*ms, 60*ms, []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}
	}, main: ignores, tree: []branch{grouped(ignores), apart(ignores)}, more: func(w *world) { w.may(syscall.SIGUSR1, false) }},
	{name: "--linger 0", set: func(r *Rules) { r.Linger = 0 }},
	{name: "-k", set: func(r *Rules) { r.KillAfter, r.Reports = 30*ms, true }},
	{name: "-k longer than --grace", set: func(r *Rules) { r.KillAfter = 200 * ms }},
	{name: "-k and -r", set: func(r *Rules) {
		r.Linger, r.KillAfter = 0, 30*ms
		r.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGHUP: syscall.SIGUSR1, syscall.SIGUSR1: syscall.SIGTERM}
	}, main: ignores},
	{name: "-c", set: func(r *Rules) { r.ToGroup = false }},
	{name: "-e 3", set: func(r *Rules) { r.Remap = []int{3} }},
	{name: "--orphans-exit", set: func(r *Rules) { r.OrphansExit, r.Remap = 9, []int{3} }},
	{name: "--orphans-exit and --timeout", set: func(r *Rules) { r.OrphansExit, r.Linger, r.Timeout = 9, 100*ms, 60*ms }},
	{name: "--allow-orphan", set: func(r *Rules) { r.Allow = true }},
	{name: "--orphan-timeout", set: func(r *Rules) {
		stopsOrphans(r)
		r.Allow, r.OrphansExit = true, 9
	}, tree: []branch{grouped(0, apart(ignores|holding), apart(cleans|holding), apart(mayStay|holding))}},
	{name: "--pause and --orphan-timeout", set: func(r *Rules) {
		stopsOrphans(r)
		r.Pause = true
	}, more: pauses, moves: []string{"enters"}},
	{name: "-p INT", set: func(r *Rules) { r.StopOnDeath = syscall.SIGINT }},
	{name: "-p none", more: func(w *world) {
		w.supply.bond = false
		w.worker().unwatch(w.cast.shell)
	}},
	{name: "--stdin-eof", set: func(r *Rules) { r.Reports = true }, moves: []string{"closes stdin", "reads"}, more: func(w *world) {
		w.stdin.unread = 2
		w.worker().stdin = true
	}},
	{name: "--stdin-eof and -k", set: func(r *Rules) { r.KillAfter = 100 * ms }, main: ignores, moves: []string{"closes stdin", "reads"},
		more: func(w *world) {
			w.stdin.unread = 1
			w.worker().stdin = true
		}},
	{name: "--timeout", set: func(r *Rules) { r.Timeout = 60 * ms }},
	{name: "--timeout and -k", set: func(r *Rules) { r.Timeout, r.KillAfter, r.Reports = 60*ms, 200*ms, true }, main: ignores},
	{name: "--idle", set: goesIdle, moves: []string{"writes"}},
	{name: "--idle, and something to read", set: goesIdle, moves: []string{"reads"}, more: func(w *world) { w.stdin.unread = 1 }},
	{name: "--idle, no /proc", set: goesIdle, moves: []string{"writes"}, more: noProc},
	{name: "--pause", set: func(r *Rules) { r.Pause = true }, more: pauses, moves: []string{"kills 1", "enters"}},
	{name: "--pause, no /proc", set: func(r *Rules) { r.Pause = true }, moves: []string{"kills 1", "enters"}, more: func(w *world) {
		noProc(w)
		pauses(w)
	}},
	{name: "--stop-signal and --timeout", set: func(r *Rules) {
		r.Timeout, r.StopSignals = 60*ms, []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}
	}, more: func(w *world) { w.may(syscall.SIGUSR1, false) }},
	{name: "a freeze", set: func(r *Rules) { r.Grace, r.Linger = time.Second, 600*ms }, moves: []string{"all is frozen"}},
	{name: "no /proc", more: noProc},
	{name: "no pidfds", more: func(w *world) {
		w.noPidfds, w.top().deathsig = true, parentSignal
		w.worker().watched = false
		w.worker().unwatch(w.cast.shell)
	}},
}

func stopsOrphans(r *Rules) { r.OrphanTimeout = 40 * ms }

func goesIdle(r *Rules) { r.Idle = 80 * ms }
func noProc(w *world)   { w.blind = true }

// unwatch takes back that the end of a process is a reason to stop the command.
func (f *fini) unwatch(id handle) {
	f.bound = slices.DeleteFunc(slices.Clone(f.bound), func(b bond) bool { return b.id == id })
}

// pauses makes the main child and all that it has started what others have left to fini. One that docker exec runs, with a
// child, is beside that in the PID namespace.
func pauses(w *world) {
	w.get(w.cast.main).deathsig, w.cast.main = 0, 0
	if w.rules.Initial {
		w.enter()
		w.fork(w.last())
	}
	w.finis[0].Loop = *New(&modelKernel{w: w}, w.rules, 0, false)
	w.ghost.mainEnded = epoch - 2*time.Second
}

// enter adds one that comes into the PID namespace from outside. Without /proc fini can't tell who has, and leaves them alone.
func (w *world) enter() {
	p := w.fork(&proc{is: entered | traits(boolToInt(!w.blind))*ofTree})
	w.setsid(p)
	p.mark.hidden = true // until fini looks whether somebody has
}

// The moves come in bunches, so that each bunch can go deep.
var bunches = []part{
	{name: "growth", moves: []string{"forks", "ends", "calls", "is sent TERM", "20 ms"}},
	{name: "deaths", moves: []string{"ends", "is killed", "and its group", "is sent TERM", "and inner", "gets Ctrl-C", "20 ms", "2 s"}},
	{name: "stops", moves: []string{"is stopped", "is continued", "is sent TERM", "is sent INT", "is killed", "ends", "gets", "sends the job"}},
	{name: "signals", moves: []string{
		"is sent", "and inner", "and its group are sent", "and the job", "sends the job", "gets Ctrl-C", "is hung", "ends", "20 ms", "2 s",
	}},
	{name: "others", moves: []string{"becomes", "a stranger", "forks one", "ends", "is killed", "is sent TERM"}},
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
						boolToInt(policy == StopPipes && setting.name == "no /proc" && !as.begins && !as.job) +
						boolToInt(as.first && strings.HasPrefix(setting.name, "--pause"))
					unusable := policy == LeaveAll && strings.Contains(setting.name, "--orphan-timeout") // see package cli
					if unusable || !possible(as, setting.name, kind.name) || !whole && odd > most {
						continue
					}
					deeper := odd == 0 || odd == 1 && as.name == "solo" && (setting.name == "a freeze" && k == 1 || strings.HasPrefix(setting.name, "--stdin-eof"))
					for _, bunch := range bunches {
						// These are made only where there is a tracer, one who is asleep, or an inner fini.
						moves := append([]string{"waits for its tracee", "wakes"}, slices.Concat(bunch.moves, setting.moves)...)
						if bunch.name != "growth" {
							moves = append(moves, "gives up", "asks", "can't start")
						}
						name := strings.Join([]string{as.name, policy, setting.name, kind.name, bunch.name}, ", ")
						all = append(all, scenario{name, policy, as, []part{kind, setting}, moves, depth + boolToInt(deeper), rows{}})
					}
				}
			}
		}
	}
	return all
}

// start is the world of a scenario.
func (s scenario) start() *world {
	r := defaults()
	r.Grace, r.Linger, r.Orphans = 50*ms, 20*ms, s.policy
	for _, part := range s.parts {
		if part.set != nil {
			part.set(&r)
		}
	}
	if r.OrphansGrace == defaults().OrphansGrace {
		r.OrphansGrace = r.Grace
	}
	w := s.role.begin(r)
	for _, part := range s.parts {
		w.grow(w.cast.main, part.tree...)
		w.get(w.cast.main).is |= part.main
		if part.more != nil {
			part.more(w)
		}
	}
	for _, p := range w.children(w.worker().id) {
		if p.id != w.cast.main {
			w.rememberOrphan(p)
		}
	}
	if r.Timeout > 0 {
		w.oblige(r.Timeout + w.ladder())
		w.may(syscall.SIGTERM, false)
	}
	if r.Idle > 0 {
		w.talk()
	}
	if s.role.pair {
		w.fallAsleep(s.role.begins)
	}
	w.supply.left, w.supply.may, w.supply.rows = s.depth, mayMove(s.moves...), s.rows
	return w
}

// possible reports whether a role goes with a setting and a kind of tree.
func possible(as role, setting, kind string) bool {
	switch {
	case setting == "-c" && as.job,
		strings.HasPrefix(setting, "--pause") && (as.pair || as.job),
		setting == "--pause and --orphan-timeout" && !as.first,
		setting == "no pidfds" && (!as.pair || kind == "traced"), // nothing shows an end that a tracer hides
		kind == "the inner fini is traced" && !as.pair:
		return false
	}
	return !as.begins || slices.Contains([]string{"a command alone", "stubborn", "one from before"}, kind)
}
