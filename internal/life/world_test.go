package life

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// A world is a model of the kernel's rules that matter to fini, without any process. The rules
// are stated one by one below, by the names of the man pages, and e2e/kernel
// states each of them again to a real kernel. In it live a command's tree, the parent process,
// others that are none of fini's business, and one fini or the two of a pair, with their real
// loop and machines.
//
// A world is a value: a copy of it, made by clone, goes another way. See value_test.go for when two worlds are the same.
type world struct {
	now    time.Duration
	all    [most]proc // those without a state do not exist
	lastID handle
	recent set[int] // pids that others than fini have reaped in this tick
	finis  []fini   // the outer or only one first

	stdin struct {
		closedAt time.Duration
		unread   int
	}
	traffic  uint64 // of those that have fini's standard input
	cast     cast
	rules    Rules
	blind    bool   // there is no /proc
	noPidfds bool   // signals and the socket tell of ends
	orphaned bool   // the job would be without the inner fini
	pristine fini   // an inner fini before anything has happened
	mainIs   traits // of a command that is not started yet
	ghost    ghost  // what the invariants remember, and nobody in the world knows

	supply supply   // what else may happen
	past   *past    // how it was come by
	story  *[]scene // of the past; nil while states are counted
	spins  int      // how often finis went on since time has passed
	broken string   // the first invariant that did not hold, and how
}

const most = 13

// cast are the ids of those that a world begins with; 0 for none.
type cast struct{ shell, sibling, bound, outer, inner, main, tracer handle }

// A proc is a process of the world.
type proc struct {
	id             handle
	pid            int
	parent         handle
	group, session int // pids
	start          time.Duration
	state          byte // S, T or Z as in proc_pid_stat(5); 0 if it is gone, or never was
	is             traits
	deathsig       syscall.Signal // see PR_SET_PDEATHSIG in prctl(2)
	pending        set[syscall.Signal]
	status         syscall.WaitStatus // of a zombie
	changed        syscall.WaitStatus // it was stopped or continued; for wait4
	byKey          bool               // that is how it was stopped
	mark           mark
}

// traits are what a process is and does.
type traits uint16

const (
	ofTree     traits = 1 << iota // descends from the command
	isFini                        // catches every signal, and goes by its machine
	ignores                       // TERM, INT and HUP, or handles them and goes on
	cleans                        // traps TERM: starts a process, waits for it, and ends
	cleaning                      // it does
	privileged                    // has another uid: fini may not signal it
	asleep                        // uninterruptibly: it dies only when it wakes
	holding                       // fini's standard output
	subreaper                     // see PR_SET_CHILD_SUBREAPER in prctl(2)
	autoreap                      // is never a zombie: CLONE_AUTOREAP in clone3(2)
	neglects                      // does not wait for its children
	traced                        // by a process that does not wait for it: see ptrace(2)
	inherited                     // was a child of fini's process before that was fini
	mayStay                       // has a name that --allow-orphan leaves alone
	ignoresInt                    // as a shell without job control lets its background do
	entered                       // the PID namespace of fini, or descends from one that has
)

func (p *proc) alive() bool       { return p.state == 'S' || p.state == 'T' }
func (p *proc) has(t traits) bool { return p.is&t != 0 }

// A set is one of signals, or of pids.
type set[number ~int] uint64

func (s *set[number]) add(n number)     { *s |= 1 << n }
func (s set[number]) has(n number) bool { return s&(1<<n) != 0 }

func (w *world) clone() *world {
	c := *w
	c.finis = slices.Clone(w.finis)
	for i := range c.finis {
		c.finis[i].copy()
	}
	return &c
}

// procs are those that exist, with their places in all.
func (w *world) procs() iter.Seq2[int, *proc] {
	return func(yield func(int, *proc) bool) {
		for i := range w.all {
			if p := &w.all[i]; p.state != 0 && !yield(i, p) {
				return
			}
		}
	}
}

// those are all of them for which something is true.
func (w *world) those(are func(p *proc) bool) (found []*proc) {
	for _, p := range w.procs() {
		if are(p) {
			found = append(found, p)
		}
	}
	return found
}

// first is the first one for which something is true; nil if there is none.
func (w *world) first(is func(p *proc) bool) *proc {
	for _, p := range w.procs() {
		if is(p) {
			return p
		}
	}
	return nil
}

// get is the process of an id; nil if it is gone.
func (w *world) get(id handle) *proc { return w.first(func(p *proc) bool { return p.id == id }) }

func (w *world) byPid(pid int) *proc { return w.first(func(p *proc) bool { return p.pid == pid }) }

func (w *world) children(of handle) []*proc {
	return w.those(func(p *proc) bool { return p.parent == of })
}

func (w *world) group(id int) []*proc { return w.those(func(p *proc) bool { return p.group == id }) }

// ended reports what a pidfd shows by becoming readable: the end of a process, reaped or not,
// traced or not. See pidfd_open(2).
func (w *world) ended(id handle) bool {
	p := w.get(id)
	return p == nil || p.state == 'Z'
}

// Pids: a new process gets the lowest one that is free, so that each comes again as soon as it
// can. It is free when the process was reaped and no group or session has it as its id. See
// credentials(7). But one that fini has not reaped itself does not come again within a tick: the
// two could not be told apart, which is a limit.
func (w *world) freePid() int {
	for pid := 31; ; pid++ {
		has := func(p *proc) bool { return p.pid == pid || p.group == pid || p.session == pid }
		if !w.recent.has(pid) && w.first(has) == nil {
			return pid
		}
	}
}

// Fork: the child is in its parent's group and session, ignores and holds what that does, has
// its uid, and no parent death signal. See fork(2). If the world is full, the child does not exist.
func (w *world) fork(parent *proc) *proc {
	for i := range w.all {
		if w.all[i].state != 0 {
			continue
		}
		w.lastID++
		w.all[i] = proc{
			id: w.lastID, pid: w.freePid(), parent: parent.id, group: parent.group, session: parent.session,
			start: w.now, state: 'S', is: parent.is &^ (subreaper | autoreap | traced | cleans | cleaning | asleep),
			mark: mark{afterStop: w.ghost.stopping, afterAsk: parent.mark.asked, hidden: parent.mark.hidden,
				belowAsked: parent.mark.asked || parent.mark.belowAsked || parent.mark.named},
		}
		return &w.all[i]
	}
	return &proc{}
}

// Moves: setsid(2) and setpgid(2). Who leads a group can't make a session.
func (w *world) setsid(p *proc)  { p.session, p.group = p.pid, p.pid }
func (w *world) setpgid(p *proc) { p.group = p.pid }

// Credentials: a change of them clears the parent death signal. See prctl(2).
func (w *world) setuid(p *proc) { p.is, p.deathsig = p.is|privileged, 0 }

// Exit: in this order, the children are adopted and get their parent death signals, groups that
// have lost their last link are woken, and the parent gets to know. See exit(3), wait(2).
func (w *world) exit(p *proc, status syscall.WaitStatus) {
	if !p.alive() {
		return
	}
	linked := w.linkedGroups()
	p.state, p.status, p.changed, p.pending, p.byKey = 'Z', status, 0, 0, false
	w.rememberDeath(p)
	adopter := w.adopter(p)
	for _, child := range w.children(p.id) {
		if child.parent = adopter; adopter != 0 && child.has(entered) {
			child.is |= ofTree
		}
		w.rememberOrphan(child)
		if sig := child.deathsig; sig != 0 && child.alive() {
			child.mark.termed = child.mark.termed || ending(sig)
			w.may(sig, false)
			w.deliver(child, sig, nil)
		}
		w.notify(child)
	}
	w.wakeOrphanedGroups(linked)
	w.notify(p)
}

// Adoption: the nearest subreaper above a process inherits its children, whatever their group,
// session or uid; else init does, or in a PID namespace its PID 1. See PR_SET_CHILD_SUBREAPER in prctl(2), pid_namespaces(7).
func (w *world) adopter(p *proc) handle {
	for above := w.get(p.parent); above != nil; above = w.get(above.parent) {
		if above.alive() && above.has(subreaper) {
			return above.id
		}
	}
	if top := w.top(); p.has(entered) && top != nil && top.alive() {
		return top.id
	}
	return 0
}

// isEntrant reports whether a process has come into the PID namespace from outside: its parent is there.
func (p *proc) isEntrant() bool { return p.has(entered) && p.parent == 0 && p.alive() }

// entrantAbove reports whether a living entrant has started a process, or what has started that.
func (w *world) entrantAbove(p *proc) bool {
	above := w.get(p.parent)
	return above != nil && (above.isEntrant() || w.entrantAbove(above))
}

// Orphaned groups: a group is linked to its session by a member whose parent is in another
// group of that session. When the last such link goes, and a member is stopped, all members get
// SIGHUP and SIGCONT. See setpgid(2), exit(3).
func (w *world) wakeOrphanedGroups(linked []int) {
	still := w.linkedGroups()
	for _, group := range linked {
		isStopped := func(p *proc) bool { return p.state == 'T' && p.group == group }
		if w.first(isStopped) != nil && !slices.Contains(still, group) {
			w.may(syscall.SIGHUP, false)
			if sig := w.rules.rewritten(syscall.SIGHUP); sig != syscall.SIGHUP { // relayed, if the command is just starting
				w.may(sig, false)
			}
			w.killGroup(nil, group, syscall.SIGHUP)
			w.killGroup(nil, group, syscall.SIGCONT)
		}
	}
}

func (w *world) linkedGroups() (groups []int) {
	for _, p := range w.procs() {
		up := w.get(p.parent)
		links := p.alive() && up != nil && up.group != p.group && up.session == p.session
		if links && !slices.Contains(groups, p.group) {
			groups = append(groups, p.group)
		}
	}
	return groups
}

// Zombies: who has ended, stopped or continued is told of by SIGCHLD, and stays for wait4 of its
// parent. There is none to wait for one of init's, nor for one with autoreap, of whose end
// nobody is told. See wait(2), clone3(2).
func (w *world) notify(p *proc) {
	if p.state == 'Z' && p.has(traced) {
		return // its tracer is told, and not its parent
	}
	parent := w.get(p.parent)
	f, isTold := w.fini(p.parent), parent != nil && !p.has(autoreap)
	reaped := p.state == 'Z' && (!isTold || f == nil && parent.state == 'S' && !parent.has(neglects))
	if reaped {
		p.state = 0
		w.recent.add(p.pid)
	}
	switch {
	case reaped && f != nil:
		f.child = f.child || f.main.Ended // it looks each second: see blind in package host
	case f != nil:
		f.child = f.child || p.state == 'Z' || p.changed != 0
	case p.has(entered) && p.parent == 0:
		w.worker().child = w.worker().child || w.worker().main.Ended // the same
	case reaped && isTold && parent.has(cleaning):
		w.exit(parent, exited(0))
	}
}

// Wait: each child that has ended, stopped or continued is told of once. A zombie that a tracer has not waited for is
// not told of, but is a child. See wait(2), ptrace(2).
func (w *world) wait4(parent handle) (exits []reaper.Exit) {
	for _, p := range w.children(parent) {
		switch {
		case p.state == 'Z' && !p.has(traced):
			exits = append(exits, reaper.Exit{Pid: p.pid, Status: p.status})
			p.state = 0
		case p.changed != 0:
			exits = append(exits, reaper.Exit{Pid: p.pid, Status: p.changed})
			p.changed = 0
		}
	}
	return exits
}

// Kill: a zombie may be signalled, to no effect. Who has another uid may not, but for SIGCONT
// within the session. Nobody is ESRCH. See kill(2).
func (w *world) kill(from, to *proc, sig syscall.Signal) error {
	switch {
	case to == nil || to.state == 0:
		return syscall.ESRCH
	case from != nil && from.has(isFini) && to.has(privileged) && (sig != syscall.SIGCONT || from.session != to.session):
		return syscall.EPERM
	}
	w.deliver(to, sig, from)
	return nil
}

// A group gets a signal at once, all members that the sender may signal. See kill(2).
func (w *world) killGroup(from *proc, group int, sig syscall.Signal) {
	for _, p := range w.group(group) {
		_ = w.kill(from, p, sig)
	}
}

// What wait4 says of one that was stopped or continued.
var stopped, continued = suspended(syscall.SIGSTOP), syscall.WaitStatus(0xffff)

// Delivery: SIGKILL ends also who is stopped, but nobody in uninterruptible sleep before that
// wakes. SIGCONT continues, and its parent is told. Any other signal waits until then. See
// signal(7).
func (w *world) deliver(p *proc, sig syscall.Signal, from *proc) {
	if !p.alive() || p.pending.has(syscall.SIGKILL) { // it acts on nothing more
		return
	}
	w.happens(fact{what: gets, to: p, sig: sig})
	switch {
	case p.has(asleep):
		p.pending.add(sig)
	case sig == syscall.SIGKILL:
		w.exit(p, signaled(sig))
	case sig == syscall.SIGSTOP, sig == syscall.SIGTSTP && w.stopsByKey(p):
		if p.state != 'T' {
			p.state, p.changed, p.byKey = 'T', stopped, sig == syscall.SIGTSTP
			w.notify(p)
		}
	default:
		if sig == syscall.SIGCONT && p.state == 'T' {
			p.state, p.changed, p.byKey = 'S', continued, false
			w.notify(p)
		}
		if p.has(isFini) {
			w.fini(p.id).catch(sig, from)
			return
		}
		p.pending.add(sig)
		if p.state == 'S' {
			w.act(p)
		}
	}
}

// stopsByKey reports whether Ctrl-Z stops a process: a fini only in the job, and no process in an orphaned group. See
// Plan.Stops, Sleeper.Takes, setpgid(2).
func (w *world) stopsByKey(p *proc) bool {
	if w.orphaned && !slices.Contains(w.linkedGroups(), p.group) {
		return false
	}
	if !p.has(isFini) {
		return true
	}
	f := w.fini(p.id)
	return f.phase == dozing && f.sleeper.Main != 0 && !f.sleeper.takes(syscall.SIGTSTP) || f.rules.Outer == 0 && f.rules.Job != NoJob
}

// act is what a process makes of the signals that it gets.
func (w *world) act(p *proc) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if !p.pending.has(sig) || !p.alive() {
			continue
		}
		switch {
		case p.has(ignores), p.has(ignoresInt) && sig == syscall.SIGINT:
		case p.has(cleans) && sig == syscall.SIGTERM:
			if !p.has(cleaning) && w.fork(p).state != 0 {
				p.is |= cleaning
			}
		default:
			w.exit(p, signaled(sig))
		}
	}
	p.pending = 0
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// descends reports whether a process is below another one.
func (w *world) descends(p *proc, from handle) bool {
	for ; p != nil; p = w.get(p.parent) {
		if p.parent == from {
			return true
		}
	}
	return false
}

// isSpared reports whether a process is left alone: by its name, or as one that descends from such.
func (w *world) isSpared(p *proc) bool {
	for ; w.rules.Allow && p != nil && p.has(ofTree); p = w.get(p.parent) {
		if p.alive() && p.has(mayStay) && p.id != w.cast.main {
			return true
		}
	}
	return false
}

// name is what a process is called in histories.
func (w *world) name(id handle) string {
	c := w.cast
	at := slices.Index([]handle{0, c.shell, c.sibling, c.bound, c.outer, c.inner, c.main, c.tracer}, id)
	switch p := w.get(id); {
	case at >= 0:
		return [...]string{"init", "parent", "sibling", "bound", "outer", "inner", "main", "tracer"}[at]
	case p != nil && p.has(inherited):
		return "inherited"
	case p != nil && !p.has(ofTree):
		return "stranger"
	}
	return string(rune('a' + (id-w.ghost.firstLeftover)%26))
}

// The rest is fini in this world.

// A fini is one of them: the program's own loop, with this world for its kernel. Between any two of
// its system calls something else can happen.
type fini struct {
	Loop
	id    handle
	heir  bool
	phase phase

	sleeper sleeper
	socket  []entry.Message // what the other one of a pair has said
	caught  []Signal
	child   bool // SIGCHLD was caught
	said    bool // the life is over
	bound   []bond
	stdin   bool     // its end is watched
	looked  []handle // whom the last look has found
	stay    []handle // ids of those that the last look has found and fini leaves alone
	told    []int    // pids of those of whom fini has told that it does
}

type bond struct {
	id  handle
	why Reason
}

func (f *fini) copy() {
	f.queue = slices.Clone(f.queue)
	f.caught, f.bound = slices.Clone(f.caught), slices.Clone(f.bound)
	f.records = f.records.copy()
	switch m := f.machine.(type) {
	case *ladder:
		c := *m
		c.records, f.machine = f.records, &c
	case *sweep:
		c := *m
		c.records, f.machine = f.records, &c
	case paused:
		m.records = f.records
		f.machine = m
	}
}

func (r *records) copy() *records {
	c := *r
	c.main.Sent, c.leftovers, c.orphans = slices.Clone(r.main.Sent), make(map[int]*Record, len(r.leftovers)), maps.Clone(r.orphans)
	for pid, of := range r.leftovers {
		same := *of
		same.Sent = slices.Clone(of.Sent)
		c.leftovers[pid] = &same
	}
	return &c
}

// worker is the fini that stops the command: the inner one of a pair.
func (w *world) worker() *fini { return &w.finis[len(w.finis)-1] }

func (w *world) fini(id handle) *fini {
	for i := range w.finis {
		if w.finis[i].id == id {
			return &w.finis[i]
		}
	}
	return nil
}

// catch is the handler of signals: two of a kind are one, from the last sender.
func (f *fini) catch(sig syscall.Signal, from *proc) {
	got := byKernel(sig)
	if from != nil {
		got.FromKernel, got.Sender = false, from.pid
	}
	got.Outside = from == nil || !from.has(ofTree|entered)
	at, found := slices.BinarySearchFunc(f.caught, sig, func(c Signal, s syscall.Signal) int { return int(c.Signal - s) })
	if !found {
		f.caught = slices.Insert(f.caught, at, Signal{})
	}
	got.Outside = got.Outside || found && f.caught[at].Outside
	if !found || f.phase == awake { // pending, it is the first one
		f.caught[at] = got
	}
}

// forget takes back a signal that was caught, and reports whether it was.
func (f *fini) forget(sig syscall.Signal) bool {
	before := len(f.caught)
	f.caught = slices.DeleteFunc(slices.Clone(f.caught), func(c Signal) bool { return c.Signal == sig })
	return len(f.caught) < before
}

// ready reports whether a fini has something to do.
func (w *world) ready(f *fini) bool {
	switch p := w.get(f.id); {
	case p == nil || p.state != 'S':
		return false
	case f.phase == dozing:
		return w.awaits(f)
	case f.phase != awake, f.over(), len(f.todo)+len(f.queue)+len(f.caught)+len(f.socket) > 0, f.mustReap, f.child:
		return true
	}
	return w.late(f) || w.mainShows(f) || f.stdin && w.stdin.closedAt != 0 ||
		slices.ContainsFunc(f.bound, func(b bond) bool { return w.ended(b.id) })
}

// mainShows reports whether the pidfd of the main child wakes fini.
func (w *world) mainShows(f *fini) bool {
	return f.watched && !f.main.Ended && !f.mainGone && w.ended(w.cast.main)
}

// run lets a fini go on to behind its next system call. Its own thoughts take no time, and
// nobody sees them.
func (w *world) run(f *fini) {
	k := &modelKernel{w: w, f: f}
	f.Kernel = k
	for first := true; w.broken == "" && (first || !k.called && !w.mayMiss(f) && w.ready(f)); first = false {
		switch {
		case f.phase == dozing:
			w.asleep(f)
			return
		case f.phase != awake:
			w.beginning(f)
			return
		case f.over():
			w.endOf(f)
			return
		case len(f.todo) == 0 && !f.mustReap && len(f.queue) > 0:
			before, e := where(f.machine), f.queue[0]
			f.turn()
			w.stepped(f, before, e)
		default:
			f.turn()
		}
	}
}

// doing reports whether an action of this kind is the next one of a fini.
func doing[kind action](f *fini) (is bool) {
	if len(f.todo) > 0 {
		_, is = f.todo[0].(kind)
	}
	return is
}

// endOf is the end of a fini's process. With PID 1 the kernel ends its whole namespace.
func (w *world) endOf(f *fini) {
	w.happens(fact{what: ends, by: f})
	status := f.result.WaitStatus()
	if f.rules.Initial {
		for _, p := range w.those(func(p *proc) bool { return w.descends(p, f.id) || p.has(entered) }) {
			p.state = 0
		}
		status = exited(f.result.Status())
	}
	w.exit(w.get(f.id), status)
}

// A modelKernel is what a world is to one fini, for one of its turns.
type modelKernel struct {
	w      *world
	f      *fini
	missed []*proc // by its look, or its round of SIGKILL
	called bool    // others could see something of the turn
}

func (k *modelKernel) Now() time.Duration { return k.w.now }

// Wait is called only if there is something to take in.
func (k *modelKernel) Wait(time.Duration, bool) (woken Woken) {
	k.called = true
	f, w := k.f, k.w
	for _, got := range f.caught {
		got.OfTree = w.ofTree(f, got.Received)
		woken.Signals = append(woken.Signals, got)
	}
	f.caught, f.looked = nil, nil
	w.heard(f, &woken)
	f.child = false
	f.bound = slices.DeleteFunc(f.bound, func(b bond) bool {
		if !w.ended(b.id) {
			return false
		}
		woken.Stop = append(woken.Stop, b.why)
		return true
	})
	if f.stdin && w.stdin.closedAt != 0 {
		f.stdin = false
		woken.Stop = append(woken.Stop, StdinClosed)
	}
	woken.Main = w.mainShows(f)
	return woken
}

func (k *modelKernel) Reap() (exits []reaper.Exit, none bool) {
	k.called = true
	exits = k.w.wait4(k.f.id)
	// none is ECHILD: there is no child. One from before that was fini does not count.
	for _, p := range k.w.procs() {
		p.mark.hidden = p.mark.hidden && k.w.blind
	}
	return exits, k.w.first(func(p *proc) bool {
		return p.parent == k.f.id && !p.has(inherited) || k.seesEntrants() && k.f.main.Ended && p.isEntrant()
	}) == nil
}

// seesEntrants reports whether fini counts those who have come in from outside as of the tree.
func (k *modelKernel) seesEntrants() bool { return k.w.pauses() && !k.w.blind }

// pauses reports whether fini is PID 1 and has no command.
func (w *world) pauses() bool { return w.rules.Pause && w.rules.Initial }

// ofTree reports whether a fini knows that a process of its tree has sent a signal.
func (w *world) ofTree(f *fini, got signals.Received) bool {
	return f.rules.Job != NoJob && !got.FromKernel && w.descends(w.byPid(got.Sender), f.id)
}

// Traffic is what /proc/PID/io says. See proc_pid_io(5).
func (k *modelKernel) Traffic() (orphans.Traffic, error) {
	k.called = true
	k.w.happens(fact{what: measures, by: k.f})
	if k.w.blind {
		return orphans.Traffic{}, syscall.ENOENT
	}
	return orphans.Traffic{Sum: k.w.traffic}, nil
}

func (k *modelKernel) Unread() int { return k.w.stdin.unread }

// Children are those that wait4 would tell of.
func (k *modelKernel) Children() (pids []int, err error) {
	k.called = true
	if k.w.blind {
		return nil, syscall.ENOENT
	}
	for _, p := range k.w.children(k.f.id) {
		if !p.has(inherited) {
			pids = append(pids, p.pid)
		}
	}
	return pids, nil
}

// A look at /proc is of its moment: what is done with it comes later, when any of it may have ended, moved or stopped. Start
// times are rounded down to ticks. Parents come before their children. See proc_pid_stat(5). Without /proc only children are
// seen, and nothing of them but their pids, groups and sessions. The children of one that ends during the look may be missed.
func (k *modelKernel) IncludeInherited() {}

func (k *modelKernel) Look() (v orphans.View) {
	k.called = true
	w, f := k.w, k.f
	v.Complete, v.Nameless, f.looked, f.stay = len(k.missed) == 0, w.blind, nil, nil
	parents := []*proc{w.get(f.id)}
	if k.seesEntrants() {
		parents = append([]*proc{{}}, parents...)
	}
	for ; len(parents) > 0; parents = parents[1:] {
		for _, p := range w.children(parents[0].id) {
			if p.has(inherited) || slices.Contains(k.missed, p) || parents[0].id == 0 && !p.has(entered) {
				continue
			}
			seen := orphans.Process{Pid: p.pid, Parent: parents[0].pid, PGID: p.group, Session: p.session, Threads: 1, Entered: parents[0].id == 0}
			if seen.Name, seen.State = "?", '?'; !w.blind {
				parents = append(parents, p)
				seen.Name, seen.State = w.name(p.id), p.state
				seen.Allowed, seen.Start, seen.Holds = w.isSpared(p), p.start/tick*tick, orphans.Holds(orphans.Streams(boolToInt(p.has(holding))))
				seen.Ignored = uint64(boolToInt(p.has(ignoresInt))) << (syscall.SIGINT - 1)
			}
			if !p.alive() {
				continue
			}
			v.Found, f.looked = append(v.Found, seen), append(f.looked, p.id)
			if seen.Allowed || w.policy() == StopPipes && seen.Holds.May() == 0 || where(f.machine) == "counting" {
				f.stay = append(f.stay, p.id)
			}
		}
	}
	w.rememberLook(f)
	return v
}

// Survey reads what the tree is doing.
func (k *modelKernel) Survey(bool) {
	k.called = true
	k.w.happens(fact{what: surveys, by: k.f})
}

// signal sends a signal, after it has told that. Without /proc fini can't ask whom it does not see, nor tell whether that has
// been asked: a limit.
func (k *modelKernel) signal(p *proc, sig syscall.Signal, way way) error {
	x := fact{what: sends, by: k.f, to: p, sig: sig, way: way}
	k.w.happens(x)
	if p != nil && p.alive() && !p.has(privileged) && (way == toCommand || !k.w.blind) {
		x.what = hits
		k.w.happens(x)
	}
	return k.w.kill(k.w.get(k.f.id), p, sig)
}

// Forward is to the command: to its group, if that is to be, or else to it alone.
func (k *modelKernel) SignalCommand(pid int, sig syscall.Signal, group bool) {
	k.called = true
	main := k.w.get(k.w.cast.main)
	if main == nil || !group || main.group != pid {
		_ = k.signal(main, sig, toCommand)
	}
	if group {
		for _, p := range k.w.group(pid) {
			_ = k.signal(p, sig, toCommand)
		}
	}
}

// Send sends by a pidfd, or where nobody else reaps, so that it is the one that was seen.
func (k *modelKernel) SignalLeftover(to orphans.Process, sig syscall.Signal) (may bool) {
	k.called = true
	if p := k.w.byPid(to.Pid); p != nil && slices.Contains(k.f.looked, p.id) {
		return k.signal(p, sig, toLeftover) != syscall.EPERM
	}
	return true
}

// Kill sends SIGKILL to the children, or to the whole tree, but for one that was forked just now.
func (k *modelKernel) Kill(own bool) (hit, refused []int) {
	k.called = true
	w, f := k.w, k.f
	own = own || w.blind
	for _, p := range w.those(func(p *proc) bool {
		isSeen := p.parent == f.id || !own && (w.descends(p, f.id) || k.seesEntrants() && p.has(entered))
		return isSeen && !slices.Contains(k.missed, p) && !p.has(inherited) && !w.isSpared(p)
	}) {
		switch k.signal(p, syscall.SIGKILL, byKill) {
		case nil:
			hit = append(hit, p.pid)
		case syscall.EPERM:
			refused = append(refused, p.pid)
		}
	}
	for _, p := range w.procs() {
		p.mark.hidden = w.blind && p.parent != f.id
	}
	return hit, refused
}

// What nobody in the world gets to know.
func (k *modelKernel) RecordExit(reaper.Exit, bool) {}
func (k *modelKernel) RecordMainEnd()               {}
func (k *modelKernel) RecordSignal(Signal)          {}
func (k *modelKernel) WarnIgnored(Signal)           {}
func (k *modelKernel) Say(Level, string, Reason)    {}

// Tell notes who is told of as left alone: see the invariant "listed".
func (k *modelKernel) Tell(p orphans.Process, _, spared string, _ bool, top int, _ *Record) {
	if spared != "" {
		k.f.told = append(slices.Clone(k.f.told), p.Pid)
	}
	if is := k.w.byPid(p.Pid); top != 0 && is != nil && slices.Contains(k.f.looked, is.id) {
		is.mark.named = true
	}
}

func (k *modelKernel) Exit(end End) {
	k.called = true
	w, f := k.w, k.f
	f.said = true
	w.happens(fact{what: reports, by: f, why: end.Why})
	if f.rules.Outer == 0 {
		return
	}
	w.say(w.cast.outer, entry.Message{Kind: entry.Done, Value: uint32(end.WaitStatus())})
	self := w.get(f.id)
	if f.rules.Job != NoJob && self.parent == w.cast.outer {
		_ = w.kill(self, w.get(self.parent), syscall.SIGCONT)
	}
}

// stepped takes note of what a machine has made of an event.
func (w *world) stepped(f *fini, before string, e event) {
	w.happens(fact{what: turns, by: f, before: before, event: e})
	after := where(f.machine)
	if before != after || len(f.todo) > 0 {
		w.supply.rows.one(before, strings.ToLower(reflect.TypeOf(e).Name()), after)
	}
	if w.story != nil {
		*w.story = append(*w.story, scene{
			at: w.now, who: w.name(f.id), what: text(f.todo), event: eventText(e),
			turn: fmt.Sprintf("{%d * ms, %s, %q, %q},", w.now/ms, eventCode(e), text(f.todo), after),
		})
	}
}
