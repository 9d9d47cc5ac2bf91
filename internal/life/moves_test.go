package life

import (
	"slices"
	"strings"
	"syscall"
	"time"
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
	left int // moves
	used [40]uint8
	may  uint64 // which moves, as bits
	bond bool   // to the parent process
	rows rows
}

// Who can make a move.
func inTree(_ *world, p *proc) bool  { return p.has(ofTree) && p.state == 'S' && !p.has(asleep) }
func shell(w *world, p *proc) bool   { return p.id == w.cast.shell && p.alive() }
func topFini(w *world, p *proc) bool { return p.id == w.finis[0].id && p.alive() }
func killable(w *world, p *proc) bool {
	return p.alive() && p.id != w.cast.tracer && p.id != w.cast.sibling
}

func (w *world) top() *proc  { return w.get(w.finis[0].id) }
func (w *world) from() *proc { return &proc{pid: 9} } // a process outside of the world

// sending is a signal for the command, which a process sends to fini.
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

// treeMoves are all that the tree and others can do.
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
	{endsInLook, 1, func(*world, *proc) bool { return false }, nil}, // see during
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

const endsInLook = "ends during a look"

func moveOf(name string) int {
	return slices.IndexFunc(moves, func(m move) bool { return m.name == name })
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
