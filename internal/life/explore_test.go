package life

import (
	"flag"
	"hash/crc32"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The explorer tries every order in which things can happen in a world: what finis do, and up
// to a depth what the tree and all others do (the moves). Worlds that can't be told apart by
// their future are one state. `make explore` goes deeper than `go test` does.
var (
	depth = flag.Int("explore.depth", 1, "moves that the tree and others make, in every order; the plainest scenarios get one more")
	limit = flag.Int("explore.states", 0, "leave a scenario after so many states; 0 for 4000, or 1000 with -short")
	walks = flag.Int("explore.walks", 30, "random walks behind the depth, in each scenario")
	whole = flag.Bool("explore.whole", false, "every combination of policy, flags, role, tree and moves, and not only of any two")
	seed  = flag.Uint64("explore.seed", 1, "of the random walks")
	only  = flag.String("explore.only", "", "the scenarios whose name contains this")
)

// A choice is what happens next: a fini goes on, the clock does, or somebody makes a move.
type choice struct {
	kind uint8 // goesOn, meanwhile, clock, or moved + index of a move
	slot uint8 // of a fini, or in world.all
}

const (
	goesOn    uint8 = iota
	meanwhile       // a fini goes on, and one of the tree does something during that: see during
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
		if w.mayMiss(f) {
			each(meanwhile, func(w *world, p *proc) bool {
				return inTree(w, p) && (doing[kill](f) || len(w.children(p.id)) > 0)
			})
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
	return w.supply.may.has(i) && w.supply.used[i] < moves[i].often
}

// mayMiss reports whether a fini may once more miss somebody: one who is forked as it kills all, or comes to light late as it
// looks, where an empty look is an end. Neither is atomic, see proc_pid_stat(5).
func (w *world) mayMiss(f *fini) bool {
	switch {
	case doing[kill](f):
		return f.todo[0] == (kill{}) && w.supply.left > 0 && w.mayMake(moveOf("forks"))
	case doing[look](f):
		return w.rules.Orphans == StopPipes && w.mayMake(moveOf(endsInLook))
	}
	return false
}

// during lets a process fork as a fini kills all, or end as it looks. It returns whom the fini misses.
func (w *world) during(f *fini, p *proc) (missed []*proc) {
	move := endsInLook // which goes as deep as without it
	if doing[kill](f) {
		move = "forks"
		w.supply.left--
	}
	w.supply.used[moveOf(move)]++
	w.scene("%s %s", w.name(p.id), move)
	if move == "forks" {
		return []*proc{w.fork(p)}
	}
	missed = append(w.children(p.id), p)
	for _, p := range missed {
		p.mark.termed = true // it may come to light too late for that
	}
	w.end(p)
	return missed
}

// take makes a choice.
func (w *world) take(c choice) {
	p := &w.all[c.slot%most]
	w.past = &past{w.past, c}
	switch c.kind {
	case goesOn:
		if w.spins++; w.spins > 300 {
			w.breach("bounded", "finis go on and on, and no time passes")
		}
		w.run(&w.finis[c.slot])
	case meanwhile:
		f := &w.finis[slices.IndexFunc(w.finis, func(f fini) bool { return w.ready(&f) && w.mayMiss(&f) })]
		f.Kernel = &modelKernel{w: w, f: f, missed: w.during(f, p)}
		f.turn()
	case clock:
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
		w.happens(fact{what: rests})
		if alive, isStopped := w.finisAlive(); alive && !isStopped {
			w.happens(fact{what: waits})
		}
	}
}

// pass lets time pass. While a fini is stopped, nothing is due from it.
func (w *world) pass(to time.Duration) {
	if _, isStopped := w.finisAlive(); w.ghost.mustEnd != 0 && (isStopped || !w.idle()) {
		w.ghost.mustEnd += to - w.now
	}
	if _, isStopped := w.finisAlive(); w.ghost.stopBy != 0 && (isStopped || !w.idle()) {
		w.ghost.stopBy += to - w.now
	}
	if to/tick != w.now/tick {
		w.recent = 0
	}
	w.now, w.spins = to, 0
}

// idle reports whether no fini has anything to do.
func (w *world) idle() bool {
	return !slices.ContainsFunc(w.finis, func(f fini) bool { return w.ready(&f) })
}

// next is when the first fini wants to be woken.
func (w *world) next() (first time.Duration) {
	for i := range w.finis {
		f := &w.finis[i]
		p, at := w.get(f.id), f.next()
		if p != nil && p.state == 'S' && at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// A past is the last choice by which a world was come by, and those before.
type past struct {
	before *past
	taken  choice
}

// explore tries all orders of a scenario, nearest first, so that the world that breaks an
// invariant has the shortest past. isWhole is false if there are more states than the limit.
func explore(s scenario, limit int) (states, steps int, isWhole bool, broken *world) {
	hash, seen := maphash.MakeSeed(), map[uint64]bool{}
	var list []choice
	states = 1
	for open := []*world{s.start()}; len(open) > 0; {
		from := open[0]
		open[0], open = nil, open[1:]
		list = from.choices(list[:0])
		for i, c := range list {
			w := from
			if i < len(list)-1 {
				w = w.clone()
			}
			w.take(c)
			steps++
			switch key := w.digest(hash); {
			case w.broken != "":
				return states, steps, false, w
			case seen[key]:
			case states >= limit:
				return states, steps, false, nil
			default:
				seen[key] = true
				states++
				open = append(open, w)
			}
		}
	}
	return states, steps, true, nil
}

// walk goes one way. pick picks one of n.
func walk(s scenario, pick func(n int) int) *world {
	w := s.start()
	for range 600 {
		list := w.choices(nil)
		if len(list) == 0 || w.broken != "" {
			break
		}
		// Moves are many, and would leave finis no time.
		c := list[pick(len(list))]
		if c.kind >= moved && pick(3) > 0 {
			c = list[0]
		}
		w.take(c)
	}
	return w
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
		if w := walk(s, pick); w.broken != "" {
			t.Error(s.tell(w))
		}
	})
}

// TestExplore is the explorer.
func TestExplore(t *testing.T) {
	start, limit := time.Now(), *limit
	if limit == 0 {
		limit = 4000
		if testing.Short() {
			limit = 1000
		}
	}
	var cut []string
	var tried, states, steps, walked int
	total := rows{}
	var mu sync.Mutex // of all above
	try := func(s scenario) {
		seen, made, isWhole, broken := explore(s, limit)
		random, n := rand.New(rand.NewPCG(*seed, uint64(crc32.ChecksumIEEE([]byte(s.name))))), 0
		if broken == nil {
			s.depth += 8 // as the walks have it
		}
		for ; n < *walks && broken == nil; n++ {
			if w := walk(s, random.IntN); w.broken != "" {
				broken = w
			}
		}
		mu.Lock()
		defer mu.Unlock()
		tried, states, steps, walked = tried+1, states+seen, steps+made, walked+n
		for row, n := range s.rows {
			total[row] += n
		}
		switch {
		case broken != nil && !t.Failed():
			t.Errorf("%s", s.tell(broken))
		case !isWhole:
			cut = append(cut, s.name)
		}
	}
	var group sync.WaitGroup
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	for _, s := range scenarios(*whole, *depth) {
		if strings.Contains(s.name, *only) && !t.Failed() {
			slots <- true
			group.Go(func() { try(s); <-slots })
		}
	}
	if group.Wait(); t.Failed() {
		return
	}
	t.Logf("%d states and %d steps of %d scenarios, %d moves deep (the plainest %d), %d of them cut at %d states; "+
		"%d random walks, seed %d; %v", states, steps, tried, *depth, *depth+1, len(cut), limit, walked, *seed, time.Since(start).Round(ms))
	if slices.Sort(cut); len(cut) > 0 {
		t.Logf("CUT SHORT: %d of %d scenarios, at %d states; make explore goes deeper", len(cut), tried, limit)
		t.Logf("these were cut:\n%s", strings.Join(cut, "\n"))
	}
	if *only == "" {
		total.compare(t, tables(t))
	}
	t.Logf("how often each row of a table was taken:\n%s", total)
}
