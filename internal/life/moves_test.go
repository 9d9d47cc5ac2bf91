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
	may  set[int] // which moves
	bond bool     // to the parent process
	rows rows
}

// Who can make a move.
func inTree(_ *world, p *proc) bool  { return p.has(ofTree) && p.state == 'S' && !p.has(asleep) }
func follows(w *world, p *proc) bool { return inTree(w, p) && p.group != p.pid }
func isMain(w *world, p *proc) bool  { return inTree(w, p) && p.id == w.cast.main }
func shell(w *world, p *proc) bool   { return p.id == w.cast.shell && p.alive() }
func topFini(w *world, p *proc) bool { return p.id == w.finis[0].id && p.alive() }
func killable(w *world, p *proc) bool {
	return p.alive() && p.id != w.cast.tracer && p.id != w.cast.sibling
}

// shellAlone is the shell if the command is not in the job, and jobsFini is the top fini if it is.
func shellAlone(w *world, p *proc) bool { return shell(w, p) && w.rules.Job == NoJob }
func jobsFini(w *world, p *proc) bool   { return topFini(w, p) && w.rules.Job != NoJob }

func (w *world) top() *proc { return w.get(w.finis[0].id) }

// outside is a process outside of the world, which sends signals to those in it.
var outside = &proc{pid: 9}

func sending(sig syscall.Signal) func(*world, *proc) {
	return func(w *world, p *proc) { _ = w.kill(outside, p, sig) }
}

// forCommand is a signal to fini that the command has to get.
func forCommand(sig syscall.Signal) func(*world, *proc) {
	return func(w *world, p *proc) {
		w.may(w.rules.rewritten(sig), true)
		if w.pauses() && ending(sig) { // even if one from inside comes with it
			w.oblige(w.ladder())
		}
		_ = w.kill(outside, p, sig)
	}
}

// key is a key of the terminal, or a hang-up: the kernel signals a group.
func key(sig syscall.Signal) func(*world, *proc) {
	return func(w *world, p *proc) {
		w.may(sig, false)
		if f := &w.finis[0]; f.phase == dozing && (f.sleeper.Main == 0 || f.sleeper.Early) {
			w.may(sig, false) // it may come twice: a limit
		}
		w.killGroup(nil, int(w.rules.Job), sig)
	}
}

// treeMoves are all that the tree and others can do.
var treeMoves = []move{
	{"forks", 2, inTree, func(w *world, p *proc) { w.fork(p) }},
	{"forks one that is never a zombie", 1, inTree, func(w *world, p *proc) { w.fork(p).is |= autoreap }},
	{"ends", 2, inTree, (*world).end},
	{"calls setsid", 1, follows, (*world).setsid},
	{"calls setpgid", 1, follows, (*world).setpgid},
	{"becomes another user", 1, inTree, func(w *world, p *proc) {
		if w.setuid(p); w.ghost.mustEnd != 0 {
			w.ghost.mustEnd += w.extra()
		}
	}},
	{"is stopped", 1, func(w *world, p *proc) bool { return killable(w, p) && p.state == 'S' && p.id != w.cast.shell },
		sending(syscall.SIGSTOP)},
	{"is continued", 1, func(_ *world, p *proc) bool { return p.state == 'T' }, sending(syscall.SIGCONT)},
	{"is killed", 2, killable, sending(syscall.SIGKILL)},
	{"is sent TERM", 2, topFini, forCommand(syscall.SIGTERM)},
	{"is sent INT", 2, topFini, forCommand(syscall.SIGINT)},
	{"is sent HUP", 1, topFini, forCommand(syscall.SIGHUP)},
	{"is sent USR1", 1, topFini, forCommand(syscall.SIGUSR1)},
	{"and inner are sent TERM", 1, func(w *world, p *proc) bool { return topFini(w, p) && w.cast.inner != 0 }, func(w *world, p *proc) {
		forCommand(syscall.SIGTERM)(w, p)
		_ = w.kill(outside, w.get(w.cast.inner), syscall.SIGTERM)
	}},
	{"and its group are sent TERM", 1, shellAlone, func(w *world, p *proc) {
		w.may(syscall.SIGTERM, false)
		if w.supply.bond && w.rules.StopOnDeath == syscall.SIGTERM && w.top() != nil {
			w.ghost.due[0]-- // one for both
		}
		w.killGroup(outside, p.group, syscall.SIGTERM)
	}},
	{"and its group are killed", 1, shellAlone, func(w *world, p *proc) { w.killGroup(outside, p.group, syscall.SIGKILL) }},
	{"gets Ctrl-C", 2, jobsFini, key(syscall.SIGINT)},
	{"gets Ctrl-Z", 1, jobsFini, key(syscall.SIGTSTP)},
	{"gets fg", 1, func(w *world, p *proc) bool {
		return shell(w, p) && w.rules.Job != NoJob && !w.rules.Leader && !w.orphaned
	},
		func(w *world, p *proc) { w.killGroup(p, int(w.rules.Job), syscall.SIGCONT) }},
	{"is hung up on", 1, func(w *world, p *proc) bool { return topFini(w, p) && w.rules.Leader }, func(w *world, p *proc) {
		w.may(w.rules.rewritten(syscall.SIGHUP), true)
		_ = w.kill(nil, p, syscall.SIGHUP)
	}},
	{"sends the job TERM", 1, func(w *world, p *proc) bool { return inTree(w, p) && w.rules.Job != NoJob }, func(w *world, p *proc) {
		w.may(syscall.SIGTERM, false)
		p.mark.sender = true
		w.killGroup(p, int(w.rules.Job), syscall.SIGTERM)
	}},
	{"and the job are sent TERM", 1, jobsFini, func(w *world, p *proc) {
		w.may(syscall.SIGTERM, true)
		w.may(syscall.SIGTERM, true) // there, and by way of fini: a limit that docs/limits.md states
		w.killGroup(outside, int(w.rules.Job), syscall.SIGTERM)
	}},
	{"kills 1", 2, func(w *world, p *proc) bool { return w.pauses() && p.has(ofTree|entered) && p.state == 'S' }, func(w *world, p *proc) {
		_ = w.kill(p, w.top(), syscall.SIGTERM)
	}},
	{"enters", 1, nil, func(w *world, _ *proc) {
		if w.pauses() && w.top() != nil {
			w.enter()
		}
	}},
	{"closes stdin", 1, func(w *world, p *proc) bool { return shell(w, p) && w.stdin.closedAt == 0 }, func(w *world, _ *proc) {
		w.stdin.closedAt = w.now
		w.may(syscall.SIGTERM, false)
		w.oblige(w.rules.Grace*time.Duration(2+w.stdin.unread) + w.ladder())
	}},
	{"reads its stdin", 2, func(w *world, p *proc) bool { return isMain(w, p) && w.stdin.unread > 0 }, func(w *world, _ *proc) {
		w.stdin.unread--
		w.talk()
	}},
	{"writes", 2, isMain, func(w *world, _ *proc) { w.talk() }},
	{"a stranger is born", 1, nil, func(w *world, _ *proc) { w.setsid(w.fork(&proc{})) }},
	{"waits for its tracee", 1, func(w *world, p *proc) bool { return p.id == w.cast.tracer }, func(w *world, _ *proc) {
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
		for _, at := range []*time.Duration{&w.ghost.askedAt, &w.ghost.stopAt, &w.ghost.startedK, &w.ghost.clearsAt, &w.ghost.mainEnded, &w.ghost.mustEnd,
			&w.ghost.stopBy, &w.ghost.endsAt} {
			if *at != 0 {
				*at += 4*time.Second - shortSlice // of the slice in which that happens nothing may be left
			}
		}
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

// end ends a process by itself.
func (w *world) end(p *proc) { w.exit(p, exited(3*boolToInt(p.id == w.cast.main))) }

// talk moves the counters of those that have fini's standard input.
func (w *world) talk() {
	w.traffic++
	w.ghost.talked, w.ghost.talkedAt = true, w.now
}

const endsInLook = "ends during a look"

func moveOf(name string) int {
	return slices.IndexFunc(moves, func(m move) bool { return m.name == name })
}

// mayMove are moves by their names' beginnings.
func mayMove(names ...string) (may set[int]) {
	for _, name := range names {
		before := may
		for i, m := range moves {
			if strings.HasPrefix(m.name, name) {
				may.add(i)
			}
		}
		if may == before {
			panic("no such move: " + name)
		}
	}
	return may
}
