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
	"time"

	"golang.org/x/sys/unix"

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
// With --isolate the inner one is the init of a PID namespace: see isolation.
//
// As PID 1 fini is solo. A wrapper is a pair, so that whichever of the two is killed, the other
// ends the tree. The inner one has a process group of its own: a SIGKILL for the group that
// the outer one is in spares it.
type role struct {
	command      reaper.Command // without Args there is none: --pause
	machine      func(child int) machine
	watch        []watched // whose end stops the command
	whileStopped []watched // the same, while the inner fini is stopped and can't watch
	stdin        pdeath.Stdin
	timeout      time.Duration
	word         *reaper.Word    // from inner to outer
	line         reaper.Lifeline // from outer to inner
	outer        bool
	inner        bool
	rules        rules
	fallback     *role
	isolated     *isolated // of an inner one: how it is, nil if it is not
	goOn         bool      // of an outer one: without isolation, if there is none
}

// watched is a process whose end is a reason to stop.
type watched struct {
	fd   int // its pidfd; -1 if another way tells of its end
	pid  int
	name string // for the line that says it
	why  reason

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
		return outsideJob
	case stay:
		return unix.Getpgrp()
	}
	return 0
}

// jobStops are the signals that stop a job.
var jobStops = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// keepDefault are the signals by which a fini that is in a job stops with it. The inner one of a
// pair never is.
func keepDefault(flags *commandLine, rules rules) []syscall.Signal {
	switch {
	case rules.job == 0 || flags.Inner != nil:
		return nil
	case rules.orphaned:
		return slices.DeleteFunc(slices.Clone(jobStops), func(sig syscall.Signal) bool { return sig == syscall.SIGTSTP })
	}
	return jobStops
}

// takeRole decides which part this process plays.
func (l *loop) takeRole(flags *commandLine, command reaper.Command, rules rules) (*role, error) {
	r := &role{command: command, rules: rules, timeout: time.Duration(flags.Timeout)}
	r.rules.self = os.Getpid()
	r.rules.group = rules.job == 0 && !flags.SingleChild
	r.command.Deathsig = syscall.SIGKILL
	if rules.job != 0 {
		r.command.Group = reaper.SameGroup
	} else if os.Getpid() == 1 && flags.Inner == nil {
		r.command.Terminal = signals.Foreground()
	}
	if !flags.Pause {
		l.address(r, flags.Inner)
	}
	r.machine = func(child int) machine {
		if flags.Pause {
			return paused{r.rules.warnReaped}
		}
		return newLadder(r.rules, child)
	}
	var err error
	if flags.StdinEOF {
		if r.stdin, err = pdeath.LookAtStdin(); err != nil {
			return nil, fmt.Errorf("--stdin-eof: cannot watch standard input: %w", err)
		}
	}
	if flags.Inner != nil {
		r.beInner(flags)
		return r, nil
	}
	sid, _ := unix.Getsid(0)
	r.rules.leader = sid == os.Getpid()
	if err := l.bind(flags, r); err != nil {
		return nil, err
	}
	if os.Getpid() == 1 || flags.Pause || !flags.Shield && flags.Isolate == "" {
		return r, nil
	}
	if flags.Isolate != "" {
		return l.beIsolated(r, flags.Isolate)
	}
	return l.beShielded(r), nil
}

// beShielded returns the role of the outer one of a pair, or the role alone.
func (l *loop) beShielded(r *role) *role {
	if r.rules.job == outsideJob {
		l.sayf(detail, "no shield: this process group is outside of the PID namespace, and the inner fini could not start the command in it")
		return r
	}
	outer, err := r.beOuter(nil, -1)
	if err != nil {
		l.sayf(failure, "%v: going on without a shield", err)
		return r
	}
	return outer
}

// address makes the command execute by way of another fini, if LISTEN_PID or the like name this
// one, or the outer one of its pair: whoever set them meant the command.
func (l *loop) address(r *role, from *inner) {
	pid := os.Getpid()
	switch {
	case from != nil && from.isolated != nil && reaper.NamesPid(r.command.Env, from.isolated.pid):
		r.command.Env = reaper.Rename(r.command.Env, from.isolated.pid, from.isolated.pidfd)
	case from != nil && from.isolated != nil:
		return
	case from != nil:
		pid = os.Getppid()
	}
	if !reaper.NamesPid(r.command.Env, pid) {
		return
	}
	self := reaper.Self()
	if self == "" {
		l.sayf(failure, "cannot execute fini again: LISTEN_PID and the like do not name the command")
		return
	}
	r.command.Path = self
	r.command.Args = append([]string{os.Args[0], "--become=" + strconv.Itoa(pid), "--"}, r.command.Args...)
}

// beInner makes a role that of the inner fini. What the outer one has opened for it is passed
// in a flag.
func (r *role) beInner(flags *commandLine) {
	from := flags.Inner
	reaper.SetName(filepath.Base(os.Args[0]))
	r.inner, r.word = true, &reaper.Word{Write: from.word}
	parent := os.Getppid()
	if r.isolated = from.isolated; r.isolated != nil {
		parent = r.isolated.pid
	}
	r.line = reaper.Lifeline{Read: from.line, Write: -1}
	r.watch = []watched{{fd: from.line, pid: parent, why: finiDied}}
	if from.parentPid != 0 {
		r.watch = append(r.watch, watched{fd: from.parent, pid: from.parentPid, why: parentDied})
	}
	for i, fd := range from.bound {
		r.watch = append(r.watch, watched{fd: fd, pid: int(flags.Bind[i]), why: boundEnded})
	}
	reaper.CloseOnExec(append(pidfds(r.watch), from.word)...)
	if r.isolated != nil {
		reaper.CloseOnExec(r.isolated.word, r.isolated.pidfd)
		r.word.Read, r.rules.leader = r.isolated.word, r.isolated.leader
		return // it is in the job, if there is one
	}
	if r.rules.job != 0 {
		r.command.Group = r.rules.job
	}
	// Until now a stop signal could stop it, and nothing would have continued it. From here on it
	// catches those, and outlives the outer one.
	reaper.ClearDeathsig()
	sid, _ := unix.Getsid(0)
	r.rules.leader = sid == parent
	// If both are killed at once, the kernel at least asks the command to end.
	r.command.Deathsig = syscall.SIGTERM
}

// beOuter returns the role of the outer fini: it runs itself again and passes signals on to
// that one, which gets to know when this one or the parent process ends. self is a pidfd of this one, for
// an isolated one.
func (r *role) beOuter(by *reaper.Isolation, self int) (*role, error) {
	line, err := reaper.NewLifeline()
	if err != nil {
		return nil, err
	}
	word, err := reaper.NewWord()
	if err != nil {
		_, _ = unix.Close(line.Read), unix.Close(line.Write)
		return nil, err
	}
	to := inner{job: r.rules.job, word: word.Write, line: line.Read, parent: -1}
	for _, w := range r.watch {
		if w.why == parentDied {
			to.parent, to.parentPid = w.fd, w.pid
		} else {
			to.bound = append(to.bound, w.fd)
		}
	}
	if by != nil {
		if to.job != 0 {
			to.job = outsideJob
		}
		to.isolated = &isolated{pid: os.Getpid(), leader: r.rules.leader, word: word.Read, pidfd: self, by: *by}
	}
	outer := &role{
		command: reaper.Command{
			Path:      "/proc/self/exe",
			Args:      append([]string{os.Args[0], "--inner=" + to.String()}, os.Args[1:]...),
			Env:       r.command.Env,
			Inherited: r.command.Inherited,
			Pass:      []int{word.Write, line.Read},
			Terminal:  -1,
			Deathsig:  syscall.SIGKILL, // until it can act on that itself: see beInner
		},
		rules:        r.rules,
		whileStopped: r.watch,
		word:         &word,
		line:         line,
		outer:        true,
		fallback:     r,
	}
	for _, w := range r.watch {
		if w.fd >= 0 {
			outer.command.Pass = append(outer.command.Pass, w.fd)
		}
	}
	if by != nil {
		outer.command.Isolation, outer.command.Deathsig = by, 0
		outer.watch = []watched{{fd: word.Read, why: innerTold}}
		outer.command.Pass = append(outer.command.Pass, word.Read, self)
		if r.rules.job != 0 {
			// Nobody in the namespace can be moved into a group that is outside.
			outer.command.Group = reaper.SameGroup
		}
	}
	outer.machine = func(child int) machine { return &watch{rules: r.rules, inner: child} }
	return outer, nil
}

// close closes what an outer role has opened, if it can't be played.
func (r *role) close() {
	_, _ = unix.Close(r.word.Read), unix.Close(r.line.Write)
	for _, fd := range r.command.Pass {
		if fd != r.word.Read && !slices.Contains(pidfds(r.fallback.watch), fd) {
			_ = unix.Close(fd)
		}
	}
	reaper.CloseOnExec(pidfds(r.fallback.watch)...)
}

// inner is what the outer fini tells the inner one in --inner: numbers, with commas between.
type inner struct {
	job       int   // see job
	word      int   // descriptor of the word's writing end
	line      int   // descriptor of the lifeline's reading end
	parentPid int   // of the outer one's parent process; 0 if it is not bound to that
	parent    int   // its pidfd; -1 if there is none
	bound     []int // pidfds of --bind, in order
	isolated  *isolated
}

func (in inner) String() string {
	var words []string
	for _, n := range append([]int{in.job, in.word, in.line, in.parentPid, in.parent}, in.bound...) {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",") + in.isolated.String()
}

// errNotForUsers is said of an --inner that no outer fini has written.
var errNotForUsers = errors.New("it is not for users")

// UnmarshalText is what the flag's parser calls.
func (in *inner) UnmarshalText(text []byte) error {
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
	*in = inner{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5:], nil}
	if isolates {
		in.isolated = &isolated{}
		return in.isolated.parse(rest)
	}
	return nil
}

// bind binds a role to the parent process, if it is to be, and to those of --bind.
func (l *loop) bind(flags *commandLine, r *role) error {
	for _, pid := range flags.Bind {
		fd, err := pdeath.Process(int(pid))
		if err != nil {
			return fmt.Errorf("cannot bind the command to process %d: %w", pid, err)
		}
		r.watch = append(r.watch, watched{fd: fd, pid: int(pid), why: boundEnded})
	}
	asked := flags.Pdeathsig != nil
	switch {
	case asked && *flags.Pdeathsig == 0, !asked && os.Getpid() == 1:
		return nil
	}
	fd, pid, err := pdeath.Parent()
	switch {
	case !asked && signals.Ignored(syscall.SIGHUP) && l.byNohup(pid, err):
		_ = unix.Close(fd)
		l.sayf(detail, "not bound to the parent process: this was started by nohup; -p TERM binds it")
		return nil
	case err == nil:
		r.watch = append(r.watch, watched{fd: fd, pid: pid, why: parentDied})
		return nil
	case errors.Is(err, pdeath.ErrNone) && !asked:
		l.sayf(detail, "not bound to the parent process: it is outside of the PID namespace")
		return nil
	case !errors.Is(err, pdeath.ErrGone):
		// No pidfds, or a parent outside the namespace.
		l.parent, err = pdeath.Signal(parentSignal)
		if l.bySignal = err == nil; l.bySignal && l.parent != 0 {
			r.watch = append(r.watch, watched{fd: -1, pid: l.parent, why: parentDied})
		}
	}
	if errors.Is(err, pdeath.ErrGone) {
		return errors.New("the parent process has ended before fini was ready: the command is not started; -p none starts it all the same")
	}
	if err != nil {
		l.sayf(failure, "%v: going on without a bond to the parent process", err)
	}
	return nil
}

// byNohup reports whether nohup(1) stands right before fini: its parent does not ignore SIGHUP, as fini
// does. err is that of pdeath.Parent. If the parent has just ended, its death is still to be noticed.
func (l *loop) byNohup(parent int, err error) bool {
	if errors.Is(err, pdeath.ErrGone) || errors.Is(err, pdeath.ErrNone) {
		return true
	}
	ignores, known := l.tree.Ignores(parent, syscall.SIGHUP)
	return !ignores && (known || !pdeath.Died(parent))
}

// parentSignal tells that the parent process may have died, if there is no pidfd of it. The
// last real-time signal is the one least likely to be sent for another reason.
const parentSignal = syscall.Signal(64)

// errTooLate is said of a reason to stop that has come before the start.
var errTooLate = errors.New("the outer fini, or a process to whose end the command is bound, has ended before the start: it is not started")

// start starts the command of a role, or the one of its fallback. It returns the role that is
// played. An outer fini reserves what it needs while the inner one starts, which waits at the
// lifeline for that: the command may use up what there is.
func (l *loop) start(r *role) (*role, reaper.Child, error) {
	if !r.outer {
		reserve()
	}
	if r.inner && !r.line.Await(pidfds(r.watch[1:])...) {
		return r, reaper.Child{}, errTooLate
	}
	if len(r.command.Args) == 0 {
		return r, reaper.Child{FD: -1}, nil
	}
	child, err := reaper.Spawn(r.command)
	if r.outer && err == nil {
		reserve()                       // while the inner one starts
		reaper.CloseOnExec(r.line.Read) // to keep it: a write when the inner one is gone raises no SIGPIPE
		r.line.Begin()
	}
	if r.command.Isolation != nil {
		return l.startIsolated(r, child, err)
	}
	if err != nil && r.fallback != nil {
		// There may still be a process for the command alone.
		l.sayf(failure, "%v: going on without a shield", err)
		r.close()
		return l.start(r.fallback)
	}
	if err != nil {
		return r, child, err
	}
	if r.inner {
		r.word.Started(l.outside.Pid(child.Pid), child.Unbound)
	}
	if child.Unbound && !r.outer && os.Getpid() != 1 { // the end of PID 1 is that of its namespace
		l.sayf(failure, "cannot set the command's parent death signal: it outlives a fini that is killed")
	}
	if child.Ungrouped && r.rules.group && !r.outer {
		r.rules.group = false
		l.sayf(failure, "cannot give the command a process group: signals go to the main child alone")
	}
	return r, child, nil
}
