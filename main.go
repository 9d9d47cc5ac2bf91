// Command fini runs one command and leaves nothing behind: it forwards signals to
// it, reaps every orphan, ends what the command left running, and exits with the
// command's status.
//
// A life, from top to bottom: parse the command line, catch signals, become a
// subreaper, bind to the launcher, start the command, let go of the streams, and then
// one loop, in which step decides and do carries out, until step says exit.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
	_ "github.com/seed-126c5d8a/fini/stack" // before what needs a large one
)

// fini's own statuses; the rest are the command's.
const (
	exitTimedOut      = 124
	exitFailed        = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// license is fini's and those of its parts: an image may hold nothing but the binary.
//
//go:embed NOTICES
var license string

// The command is started on the main thread, which never ends: the kernel takes the
// end of the thread that forked for the parent's death.
func init() { runtime.LockOSThread() }

func main() {
	environ := reaper.Environ()
	flags, err := parse(os.Args[1:], environ)
	if err != nil {
		speaker{notice}.sayf(failure, "%v", err)
		os.Exit(exitFailed)
	}
	switch {
	case flags.Help:
		answer(usage)
	case flags.Version:
		answer(version() + "\n")
	case flags.License, flags.License2:
		answer(license)
	case len(flags.Command) == 0 && !flags.Pause:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(exitFailed)
	case flags.Become:
		os.Exit(become(flags, environ))
	default:
		os.Exit(run(flags, environ))
	}
}

// answer prints what was asked for instead of a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		speaker{notice}.sayf(failure, "cannot write: %v", err)
		os.Exit(exitFailed)
	}
}

// run is one life. It returns fini's exit status.
func run(flags *commandLine, environ []string) int {
	started := reaper.AtStart()
	var report *report
	if flags.Report != "" {
		var err error
		if report, err = newReport(flags.Report, flags.Command); err != nil {
			flags.speaker().sayf(failure, "%v", err)
			return exitFailed
		}
	}
	l := &loop{report: report, speaker: flags.speaker(), mainFD: -1, senders: map[syscall.Signal]int{}}
	var err error
	if l.caught, err = signals.Catch(started.Ignored); err != nil {
		return l.notStarted(err)
	}
	l.caught.Children(true)
	if os.Getpid() != 1 {
		// Of a pair, the outer one has said so.
		if err := reaper.Subreaper(); err != nil && flags.Inner == nil {
			l.sayf(failure, "%v: leftovers are not found", err)
		}
	}
	l.tree = orphans.New()
	p, err := l.plan(flags, reaper.Command{
		Args:     flags.Command,
		Env:      environ,
		Started:  started,
		Deathsig: syscall.SIGKILL,
		Terminal: signals.Foreground(),
	})
	if err != nil {
		return l.notStarted(err)
	}
	makeThreads(2 + signals.Threads)
	child, err := p.start()
	if err != nil && p.rules.outer {
		// There may still be a process for the command alone.
		l.sayf(failure, "%v: going on without a shield", err)
		p.close()
		p = p.alone
		child, err = p.start()
	}
	if err != nil {
		return l.notStarted(err)
	}

	if child.Unbound && os.Getpid() != 1 { // the end of PID 1 is that of its namespace
		l.sayf(failure, "cannot set the command's parent death signal: it outlives a fini that is killed")
	}
	if child.Ungrouped && !p.rules.outer {
		l.sayf(failure, "cannot give the command a process group: signals go to the main child alone")
	}

	// From here on nothing but the end of the command and its tree ends fini.
	l.caught.Started()
	reaper.Keep(p.standBy...)
	if err := reaper.LetGo(p.stdin == pdeath.Open); err != nil {
		l.sayf(detail, "%v", err)
	}
	l.life = newLife(p.rules, child.Pid)
	if report != nil {
		report.Pid = child.Pid
	}
	l.note, l.standBy = p.note, p.standBy
	l.terminal = p.command.Terminal >= 0
	l.bond = pdeath.Watch(p.watch, p.stdin)
	if p.timeout > 0 {
		l.timeout.set(p.timeout)
	}
	if flags.Pause {
		l.sayf(detail, "pausing")
	} else {
		l.mainFD = child.FD
		l.sayf(detail, "started %d (%s)", child.Pid, flags.Command[0])
	}
	if p.stdin == pdeath.Ended {
		l.take(stop{stdinClosed})
	}
	return l.run()
}

// makeThreads makes n idle threads beside those that there are. The runtime makes a thread
// whenever it wants one, and aborts where it can't; once the command has filled the process
// table it must not want any. With one processor, which it has from the start where
// reaper/entry_*.s is written for the architecture, it wants one beside this for what else there
// is to run, which is garbage collection, and another while that one is only just coming to
// rest.
func makeThreads(n int) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20) // from here on it collects
	parked, release := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			// A locked goroutine keeps its thread while it is parked. Unlocked before
			// it ends, it leaves the thread behind.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			parked <- struct{}{}
			<-release
		}()
	}
	for range n {
		<-parked
	}
	close(release)
}

// notStarted says why there is no command, and returns fini's exit status.
func (l *loop) notStarted(err error) int {
	l.sayf(failure, "%v", err)
	status := failureStatus(err)
	if l.report != nil {
		text := err.Error()
		l.report.Error = &text
		l.failed(l.report.write(status))
	}
	return status
}

// failureStatus is the exit status for a command that could not be started.
func failureStatus(err error) int {
	var spawn *reaper.SpawnError
	if errors.As(err, &spawn) {
		switch spawn.Reason {
		case reaper.NotFound:
			return exitNotFound
		case reaper.NotExecutable:
			return exitNotExecutable
		}
	}
	return exitFailed
}

// A plan is what this process runs, what that is bound to, and by which rules.
type plan struct {
	command reaper.Command // without Args there is none: --pause
	rules   rules
	watch   []int // pidfds: the end of any of these processes stops the command
	standBy []int // the same, for while the inner fini of a pair is stopped and can't watch
	stdin   pdeath.Stdin
	timeout time.Duration
	note    *reaper.Note // by which the inner fini of a pair tells of its command
	alone   *plan        // where this is the outer one's: what to do without the inner
}

// plan is the part that this process plays: alone, as the outer fini of a pair, whose
// command is another fini, or as that inner one, which does the work.
func (l *loop) plan(flags *commandLine, command reaper.Command) (*plan, error) {
	p := &plan{command: command, rules: flags.rules(), timeout: time.Duration(flags.Timeout)}
	if !flags.Pause && addressed(command.Env, flags.Inner != nil) {
		p.command.Path = "/proc/self/exe"
		p.command.Args = append([]string{os.Args[0], "--become", "--"}, command.Args...)
	}
	var err error
	if flags.StdinEOF {
		if p.stdin, err = pdeath.LookAtStdin(); err != nil {
			return nil, fmt.Errorf("--stdin-eof: cannot watch standard input: %w", err)
		}
	}
	if flags.Inner != nil {
		reaper.SetName(filepath.Base(os.Args[0]))
		reaper.Keep(flags.Inner...)
		p.note, p.watch = &reaper.Note{Write: flags.Inner[0]}, flags.Inner[1:]
		// Should both of the pair be killed at once, the kernel asks the command.
		p.command.Deathsig = syscall.SIGTERM
		return p, nil
	}
	if p.watch, err = l.bind(flags); err != nil {
		return nil, err
	}
	if os.Getpid() == 1 || flags.Pause || !flags.Shield {
		return p, nil
	}
	outer, err := p.outer()
	if err != nil {
		l.sayf(failure, "%v: going on without a shield", err)
		return p, nil
	}
	// What there is to say of the command, the inner one says.
	l.upTo = min(l.upTo, notice)
	return outer, nil
}

// bind returns the pidfd of the launcher, if the command is to be bound to it.
func (l *loop) bind(flags *commandLine) ([]int, error) {
	asked := flags.Pdeathsig != nil
	if asked && *flags.Pdeathsig == 0 || !asked && (os.Getpid() == 1 || signals.Ignored(syscall.SIGHUP)) {
		return nil, nil
	}
	fd, err := pdeath.Launcher()
	if err == nil {
		return []int{fd}, nil
	}
	if errors.Is(err, pdeath.ErrNone) && !asked {
		return nil, nil
	}
	if !errors.Is(err, pdeath.ErrGone) {
		// No pidfds, or a launcher outside the namespace.
		l.launcher, err = pdeath.Signal(deathNotice)
		l.noticed = err == nil
	}
	if errors.Is(err, pdeath.ErrGone) {
		return nil, fmt.Errorf("%w: the command is not started", err)
	}
	if err != nil {
		l.sayf(failure, "%v: going on without a bond to the launcher", err)
	}
	return nil, nil
}

// deathNotice tells that the launcher may have died, where there is no pidfd of it. The
// last real-time signal is the one least likely to be sent for another reason.
const deathNotice = syscall.Signal(64)

// outer is the plan of the outer fini: it runs itself again and passes signals on to
// that one, which gets to know when this one or the launcher ends. Where the inner one
// is killed, it finds the command among its own children.
func (p *plan) outer() (*plan, error) {
	self, err := pdeath.Self()
	if err != nil {
		return nil, err
	}
	note, err := reaper.NewNote()
	if err != nil {
		return nil, err
	}
	pass := append([]int{note.Write, self}, p.watch...)
	var numbers []string
	for _, fd := range pass {
		numbers = append(numbers, strconv.Itoa(fd))
	}
	rules := p.rules
	rules.outer, rules.singleChild, rules.warnReaped = true, true, false
	rules.killAfter, rules.rewrite = 0, nil
	return &plan{
		command: reaper.Command{
			Path:     "/proc/self/exe",
			Args:     append([]string{os.Args[0], "--inner=" + strings.Join(numbers, ",")}, os.Args[1:]...),
			Env:      p.command.Env,
			Started:  p.command.Started,
			Pass:     pass,
			Terminal: p.command.Terminal,
		},
		rules:   rules,
		standBy: p.watch,
		note:    &note,
		alone:   p,
	}, nil
}

// close closes what the outer plan has opened, where it can't be carried out.
func (p *plan) close() {
	for _, fd := range append([]int{p.note.Read}, p.command.Pass...) {
		if !slices.Contains(p.alone.watch, fd) {
			_ = unix.Close(fd)
		}
	}
	reaper.Keep(p.alone.watch...)
}

// addressed tells whether LISTEN_PID names this fini, or the outer one of its pair: whoever
// passed sockets to it meant the command. See sd_listen_fds(3).
func addressed(env []string, inner bool) bool {
	pid := os.Getpid()
	if inner {
		pid = os.Getppid()
	}
	return slices.Contains(env, "LISTEN_PID="+strconv.Itoa(pid))
}

// become executes the command in the place of this fini, which another one started to be
// its main child. It returns the exit status where it can't.
func become(flags *commandLine, environ []string) int {
	started := reaper.AtStart()
	signals.KeepIgnored(started.Ignored)
	err := reaper.Become(reaper.Command{Args: flags.Command, Env: environ, Started: started})
	flags.speaker().sayf(failure, "%v", err)
	return failureStatus(err)
}

// start starts the command of a plan.
func (p *plan) start() (reaper.Child, error) {
	if len(p.command.Args) == 0 {
		return reaper.Child{FD: -1}, nil
	}
	child, err := reaper.Spawn(p.command)
	if err == nil && p.note != nil && !p.rules.outer {
		p.note.Leave(child.Pid)
	}
	return child, err
}

// loop ties the life to the processes. It runs in one goroutine, which alone reaps
// and signals.
type loop struct {
	speaker
	life    *life
	caught  *signals.Catcher
	bond    *pdeath.Bond
	tree    *orphans.Tree
	report  *report  // nil where none is asked for
	found   family   // by the last look
	leaks   []string // the leftovers that were told of
	note    *reaper.Note
	standBy []int // see plan

	timer   timer
	timeout deadline // --timeout
	wake    deadline // what step has asked for
	nap     deadline // until then SIGCHLD is not caught
	mainFD  int      // the main child's pidfd; -1 for none, and once it is known to have ended
	ended   bool     // children may have
	fds     []unix.PollFd

	senders map[syscall.Signal]int // of the last signal of each kind

	terminal bool // the command was handed its foreground
	noticed  bool // deathNotice tells of the launcher's death
	launcher int  // its pid then

	exited bool
	status int
}

var causes = [...]reason{
	pdeath.LauncherDied: launcherDied,
	pdeath.StdinClosed:  stdinClosed,
}

// run takes in events until the life is over, and returns fini's exit status.
func (l *loop) run() int {
	// One that ended before SIGCHLD was caught is found by this.
	for l.ended = true; !l.exited; {
		if l.ended {
			l.take(l.reap())
		} else {
			l.wait()
		}
	}
	return l.status
}

// signal is the event of a signal that was received.
func (l *loop) signal(got signals.Received) event {
	sig := got.Signal
	if sig == deathNotice && l.noticed && pdeath.Died(l.launcher) {
		return stop{launcherDied}
	}
	l.report.signal(got)
	l.senders[sig] = got.Sender
	return received{sig}
}

// ends tells whether a process is among those that have ended.
func (e ended) ends(pid int) bool {
	return slices.ContainsFunc(e.exits, func(x reaper.Exit) bool { return x.Pid == pid && !x.Status.Stopped() })
}

// collect reaps.
func (l *loop) collect() ended {
	e := ended{}
	e.exits, e.none = reaper.Reap()
	l.report.reaped(e.exits, l.life.group)
	for _, x := range e.exits {
		if x.Pid == l.life.group && x.Status.Stopped() && len(l.standBy) > 0 {
			l.bond, l.standBy = pdeath.Watch(l.standBy, pdeath.Unwatched), nil
		}
	}
	if e.ends(l.life.group) {
		l.takeForeground()
		if l.life.outer {
			e.heir = l.note.Find()
		}
	}
	return e
}

// takeForeground takes back the terminal that the command was handed.
func (l *loop) takeForeground() {
	if l.terminal {
		l.failed(signals.TakeForeground(l.life.group))
	}
}

// take lets step decide about an event and carries out what it says.
func (l *loop) take(e event) {
	if l.exited {
		return
	}
	if e, ok := e.(stop); ok && (e.why != stdinClosed || l.life.phase < lingering) { // which stops nothing later
		l.report.stopped(e.why)
	}
	for _, a := range l.life.step(orphans.Uptime(), e) {
		l.do(a)
	}
}

func (l *loop) do(a action) {
	switch a := a.(type) {
	case forward:
		l.sayf(detail, "sending %s to the command", signals.Name(a.sig))
		switch {
		case l.life.outer && a.sig != syscall.SIGKILL:
			l.failed(signals.Relay(l.life.group, a.sig, l.senders[a.sig]))
		case l.life.singleChild && a.sig != syscall.SIGKILL:
			l.failed(signals.To(l.life.group, a.sig))
		default:
			l.failed(signals.ToGroup(l.life.group, a.sig))
		}
	case suspend:
		l.caught.Stop(a.sig)
		l.take(resumed{})
	case handOver:
		handed, err := signals.HandForeground(l.life.group)
		l.terminal = l.terminal || handed
		l.failed(err)
	case askStdin:
		l.take(unread{pdeath.Unread()})
	case look:
		found, err := l.tree.Look()
		l.found = familyOf(found)
		l.take(looked{found, err})
		l.tree.Release()
	case send:
		l.report.sent(a.process.Pid, a.sig)
		l.failed(l.tree.Signal(a.process, a.sig))
	case kill:
		l.sweep()
	case tell:
		l.tell(a)
	case say:
		l.sayf(a.level, "%s", a.text)
	case wake:
		l.wake.set(a.after)
	case exit:
		l.takeForeground() // a leftover may have had it
		l.exited, l.status = true, a.status
		l.close()
	default:
		panic(fmt.Sprintf("no such action: %T", a))
	}
}

// So long a sweep goes on with children alone, as long as it hits others each time. Those that
// fork and end in a loop get ahead of it whenever it waits for anything.
const sweepFor = 100 * time.Millisecond

// sweep sends SIGKILL to children and reaps them, again and again, and then to all.
func (l *loop) sweep() {
	before := map[int]bool{}
	end := orphans.Uptime() + sweepFor
	for fresh := true; fresh && orphans.Uptime() < end; {
		hit, _, err := l.tree.KillChildren()
		if err != nil {
			break // Kill will say it
		}
		now := map[int]bool{}
		fresh = false
		for _, pid := range hit {
			l.report.sent(pid, syscall.SIGKILL)
			now[pid] = true
			fresh = fresh || !before[pid]
		}
		before = now
		l.take(l.collect())
		if l.exited {
			return
		}
	}
	hit, refused, err := l.tree.Kill()
	for _, pid := range hit {
		l.report.sent(pid, syscall.SIGKILL)
	}
	l.take(swept{hit, refused, err})
	l.tree.Release()
}

// tell says what is being done about a leftover.
func (l *loop) tell(a tell) {
	p := a.process
	silent := a.quietly || l.upTo < notice
	if silent && l.report == nil {
		return
	}
	chain := l.found.ancestors(p)
	if l.report != nil {
		asked := p.Group == l.life.group && p.Start <= l.life.groupAsked
		l.report.leftover(p, l.tree.CommandLine(p), chain, asked)
	}
	if silent {
		return
	}
	if len(l.leaks) == 0 && l.upTo >= detail {
		for _, line := range l.found.draw(l.tree.CommandLine) {
			l.sayf(detail, "%s", line)
		}
	}
	text := describe(p, l.tree.CommandLine(p), l.life.group, chain, lineWidth()-len("fini: stopping leftover "))
	l.sayf(notice, "%s leftover %s", a.what, text)
	if a.what == "stopping" { // one that is killed as well was told of before
		l.leaks = append(l.leaks, text)
	}
}

// close is the last that fini has to say.
func (l *loop) close() {
	if l.life.told > 0 && l.upTo >= notice && os.Getenv("GITHUB_ACTIONS") == "true" {
		l.annotate(l.life.told, l.leaks)
	}
	if l.report == nil || l.life.outer && !l.report.takeOver(l.life.heir) {
		return
	}
	l.failed(l.report.write(l.status))
}

// failed says what could not be done.
func (l *loop) failed(err error) {
	if err != nil {
		l.sayf(failure, "%v", err)
	}
}
