package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// A role is the part that this process plays.
//
//	role   runs            ends it when             decides by       falls back to
//	solo   the command     the parent process or    ladder, sweep
//	                       a --bind ends
//	outer  another fini,   (only while that one     watch; sweep if  solo, if there is no process
//	       the inner one   is stopped: the same)    that is killed   or descriptor
//	inner  the command     the outer one ends, or   ladder, sweep
//	                       as solo
//
// With --isolate the inner one is the init of a PID namespace: see isolate.go.
//
// As PID 1, with --pause, and with --no-shield but not --isolate, fini is solo. Otherwise it is a pair, so
// that whichever of the two is killed, the other ends the tree. The inner one has a process group of its
// own, unless it is isolated and in a job: a SIGKILL for the group that the outer one is in spares it.
type role interface {
	common() *parts
	leads() life.Role

	// start starts what the role runs, and returns the role that is played: this one or its fallback.
	start(l *loop) (role, reaper.Child, error)
	// notStarted tells the outer fini, if this is an inner one, that there is no command.
	notStarted(status life.Result)

	// accepts reports whether a signal is for this process, and a number by which copies of it are found.
	accepts(l *loop, got signals.Received) (origin int, mine bool)
	// ofTree reports whether the sender of a signal is of the tree, and may have sent it to the whole job.
	ofTree(l *loop, pid int) bool
	// shows takes in what the i-th watched descriptor shows: the end of its process, which is a reason to
	// stop, or what the other fini has told.
	shows(l *loop, i int, woken *life.Woken)
	// parentDied tells the inner fini, if there is one, of the end of a parent process of which there is no pidfd.
	parentDied()
	// whileInnerIsStopped is what the outer fini watches too while the inner one is stopped; nil for other
	// roles.
	whileInnerIsStopped() []watched
	// mainEnded is life.Kernel's MainEnded.
	mainEnded(l *loop) (told reaper.Told, asked bool)
	// writes reports whether the report is this process's to write.
	writes() bool
	// exit is life.Kernel's Exit.
	exit(l *loop, end life.End) (stays bool)
}

// parts are what each role has.
type parts struct {
	command reaper.Command // without Args there is none: --pause
	rules   life.Rules
	watch   []watched // whose end stops the command
	stdin   pdeath.Stdin
}

func (p *parts) common() *parts { return p }

// solo runs the command, and nobody else is fini.
type solo struct{ parts }

// inner runs the command for the outer one.
type inner struct {
	solo
	word reaper.Word     // to the outer one
	line reaper.Lifeline // from there

	early uint64 // the keys that the job had before the command was there: bit n-1 is signal n
}

// outer runs the inner one.
type outer struct {
	parts
	word     reaper.Word     // from the inner one
	line     reaper.Lifeline // to that
	fallback *solo
	forked   *reaper.Child // the inner one, if entry has forked: see reaper.Fork
	tookOver bool          // it does the work of the inner one, which was killed
}

// watched is a descriptor that shows the end of a process, which is a reason to stop; or, where why is
// innerTold, what an isolated inner fini tells.
type watched struct {
	fd   int // its pidfd, or the lifeline from the outer fini; -1 if parentSignal tells of its end
	pid  int
	name string // for the line that says it
	why  life.Reason

	ended bool
}

func pidfds(all []watched) (fds []int) {
	for _, w := range all {
		fds = append(fds, w.fd)
	}
	return fds
}

// job is the process group that fini was started in, if the command is to stay in it; else 0.
// A terminal and its shell then treat the command as if fini were not there. The first process of
// a container has a terminal for itself, unless its group is outside.
func job(flags *commandLine) int {
	outside := unix.Getpgrp() == 0 // in this PID namespace it has no number
	stay := (os.Getpid() != 1 || outside) && !flags.Pause && flags.Inner == nil && signals.HasTerminal()
	if flags.Foreground != nil && flags.Inner == nil {
		stay = *flags.Foreground
	}
	switch {
	case flags.Inner != nil:
		return flags.Inner.job
	case stay && outside:
		return life.OutsideJob
	case stay:
		return unix.Getpgrp()
	}
	return 0
}

// jobStops are the signals that stop a job.
var jobStops = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// keepDefault are the signals that are not caught, so that they stop a fini which is in a job along with it.
// The inner one of a pair catches them.
func keepDefault(flags *commandLine, rules life.Rules) []syscall.Signal {
	switch {
	case rules.Job == 0 || flags.Inner != nil:
		return nil
	case rules.Orphaned:
		return slices.DeleteFunc(slices.Clone(jobStops), func(sig syscall.Signal) bool { return sig == syscall.SIGTSTP })
	}
	return jobStops
}

// takeRole decides which part this process plays.
func (l *loop) takeRole(flags *commandLine, command reaper.Command, rules life.Rules) (role, error) {
	r := &solo{parts{command: command, rules: rules}}
	r.rules.Self = os.Getpid()
	r.rules.Group = rules.Job == 0 && !flags.SingleChild
	r.command.Deathsig = syscall.SIGKILL
	if rules.Job != 0 {
		r.command.Group = reaper.SameGroup
	} else if os.Getpid() == 1 && flags.Inner == nil {
		r.command.Terminal = signals.Foreground()
	}
	var err error
	fork := reaper.ForkedAtEntry()
	if flags.StdinEOF && !(fork != nil && !fork.IsInner) {
		if r.stdin, err = pdeath.LookAtStdin(); err != nil {
			return nil, fmt.Errorf("--stdin-eof: cannot watch standard input: %w", err)
		}
	}
	if flags.Inner != nil {
		if fork != nil {
			if err := l.bind(flags, r); err != nil {
				return nil, err
			}
			for _, w := range r.watch {
				flags.Inner.parent, flags.Inner.parentPid = w.fd, w.pid
			}
		}
		i := newInner(r, flags)
		return i, nil
	}
	sid, _ := unix.Getsid(0)
	r.rules.Leader = sid == os.Getpid()
	if err := l.bind(flags, r); err != nil {
		return nil, err
	}
	if fork != nil {
		o := &outer{word: fork.Word, line: fork.Line, fallback: r, forked: &reaper.Child{Pid: fork.Inner, FD: fork.InnerFD}}
		o.rules = r.rules
		return o, nil
	}
	if os.Getpid() == 1 || flags.Pause || !flags.Shield && flags.Isolate == "" {
		return r, nil
	}
	if flags.Isolate != "" {
		return l.isolate(r, flags.Isolate)
	}
	return l.shield(r), nil
}

// shield returns the outer one of a pair, or the role alone.
func (l *loop) shield(alone *solo) role {
	if alone.rules.Job == life.OutsideJob {
		l.sayf(life.Detail, "no shield: this process group is outside of the PID namespace, and the inner fini could not start the command in it")
		return alone
	}
	o, err := newOuter(alone, nil)
	if err != nil {
		l.sayf(life.Failure, "%v: going on without a shield", err)
		return alone
	}
	return o
}

// newInner makes a role that of the inner fini, by the orders of the outer one.
func newInner(alone *solo, flags *commandLine) role {
	from := flags.Inner
	reaper.SetName(filepath.Base(os.Args[0]))
	r := &inner{solo: *alone, word: reaper.Word{Write: from.word, InJob: from.job != 0}, line: reaper.Lifeline{Read: from.line, Write: -1}}
	parent := os.Getppid()
	if from.isolated != nil {
		parent = from.isolated.pid
	}
	r.watch = []watched{{fd: from.line, pid: parent, why: life.FiniDied}}
	if from.parentPid != 0 {
		r.watch = append(r.watch, watched{fd: from.parent, pid: from.parentPid, why: life.ParentDied})
	}
	for i, fd := range from.bound {
		r.watch = append(r.watch, watched{fd: fd, pid: int(flags.Bind[i]), why: life.BoundEnded})
	}
	reaper.CloseOnExec(append(pidfds(r.watch), from.word)...)
	if from.isolated != nil {
		return newIsolatedInner(r, from.isolated) // it is in the job, if there is one
	}
	if r.rules.Job != 0 {
		r.command.Group = r.rules.Job
	}
	// Until it caught stop signals, one could have stopped this process with nobody to continue it: so it
	// was to be killed with the outer one (see newOuter). From here on it outlives that one.
	reaper.ClearDeathsig()
	sid, _ := unix.Getsid(0)
	r.rules.Leader = sid == parent
	// If both are killed at once, the kernel at least asks the command to end.
	r.command.Deathsig = syscall.SIGTERM
	return r
}

// newOuter returns the role of the outer fini: it runs this binary again, as the inner fini, passes signals
// on to that one, and lets it know when this process or the parent process ends.
func newOuter(alone *solo, by *reaper.Isolation) (*outer, error) {
	line, err := reaper.NewLifeline()
	if err != nil {
		return nil, err
	}
	word, err := reaper.NewWord()
	if err != nil {
		_, _ = unix.Close(line.Read), unix.Close(line.Write)
		return nil, err
	}
	to := orders{job: alone.rules.Job, word: word.Write, line: line.Read, parent: -1}
	pass := []int{word.Write, line.Read}
	for _, w := range alone.watch {
		if w.why == life.ParentDied {
			to.parent, to.parentPid = w.fd, w.pid
		} else {
			to.bound = append(to.bound, w.fd)
		}
		if w.fd >= 0 {
			pass = append(pass, w.fd)
		}
	}
	if by != nil {
		pass = append(pass, word.Read)
		names := []string{orphans.Name(os.Getpid())}
		for _, w := range alone.watch {
			at := len(names)
			if w.why == life.ParentDied {
				at = 1 // as newInner has them
			}
			names = append(append(names[:at:at], strings.ReplaceAll(orphans.Name(w.pid), "\n", " ")), names[at:]...)
		}
		to.isolated = &isolated{pid: os.Getpid(), leader: alone.rules.Leader, word: word.Read, by: *by, names: strings.Join(names, "\n")}
		if to.job != 0 {
			to.job = life.OutsideJob
		}
	}
	o := &outer{word: word, line: line, fallback: alone}
	o.rules = alone.rules
	o.command = reaper.Command{
		Path:      "/proc/self/exe",
		Args:      append([]string{os.Args[0], "--inner=" + to.String()}, os.Args[1:]...),
		Env:       alone.command.Env,
		Inherited: alone.command.Inherited,
		Pass:      pass,
		Terminal:  -1,
		Deathsig:  syscall.SIGKILL, // until it can act on that itself: see newInner
	}
	return o, nil
}

// close closes what an outer role has opened, if it can't be played.
func (o *outer) close() {
	_, _ = unix.Close(o.word.Read), unix.Close(o.line.Write)
	for _, fd := range o.command.Pass {
		if fd != o.word.Read && !slices.Contains(pidfds(o.fallback.watch), fd) {
			_ = unix.Close(fd)
		}
	}
	reaper.CloseOnExec(pidfds(o.fallback.watch)...)
}

func (r *solo) leads() life.Role {
	if len(r.command.Args) == 0 {
		return life.Pause
	}
	return life.Alone
}

func (r *solo) start(l *loop) (role, reaper.Child, error) {
	reserve()
	child, err := r.startCommand(l)
	return r, child, err
}

// startCommand starts the command, if there is one, and says what the kernel has refused to give it.
func (r *solo) startCommand(l *loop) (child reaper.Child, err error) {
	if len(r.command.Args) == 0 {
		return reaper.Child{FD: -1}, nil
	}
	if child, err = reaper.Spawn(r.command); err != nil {
		return child, err
	}
	l.caught.CatchIgnored()
	if child.Unbound && os.Getpid() != 1 { // the end of PID 1 is that of its namespace
		l.sayf(life.Failure, "cannot set the command's parent death signal: it outlives a fini that is killed")
	}
	if child.Ungrouped && r.rules.Group {
		r.rules.Group = false
		l.sayf(life.Failure, "cannot give the command a process group: signals go to the main child alone")
	}
	return child, nil
}

func (p *parts) notStarted(life.Result)        {}
func (r *solo) parentDied()                    {}
func (r *solo) whileInnerIsStopped() []watched { return nil }
func (r *solo) writes() bool                   { return true }
func (p *parts) exit(*loop, life.End) bool     { return false }
func (r *solo) ofTree(l *loop, pid int) bool   { return l.ofTree(pid) }

func (p *parts) accepts(_ *loop, got signals.Received) (origin int, mine bool) {
	return got.Sender, true
}

func (r *solo) mainEnded(*loop) (told reaper.Told, asked bool) { return told, false }

func (p *parts) shows(l *loop, i int, woken *life.Woken) {
	l.bound[i].ended = true
	woken.Stop = append(woken.Stop, l.bound[i].why)
}

func (r *inner) leads() life.Role { return life.Inner }

// errTooLate is said of a reason to stop that has come before the start.
var errTooLate = errors.New("the outer fini, or a process to whose end the command is bound, has ended before the start: it is not started")

// start waits until the outer one has reserved what it needs: the command may use up what there is.
func (r *inner) start(l *loop) (role, reaper.Child, error) {
	reserve()
	if !r.line.Await(pidfds(r.watch[1:])...) {
		return r, reaper.Child{}, errTooLate
	}
	if r.rules.Job != 0 {
		r.early = l.tree.Pending(os.Getppid())
	}
	child, err := r.startCommand(l)
	if err == nil {
		r.word.Started(child.Pid, child.Unbound)
	}
	return r, child, err
}

// accepts drops a key that the outer one got before it slept and the command has had too: it came after the last look
// before the start, and the command catches it. Whom it would have ended is still there, and has not had it.
func (r *inner) accepts(l *loop, got signals.Received) (origin int, mine bool) {
	mayHaveIt := got.Early && r.rules.Job != 0 && r.early&(1<<(got.Signal-1)) == 0
	return got.Sender, !mayHaveIt || !l.tree.Catches(l.main, got.Signal)
}

func (r *inner) notStarted(status life.Result) {
	r.word.Started(0, true)
	r.word.Done(status.WaitStatus())
}

// shows takes in also what the outer one tells: that its parent process has died, of which there is no pidfd.
func (r *inner) shows(l *loop, i int, woken *life.Woken) {
	if l.bound[i].why == life.FiniDied && r.line.Told() {
		l.bond.Again(i) // its own end is still to come
		woken.Stop = append(woken.Stop, life.ParentDied)
		return
	}
	r.solo.shows(l, i, woken)
}

// exit tells the outer one how the command has ended.
func (r *inner) exit(l *loop, end life.End) (stays bool) {
	r.word.Done(end.WaitStatus())
	if parent := r.watch[0].pid; end.WasStopped && r.rules.Job != 0 && os.Getppid() == parent {
		// The outer one is in the job, and was stopped with the command: continue it. Had it been killed,
		// this process would have another parent by now.
		l.failed(signals.To(parent, syscall.SIGCONT))
	}
	return false
}

func (o *outer) leads() life.Role { return life.Outer }

// start reserves what this process needs while the inner one starts, which waits for that at the lifeline.
func (o *outer) start(l *loop) (role, reaper.Child, error) {
	child, err := o.startInner()
	if err != nil {
		// There may still be a process for the command alone.
		l.sayf(life.Failure, "%v: going on without a shield", err)
		o.close()
		return o.fallback.start(l)
	}
	l.caught.CatchIgnored()
	return o, child, nil
}

func (o *outer) startInner() (reaper.Child, error) {
	if o.forked != nil {
		reserve()
		reaper.ForkedAtEntry().Resume()
		return *o.forked, nil
	}
	child, err := reaper.Spawn(o.command)
	if err == nil {
		reserve()
		o.line.Begin()
	}
	return child, err
}

func (o *outer) parentDied()                    { o.line.ParentDied() }
func (o *outer) whileInnerIsStopped() []watched { return o.fallback.watch }
func (o *outer) writes() bool                   { return o.tookOver }

// ofTree makes no difference here: the inner one judges who has sent what is relayed.
func (o *outer) ofTree(*loop, int) bool { return false }

// mainEnded takes over, if the inner one has ended without a word.
func (o *outer) mainEnded(l *loop) (told reaper.Told, asked bool) {
	if o.tookOver {
		return told, false
	}
	told, _ = o.word.Told()
	if o.tookOver = !told.Done; o.tookOver {
		l.report.TakeOver(told.Pid)
		l.tree.Allow(l.allow, told.Pid)
	}
	// The kernel sends no parent death signal to who has other credentials by then.
	same, known := l.tree.SameCredentials(told.Pid)
	return told, told.Pid != 0 && !told.Unbound && same && known
}

// orders are what the outer fini tells the inner one in --inner: numbers, with commas between.
type orders struct {
	job       int   // see job
	word      int   // descriptor of the word's writing end
	line      int   // descriptor of the lifeline's reading end
	parentPid int   // of the outer one's parent process; 0 if it is not bound to that
	parent    int   // its pidfd; -1 if there is none
	bound     []int // pidfds of --bind, in order
	isolated  *isolated
}

func (in orders) String() string {
	var words []string
	for _, n := range append([]int{in.job, in.word, in.line, in.parentPid, in.parent}, in.bound...) {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",") + in.isolated.String()
}

// errNotForUsers is said of an --inner that no outer fini has written.
var errNotForUsers = errors.New("--inner: it is not for users; see fini --help")

// UnmarshalText is what the flag's parser calls.
func (in *orders) UnmarshalText(text []byte) error {
	var numbers []int
	first, rest, isolates := strings.Cut(string(text), "/")
	for word := range strings.SplitSeq(first, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return errNotForUsers
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 5 || numbers[1] < 3 || numbers[2] < 3 {
		return errNotForUsers
	}
	*in = orders{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5:], nil}
	if isolates {
		in.isolated = &isolated{}
		return in.isolated.parse(rest)
	}
	return nil
}

// bind makes the ends of the --bind processes reasons to stop, and that of the parent process, unless -p is
// none or, without -p, this is PID 1 or nohup(1) stands before fini.
func (l *loop) bind(flags *commandLine, r *solo) error {
	for _, pid := range flags.Bind {
		fd, err := pdeath.Process(int(pid))
		if err != nil {
			return fmt.Errorf("cannot bind the command to process %d: %w", pid, err)
		}
		r.watch = append(r.watch, watched{fd: fd, pid: int(pid), why: life.BoundEnded})
	}
	asked := flags.Pdeathsig != nil
	switch {
	case asked && *flags.Pdeathsig == 0, !asked && os.Getpid() == 1:
		return nil
	}
	fd, pid, err := parentProcess()
	switch {
	case !asked && signals.Ignored(syscall.SIGHUP) && l.byNohup(pid, err):
		_ = unix.Close(fd)
		l.sayf(life.Detail, "not bound to the parent process: this was started by nohup; -p TERM binds it")
		return nil
	case err == nil:
		r.watch = append(r.watch, watched{fd: fd, pid: pid, why: life.ParentDied})
		return nil
	case errors.Is(err, pdeath.ErrNone) && !asked:
		l.sayf(life.Detail, "not bound to the parent process: it is outside of the PID namespace")
		return nil
	case !errors.Is(err, pdeath.ErrGone):
		// No pidfds, or a parent outside the namespace.
		l.parent, err = pdeath.Signal(parentSignal)
		if l.bySignal = err == nil; l.bySignal && l.parent != 0 {
			r.watch = append(r.watch, watched{fd: -1, pid: l.parent, why: life.ParentDied})
		}
	}
	if errors.Is(err, pdeath.ErrGone) {
		return errors.New("the parent process has ended before fini was ready: the command is not started; -p none starts it all the same")
	}
	if err != nil {
		l.sayf(life.Failure, "%v: going on without a bond to the parent process", err)
	}
	return nil
}

// parentProcess is pdeath.Parent of the outer fini, if this is half of a fork.
func parentProcess() (fd, pid int, err error) {
	fork := reaper.ForkedAtEntry()
	switch {
	case fork == nil:
		return pdeath.Parent()
	case fork.IsInner && pdeath.Adopted(fork.Outer, fork.Parent):
		return -1, fork.Parent, pdeath.ErrGone
	}
	return fork.ParentFD, fork.Parent, nil
}

// byNohup reports whether nohup(1) stands right before fini: fini ignores SIGHUP, and its parent does not, or can't be
// asked any more, as a shell that ended behind its "nohup fini &". err is that of pdeath.Parent.
func (l *loop) byNohup(parent int, err error) bool {
	switch name := orphans.Name(parent); {
	case name != "" && name == orphans.Name(os.Getpid()):
		return false // it is another fini, which catches what it ignored
	case errors.Is(err, pdeath.ErrGone), errors.Is(err, pdeath.ErrNone):
		return true
	}
	return !l.tree.Ignores(parent, syscall.SIGHUP)
}

// parentSignal tells that the parent process may have died, if there is no pidfd of it. The
// last real-time signal is the one least likely to be sent for another reason.
const parentSignal = syscall.Signal(64)
