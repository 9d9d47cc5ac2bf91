package life

import (
	"flag"
	"hash/crc32"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The explorer tries every order in which things can happen in a world: what finis do, and up
// to a depth what the tree and all others do (the moves). Worlds that can't be told apart by
// their future are one state. `make explore` goes deeper than `go test` does.
var (
	depth = flag.Int("explore.depth", 1, "moves that the tree and others make, in every order; the plainest scenarios get one more")
	limit = flag.Int("explore.states", 4000, "leave a scenario after so many states")
	walks = flag.Int("explore.walks", 30, "random walks behind the depth, in each scenario")
	whole = flag.Bool("explore.whole", false, "every combination of policy, flags, role, tree and moves, and not only of any two")
	seed  = flag.Uint64("explore.seed", 1, "of the random walks")
	only  = flag.String("explore.only", "", "the scenarios whose name contains this")
)

// A move is what others than fini do.
type move struct {
	name  string
	often uint8                        // at most so many times
	who   func(w *world, p *proc) bool // nil if it is nobody in the world
	make  func(w *world, p *proc)
}

// supply is what may still happen in a world.
type supply struct {
	left    int // moves
	used    [40]uint8
	may     uint64 // which moves, as bits
	bond    bool   // to the parent process
	timeout time.Duration
	rows    rows
}

func inTree(_ *world, p *proc) bool  { return p.has(ofTree) && p.state == 'S' && !p.has(asleep) }
func shell(w *world, p *proc) bool   { return p.id == w.cast.shell && p.alive() }
func topFini(w *world, p *proc) bool { return p.id == w.finis[0].id && p.alive() }
func killable(w *world, p *proc) bool {
	return p.alive() && p.id != w.cast.tracer && p.id != w.cast.sibling
}
func (w *world) top() *proc  { return w.get(w.finis[0].id) }
func (w *world) from() *proc { return &proc{pid: 9} } // a process outside of the world
func sending(sig syscall.Signal) func(*world, *proc) {
	return func(w *world, p *proc) {
		w.may(w.rules.rewritten(sig), true)
		_ = w.kill(w.from(), p, sig)
	}
}

// key is a key of the terminal, or a hang-up: the kernel signals a group.
func key(sig syscall.Signal) func(*world, *proc) {
	return func(w *world, p *proc) {
		w.may(sig, false)
		if f := &w.finis[0]; f.phase == dozing && (f.sleeper.Main == 0 || f.sleeper.Early) {
			w.may(sig, false) // it may come twice: a limit
		}
		_ = w.killGroup(nil, w.rules.Job, sig)
	}
}

const endsInLook = "ends during a look"

// treeMoves are all that the tree and others can do. "forks" is the first one, see choices.
var treeMoves = []move{
	{"forks", 2, inTree, func(w *world, p *proc) { w.fork(p) }},
	{"forks one that is never a zombie", 1, inTree, func(w *world, p *proc) {
		if child := w.fork(p); child != nil {
			child.is |= autoreap
		}
	}},
	{"ends", 2, inTree, func(w *world, p *proc) { w.exit(p, exited(3*boolToInt(p.id == w.cast.main))) }},
	{"calls setsid", 1, func(w *world, p *proc) bool { return inTree(w, p) && p.group != p.pid }, (*world).setsid},
	{"calls setpgid", 1, func(w *world, p *proc) bool { return inTree(w, p) && p.group != p.pid }, (*world).setpgid},
	{"becomes another user", 1, inTree, (*world).setuid},
	{"is stopped", 1, func(w *world, p *proc) bool { return killable(w, p) && p.state == 'S' && p.id != w.cast.shell },
		func(w *world, p *proc) { _ = w.kill(w.from(), p, syscall.SIGSTOP) }},
	{"is continued", 1, func(_ *world, p *proc) bool { return p.state == 'T' },
		func(w *world, p *proc) { _ = w.kill(w.from(), p, syscall.SIGCONT) }},
	{"is killed", 2, killable, func(w *world, p *proc) { _ = w.kill(w.from(), p, syscall.SIGKILL) }},
	{"is sent TERM", 2, topFini, sending(syscall.SIGTERM)},
	{"is sent INT", 2, topFini, sending(syscall.SIGINT)},
	{"is sent HUP", 1, topFini, sending(syscall.SIGHUP)},
	{"is sent USR1", 1, topFini, sending(syscall.SIGUSR1)},
	{"and inner are sent TERM", 1, func(w *world, p *proc) bool { return topFini(w, p) && w.cast.inner != 0 },
		func(w *world, p *proc) {
			sending(syscall.SIGTERM)(w, p)
			_ = w.kill(w.from(), w.get(w.cast.inner), syscall.SIGTERM)
		}},
	{"and its group are sent TERM", 1, func(w *world, p *proc) bool { return shell(w, p) && w.rules.Job == 0 },
		func(w *world, p *proc) {
			w.may(syscall.SIGTERM, false)
			if w.supply.bond && w.rules.Deathsig == syscall.SIGTERM && w.top() != nil {
				w.ghost.due[0]-- // one for both
			}
			_ = w.killGroup(w.from(), p.group, syscall.SIGTERM)
		}},
	{"and its group are killed", 1, func(w *world, p *proc) bool { return shell(w, p) && w.rules.Job == 0 },
		func(w *world, p *proc) { _ = w.killGroup(w.from(), p.group, syscall.SIGKILL) }},
	{"gets Ctrl-C", 2, topFini, key(syscall.SIGINT)},
	{"gets Ctrl-Z", 1, topFini, key(syscall.SIGTSTP)},
	{"gets fg", 1, shell, func(w *world, p *proc) { _ = w.killGroup(p, w.rules.Job, syscall.SIGCONT) }},
	{"is hung up on", 1, topFini, func(w *world, p *proc) {
		w.may(w.rules.rewritten(syscall.SIGHUP), true)
		_ = w.kill(nil, p, syscall.SIGHUP)
	}},
	{"sends the job TERM", 1, inTree, func(w *world, p *proc) {
		w.may(syscall.SIGTERM, false)
		p.mark.sender = true
		_ = w.killGroup(p, w.rules.Job, syscall.SIGTERM)
	}},
	{"and the job are sent TERM", 1, topFini, func(w *world, p *proc) {
		w.may(syscall.SIGTERM, true)
		w.may(syscall.SIGTERM, true) // there, and by way of fini: a limit that docs/limits.md states
		_ = w.killGroup(w.from(), w.rules.Job, syscall.SIGTERM)
	}},
	{"closes stdin", 1, func(w *world, p *proc) bool { return shell(w, p) && !w.stdin.closed }, func(w *world, _ *proc) {
		w.stdin.closed = true
		w.happens(fact{what: closes})
	}},
	{"reads its stdin", 2, func(w *world, p *proc) bool { return p.id == w.cast.main && inTree(w, p) && w.stdin.unread > 0 },
		func(w *world, _ *proc) {
			w.stdin.unread--
			w.talk()
		}},
	{"writes", 2, func(w *world, p *proc) bool { return p.id == w.cast.main && inTree(w, p) }, func(w *world, _ *proc) { w.talk() }},
	{"a stranger is born", 1, nil, func(w *world, _ *proc) {
		if child := w.fork(&proc{}); child != nil {
			w.setsid(child)
		}
	}},
	{"waits for its tracee", 1, func(w *world, p *proc) bool { return p.id == w.cast.tracer },
		func(w *world, _ *proc) {
			for _, p := range w.procs() {
				if p.has(traced) {
					p.is &^= traced
					w.notify(p)
				}
			}
		}},
	{"wakes", 1, func(_ *world, p *proc) bool { return p.alive() && p.has(asleep) }, func(w *world, p *proc) {
		p.is &^= asleep
		if p.pending.has(syscall.SIGKILL) {
			w.exit(p, signaled(syscall.SIGKILL))
		} else if p.state == 'S' {
			w.act(p)
		}
	}},
	{"20 ms pass", 2, nil, func(w *world, _ *proc) { w.pass(w.now + 20*ms) }}, // a busy machine
	{"all is frozen for 4 s", 1, nil, func(w *world, _ *proc) {
		w.happens(fact{what: freezes, passed: 4 * time.Second})
		w.pass(w.now + 4*time.Second)
	}},
	{endsInLook, 1, func(*world, *proc) bool { return false }, nil}, // see choices
	{"2 s pass", 1, nil, func(w *world, _ *proc) {
		if w.idle() && w.next() == 0 {
			w.pass(w.now + 2*time.Second)
		}
	}},
}

// moves are all moves.
var moves []move

func init() { moves = append(treeMoves, pairMoves...) }

// talk moves the counters of those that have fini's standard input.
func (w *world) talk() {
	w.traffic++
	w.happens(fact{what: talks})
}

// mayMove is the bits of moves by their names' beginnings.
func mayMove(names ...string) (bits uint64) {
	for _, name := range names {
		before := bits
		for i, m := range moves {
			if strings.HasPrefix(m.name, name) {
				bits |= 1 << i
			}
		}
		if bits == before {
			panic("no such move: " + name)
		}
	}
	return bits
}

// pass lets time pass. While a fini is stopped, nothing is due from it.
func (w *world) pass(to time.Duration) {
	w.happens(fact{what: passes, passed: to - w.now})
	if to/tick != w.now/tick {
		w.recent = 0
	}
	w.now, w.spins = to, 0
}

func (w *world) idle() bool {
	return !slices.ContainsFunc(w.finis, func(f fini) bool { return w.ready(&f) })
}

// next is when the first fini wants to be woken.
func (w *world) next() (first time.Duration) {
	for i := range w.finis {
		f := &w.finis[i]
		if p := w.get(f.id); p == nil || p.state != 'S' {
			continue
		}
		if at := f.next(); at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// A choice is what happens next: a fini goes on, the clock does, or somebody makes a move.
type choice struct {
	kind uint8 // goesOn, slips, clock, or moved + index of a move
	slot uint8 // of a fini, or in world.all
}

const (
	goesOn uint8 = iota
	slips        // fini kills all but one that this one forks just now: a sweep is not atomic, see proc_pid_stat(5)
	misses       // fini looks while this one ends, and does not see whom it leaves
	clock
	moved
)

func (w *world) choices(to []choice) []choice {
	each := func(kind uint8, who func(w *world, p *proc) bool) {
		for slot, p := range w.procs() {
			if who(w, p) {
				to = append(to, choice{kind, uint8(slot)})
			}
		}
	}
	idle := true
	for i := range w.finis {
		f := &w.finis[i]
		if !w.ready(f) {
			continue
		}
		idle = false
		to = append(to, choice{goesOn, uint8(i)})
		if doing[look](f) && w.mayMiss() {
			each(misses, func(w *world, p *proc) bool { return inTree(w, p) && len(w.childrenOf(p.id)) > 0 })
		}
		if doing[kill](f) && f.todo[0] == (kill{}) && w.supply.left > 0 && w.mayMake(0) {
			each(slips, inTree)
		}
	}
	if idle && w.next() != 0 {
		to = append(to, choice{clock, 0})
	}
	if alive, _ := w.finisAlive(); w.supply.left == 0 || !alive {
		return to
	}
	for i := range moves {
		switch kind := moved + uint8(i); {
		case !w.mayMake(i):
		case moves[i].who == nil:
			to = append(to, choice{kind, most})
		default:
			each(kind, moves[i].who)
		}
	}
	return to
}

// mayMake reports whether a move may be made once more.
func (w *world) mayMake(i int) bool {
	return w.supply.may&(1<<i) != 0 && w.supply.used[i] < moves[i].often
}

func moveOf(name string) int {
	return slices.IndexFunc(moves, func(m move) bool { return m.name == name })
}

// mayMiss reports whether a look may miss somebody once more, where an empty one is an end.
func (w *world) mayMiss() bool { return w.rules.Orphans == StopPipes && w.mayMake(moveOf(endsInLook)) }

// childrenOf are the ids of the children of one.
func (w *world) childrenOf(id handle) (ids []handle) {
	for _, p := range w.procs() {
		if p.parent == id {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// take makes a choice.
func (w *world) take(c choice) {
	p := &w.all[c.slot%most]
	switch {
	case c.kind == goesOn:
		if w.spins++; w.spins > 300 {
			w.breach("bounded", "finis go on and on, and no time passes")
		}
		w.run(&w.finis[c.slot])
	case c.kind == slips:
		w.supply.left--
		w.supply.used[0]++
		for i := range w.finis {
			if f := &w.finis[i]; doing[kill](f) && w.ready(f) {
				w.scene("%s forks", w.name(p.id))
				f.Kernel = &kernel{w: w, f: f}
				if child := w.fork(p); child != nil {
					f.Kernel = &kernel{w: w, f: f, unseen: child.id}
				}
				f.turn()
				return
			}
		}
	case c.kind == misses: // which goes as deep as without it
		w.supply.used[moveOf(endsInLook)]++
		w.scene("%s %s", w.name(p.id), endsInLook)
		missed := append(w.childrenOf(p.id), p.id)
		for _, id := range missed {
			w.get(id).mark.termed = true // it may come to light too late for that
		}
		w.exit(p, exited(3*boolToInt(p.id == w.cast.main)))
		for i := range w.finis {
			if f := &w.finis[i]; doing[look](f) && w.ready(f) {
				f.Kernel = &kernel{w: w, f: f, missed: missed}
				f.turn()
				return
			}
		}
	case c.kind == clock:
		w.pass(w.next())
	default:
		m := &moves[c.kind-moved]
		w.supply.left--
		w.supply.used[c.kind-moved]++
		if m.who == nil {
			w.scene("%s", m.name)
		} else {
			w.scene("%s %s", w.name(p.id), m.name)
		}
		m.make(w, p)
	}
	if w.broken == "" && w.idle() {
		w.rest()
	}
}

// A scenario is a world to begin with, and what may happen in it.
type scenario struct {
	name  string
	begin func() *world
	depth int
}

// The roles.
type part int

const (
	asSolo part = iota
	asPair
	asPID1
	asBeginning // a pair whose command is not started yet
	asPairInJob
	asSoloInJob
	asLeader // a pair in the job, whose outer fini leads the session
	asPairInOrphanedJob
	asBeginningInJob
)

var parts = []string{"solo", "pair", "PID 1", "pair that begins", "pair in a job", "solo in a job", "pair that leads its session", "pair in an orphaned job", "pair that begins in a job"}

// begin makes the world of a role, with a command that has just been started.
func begin(r Rules, as part, unbound bool) *world {
	w := &world{now: epoch, rules: r, supply: supply{bond: as != asPID1 && !unbound}}
	c := &w.cast
	inJob := as >= asPairInJob
	add := func(id *handle, pid int, parent handle, group, session int, is traits) *proc {
		w.lastID++
		*id = w.lastID
		p := proc{id: w.lastID, pid: pid, parent: parent, group: group, session: session, start: epoch - 500*ms, state: 'S', is: is}
		w.all[w.lastID-1] = p
		return &w.all[w.lastID-1]
	}
	add(&c.shell, 10, 0, 10, 10, 0)
	session, group, top := 10, 10, c.shell
	if inJob {
		group = 20
	}
	switch as {
	case asLeader, asPairInOrphanedJob: // the parent process is in another session, and so no link of the job
		session = 20
	case asPID1:
		session, group, top = 20, 20, 0
		w.all[0] = proc{}
		add(&c.shell, 10, 0, 10, 10, 0)
	}
	pair := as != asSolo && as != asPID1 && as != asSoloInJob
	add(&c.outer, 20, top, group, session, isFini|subreaper)
	worker := c.outer
	if pair {
		add(&c.inner, 21, c.outer, 21, session, isFini|subreaper)
		worker = c.inner
	}
	if as != asPID1 {
		add(&c.sibling, 22, c.shell, group, session, 0)
		add(&c.bound, 23, 0, 23, 23, 0)
	}
	r.Leader, w.orphaned = as == asLeader, as == asPairInOrphanedJob
	mainGroup := firstMain
	if inJob {
		r.Job, r.Group, mainGroup = 20, false, 20
	}
	main := add(&c.main, firstMain, worker, mainGroup, session, ofTree)
	main.deathsig = syscall.SIGKILL
	if pair {
		main.deathsig = syscall.SIGTERM
	}
	bonds := []bond{}
	if as != asPID1 {
		bonds = append(bonds, bond{c.bound, BoundEnded})
	}
	if w.supply.bond {
		bonds = append(bonds, bond{c.shell, ParentDied})
	}
	w.rules = r
	only := fini{Loop: *New(&kernel{w: w}, r, firstMain, true), id: c.outer, outer: pair, mainID: c.main, bound: bonds, pid1: as == asPID1}
	w.finis = []fini{only}
	if pair {
		r.Outer = 20
		inner := fini{Loop: *New(&kernel{w: w}, r, firstMain, true), id: c.inner, inner: true, mainID: c.main}
		inner.bound = append([]bond{{c.outer, FiniDied}}, bonds...)
		w.finis = append(w.finis, inner)
	}
	w.ghost.firstLeftover = w.lastID + 1
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
		w.get(w.cast.main).is |= traced
		w.with(w.cast.main, holding, false)
		tracer := w.with(w.cast.main, 0, true)
		tracer.parent, tracer.is, w.cast.tracer = 0, 0, tracer.id
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
		tracer := w.with(w.cast.main, 0, true)
		tracer.parent, tracer.is, w.cast.tracer = 0, 0, tracer.id
		w.get(w.cast.inner).is |= traced
	}, []string{"waits for its tracee"}},
	{"one that may stay", func(w *world) {
		a := w.with(w.cast.main, mayStay|ignores|holding, true)
		w.with(a.id, mayStay, false)
		w.with(w.cast.main, 0, true)
	}, nil},
	{"a daemon", func(w *world) {
		a := w.with(w.cast.main, 0, true)
		b := w.with(a.id, holding|ignores, true)
		b.parent = w.finis[len(w.finis)-1].id
	}, nil},
}

// flags that decide, beside the policy.
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
		w.finis[len(w.finis)-1].stdin = true
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
	w.get(w.cast.main).deathsig, w.cast.main, f.mainID = 0, 0, 0
	f.Loop = *New(&kernel{w: w}, w.rules, 0, false)
	w.ghost.mainEnded = true
}

// goesIdle begins a world under --idle.
func goesIdle(w *world) {
	worker := &w.finis[len(w.finis)-1]
	w.rules.Idle = 80 * ms
	worker.rules.Idle, worker.machine.(*ladder).Idle = w.rules.Idle, w.rules.Idle
	worker.wake = w.now + w.rules.lookIdle()
	w.traffic, w.ghost.talkedAt, w.ghost.talked = 1, w.now, true
}

func timesOut(w *world) {
	w.supply.timeout = w.now + 60*ms
	w.finis[len(w.finis)-1].timeout = w.supply.timeout
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

var policies = []string{StopAll, StopPipes, WaitAll, LeaveAll}

// scenarios are every combination of two of policy, setting, role, tree and moves with the
// plainest of the rest; whole gives every combination of all.
func scenarios(whole bool, depth int) (all []scenario) {
	for p, policy := range policies {
		for s, setting := range settings {
			for as := range part(len(parts)) {
				for k, kind := range kinds {
					for _, bunch := range bunches {
						odd := boolToInt(p > 0) + boolToInt(s > 0) + boolToInt(as != asSolo && as != asPair && as != asBeginning) + boolToInt(k > 1)
						most := 1 + boolToInt(k > 0 && p > 0 || kind.name == "one that may stay" && setting.name == "--allow-orphan")
						if policy == StopPipes && setting.name == "no /proc" && as <= asPID1 {
							most++
						}
						begins := as == asBeginning || as == asBeginningInJob
						pair := as != asSolo && as != asPID1 && as != asSoloInJob
						// Without a pidfd nothing shows an end that a tracer hides.
						if setting.name == "no pidfds" && kind.name == "traced" {
							continue
						}
						if setting.name == "-c" && as >= asPairInJob || begins && k > 0 && kind.name != "stubborn" && kind.name != "one from before" ||
							pair && setting.name == "--pause" || as == asSoloInJob && setting.name == "--pause" || !pair && (setting.name == "no pidfds" || kind.name == "the inner fini is traced") || !whole && odd > most {
							continue
						}
						names := slices.Concat(bunch.moves, kind.moves, setting.moves)
						if pair && bunch.name != "growth" {
							names = append(names, "gives up")
						}
						if begins && bunch.name != "growth" {
							names = append(names, "asks", "can't start")
						}
						if as >= asPairInJob {
							names = append(names, bunch.job...)
						}
						all = append(all, scenario{
							name: strings.Join([]string{parts[as], policy, setting.name, kind.name, bunch.name}, ", "),
							begin: func() *world {
								r := Rules{Policy{Grace: 50 * ms, Linger: 20 * ms, Orphans: policy, OrphansExit: -1, Deathsig: syscall.SIGTERM}, Identity{Group: true}}
								setting.set(&r)
								w := begin(r, as, setting.name == "-p none")
								kind.grow(w)
								if setting.more != nil {
									setting.more(w)
								}
								if pair {
									w.fallAsleep(begins)
								}
								w.supply.may = mayMove(names...)
								if as != asLeader {
									w.supply.may &^= mayMove("is hung")
								}
								if as == asLeader || as == asPairInOrphanedJob {
									w.supply.may &^= mayMove("gets fg")
								}
								return w
							},
							depth: depth + boolToInt(odd == 0 || setting.name == "a freeze" && odd == 1 && as == asSolo && k == 1 || setting.name == "--stdin-eof" && odd == 1 && as == asSolo),
						})
					}
				}
			}
		}
	}
	return all
}

// A node is how a state was come by.
type node struct {
	from int32
	by   choice
}

// outcome is what exploring a scenario has shown.
type outcome struct {
	states, steps int
	whole         bool // all were seen
	broken        string
	history       []choice
}

// explore tries all orders of a scenario, nearest first, so that a history that breaks an
// invariant is the shortest.
func explore(s scenario, limit int, rows rows) (o outcome) {
	first := s.begin()
	first.supply.left, first.supply.rows = s.depth, rows
	type open struct {
		w  *world
		at int32
	}
	hash := maphash.MakeSeed()
	seen := map[uint64]struct{}{}
	nodes := []node{{from: -1}}
	level := []open{{first, 0}}
	var list []choice
	for len(level) > 0 {
		var next []open
		for _, o1 := range level {
			list = o1.w.choices(list[:0])
			for i, c := range list {
				w := o1.w
				if i < len(list)-1 {
					w = w.clone()
				}
				w.take(c)
				o.steps++
				if w.broken != "" {
					o.broken, o.states = w.broken, len(nodes)
					o.history = []choice{c}
					for at := o1.at; nodes[at].from >= 0; at = nodes[at].from {
						o.history = append(o.history, nodes[at].by)
					}
					slices.Reverse(o.history)
					return o
				}
				key := w.digest(hash)
				if _, ok := seen[key]; ok {
					continue
				}
				seen[key] = struct{}{}
				if len(nodes) >= limit {
					o.states = len(nodes)
					return o
				}
				nodes = append(nodes, node{o1.at, c})
				next = append(next, open{w, int32(len(nodes) - 1)})
			}
		}
		level = next
	}
	o.states, o.whole = len(nodes), true
	return o
}

// walk goes one way behind the depth. pick picks one of n.
func walk(s scenario, pick func(n int) int, moves int, rows rows) (broken string, history []choice) {
	w := s.begin()
	w.supply.left, w.supply.rows = moves, rows
	var list []choice
	for range 600 {
		list = w.choices(list[:0])
		if len(list) == 0 {
			break
		}
		// Moves are many, and would leave finis no time.
		c := list[pick(len(list))]
		if c.kind >= moved && pick(3) > 0 {
			c = list[0]
		}
		w.take(c)
		history = append(history, c)
		if w.broken != "" {
			return w.broken, history
		}
	}
	return "", nil
}

// FuzzStep lets a script pick what happens, in any scenario.
func FuzzStep(f *testing.F) {
	all := scenarios(true, 8)
	f.Add(uint16(0), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, number uint16, script []byte) {
		pick := func(n int) (picked int) {
			if len(script) > 0 {
				picked, script = int(script[0])%n, script[1:]
			}
			return picked
		}
		s := all[int(number)%len(all)]
		if broken, history := walk(s, pick, s.depth, rows{}); broken != "" {
			t.Error(tellHistory(s, s.depth, history, broken))
		}
	})
}

// TestExplore is the explorer.
func TestExplore(t *testing.T) {
	start := time.Now()
	all := scenarios(*whole, *depth)
	if *only != "" {
		all = slices.DeleteFunc(all, func(s scenario) bool { return !strings.Contains(s.name, *only) })
	}
	var next, seen, steps, walked atomic.Int64
	var cut []string
	var failed atomic.Bool
	total := rows{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			taken := rows{}
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				for row, n := range taken {
					total[row] += n
				}
			}()
			for i := int(next.Add(1)) - 1; i < len(all) && !failed.Load(); i = int(next.Add(1)) - 1 {
				s := all[i]
				o := explore(s, *limit, taken)
				seen.Add(int64(o.states))
				steps.Add(int64(o.steps))
				if !o.whole && o.broken == "" {
					mu.Lock()
					cut = append(cut, s.name)
					mu.Unlock()
				}
				depth := s.depth
				random := rand.New(rand.NewPCG(*seed, uint64(crc32.ChecksumIEEE([]byte(s.name)))))
				for range *walks {
					if o.broken != "" {
						break
					}
					depth = s.depth + 8
					o.broken, o.history = walk(s, random.IntN, depth, taken)
					walked.Add(1)
				}
				if o.broken != "" && !failed.Swap(true) {
					t.Errorf("%s", tellHistory(s, depth, o.history, o.broken))
				}
			}
		})
	}
	group.Wait()
	if failed.Load() {
		return
	}
	t.Logf("%d states and %d steps of %d scenarios, %d moves deep (the plainest %d), %d of them cut at %d states; %d random walks, seed %d; %v",
		seen.Load(), steps.Load(), len(all), *depth, *depth+1, len(cut), *limit, walked.Load(), *seed, time.Since(start).Round(ms))
	slices.Sort(cut)
	for _, name := range cut {
		t.Logf("CUT SHORT: at %d states, %s", *limit, name)
	}
	if *only == "" {
		total.compare(t, tables(t))
	}
	if os.Getenv("FINI_ROWS") != "" || testing.Verbose() {
		t.Logf("how often each row of a table was taken:\n%s", total)
	}
}
