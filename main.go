// Command fini runs one command and leaves nothing behind: it forwards signals to
// it, reaps every orphan, ends what the command left running, and ends as the
// command did.
//
// A life, from top to bottom: parse the command line, catch signals, take a role, start the
// command, let go of what it inherited, and then one loop, in which a machine decides about
// events (events.go) and do carries out what it says (actions.go), until the machine says exit.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
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
//go:embed packaging/NOTICES
var license string

// The command is started on the main thread, which never ends: the kernel takes the
// end of the thread that forked for the parent's death.
func init() { runtime.LockOSThread() }

// The runtime first collects garbage at 4 MB, which is half of what a container of fini's may
// have, and twice that for a pair. With this it does at a quarter of that.
const gcPercent = 25

func main() {
	debug.SetGCPercent(gcPercent)
	environ := reaper.Environ()
	flags, err := parse(os.Args[1:], environ)
	if err != nil {
		logger{warning}.sayf(failure, "%v", err)
		os.Exit(exitFailed)
	}
	switch {
	case flags.Help:
		answer(usage)
	case flags.Version:
		answer(version() + "\n")
		if !reaper.HasEntry() {
			flags.logger().sayf(warning, "%s", limitedBuild)
		}
	case flags.License, flags.License2:
		answer(license)
	case flags.Install != nil:
		if err := install(*flags.Install); err != nil {
			flags.logger().sayf(failure, "--install: %v", err)
			os.Exit(exitFailed)
		}
	case len(flags.Command) == 0 && !flags.Pause:
		logger{warning}.sayf(failure, "%v", noCommand(os.Args[1:]))
		os.Exit(exitFailed)
	case flags.Become != 0:
		os.Exit(become(flags, environ))
	default:
		end := run(flags, environ)
		if end.sig != 0 && os.Getpid() != 1 {
			signals.EndBy(end.sig)
		}
		os.Exit(end.status())
	}
}

// answer prints what was asked for instead of a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		logger{warning}.sayf(failure, "cannot write: %v", err)
		os.Exit(exitFailed)
	}
}

// run is one life. It returns what fini is to end like.
func run(flags *commandLine, environ []string) result {
	l := &loop{logger: flags.logger(), mainProcess: mainProcess{mainFD: -1}}
	var err error
	if flags.Inner == nil {
		if !reaper.HasEntry() {
			l.sayf(detail, "%s", limitedBuild)
		}
		for _, text := range flags.misspelt {
			l.sayf(warning, "%s", text)
		}
	}
	if flags.Report != "" {
		if l.report, err = newReport(flags.Report, flags.Command); err != nil {
			l.sayf(failure, "%v", err)
			return result{code: exitFailed}
		}
	}
	inherited := reaper.Inherited()
	l.tree = orphans.New()
	rules := flags.rules()
	rules.job = job(flags)
	pair := flags.Inner == nil && (flags.Shield || flags.Isolate != "")
	rules.orphaned = rules.job != 0 && pair && l.tree.GroupIsOrphaned()
	if l.caught, err = signals.Catch(inherited.Ignored, keepDefault(flags, rules)); err != nil {
		return l.notStarted(err)
	}
	if flags.Inner != nil && flags.Inner.isolated != nil && !l.settle(flags.Inner) {
		return result{code: exitFailed} // the outer one says so
	}
	l.caught.Children(true)
	if os.Getpid() != 1 {
		// Of a pair, the outer one has said so.
		if err := reaper.Subreaper(); err != nil && flags.Inner == nil {
			l.sayf(failure, "%v: what the command leaves running goes on", err)
		}
	}
	if _, none := reaper.Reap(nil); !none {
		// A shell may start a process and then execute fini in its own place.
		l.failed(l.tree.NoteEarlier())
	}
	command := reaper.Command{Args: flags.Command, Env: environ, Inherited: inherited, Terminal: -1}
	if l.role, err = l.takeRole(flags, command, rules); err != nil {
		return l.notStarted(err)
	}
	var child reaper.Child
	if l.role, child, err = l.start(l.role); err != nil {
		return l.notStarted(err)
	}

	// From here on nothing but the end of the command and its tree ends fini.
	l.caught.Unblock()
	reaper.CloseOnExec(pidfds(l.role.whileStopped)...)
	reaper.CloseInherited(l.role.stdin == pdeath.Open)
	_ = os.Chdir("/") // its file system may be unmounted
	l.begin(flags, child)
	return l.loop()
}

// loop ties the machines to the processes. It runs in one goroutine, which alone reaps
// and signals: whatever is signalled, do does it, or what it calls in actions.go.
type loop struct {
	logger
	role    *role
	machine machine // nil when the life is over
	was     machine // the one before the last event
	queue   []event // for the machine
	copies  copies
	result  result

	caught *signals.Catcher
	bond   *pdeath.Bond
	bound  []watched // what bond watches
	tree   *orphans.Tree
	report *report // nil if none is asked for
	kills  kills
	fds    []unix.PollFd // see wait

	mainProcess
	alarms
	leftovers

	mustReap bool // children may have changed
	bySignal bool // parentSignal tells of the parent process's death
	parent   int  // its pid then
	tookOver bool // an outer fini does the work of the inner one, which was killed
}

// begin begins the life of the child.
func (l *loop) begin(flags *commandLine, child reaper.Child) {
	r := l.role
	l.main, l.seen = child.Pid, l.outside.Pid(child.Pid)
	r.rules.seen = l.seen
	l.machine = r.machine(child.Pid)
	l.allow = flags.patterns()
	l.tree.Allow(l.allow, child.Pid)
	if l.report != nil {
		l.report.Pid = l.seen
	}
	l.watch(r.watch, r.stdin)
	if r.timeout > 0 && !r.outer {
		l.timeout = signals.Uptime() + r.timeout
	}
	switch {
	case flags.Pause:
		l.sayf(detail, "pausing")
	case r.outer:
		l.threshold = min(l.threshold, warning) // what there is to say of the command, the inner one says
		l.mainFD = child.FD
	default:
		l.mainFD = child.FD
		l.sayf(detail, "started %d (%s)", l.seen, flags.Command[0])
		l.kills.memory = reaper.CountMemory() // while the command is being executed
	}
	if r.stdin == pdeath.Ended {
		l.queue = append(l.queue, stop{stdinClosed})
	}
}

// watch watches processes and standard input from now on.
func (l *loop) watch(processes []watched, stdin pdeath.Stdin) {
	l.bound = processes
	for i, w := range processes {
		processes[i].name = l.outside.Name(w.pid)
	}
	l.bond = pdeath.Watch(pidfds(processes), stdin)
}

// loop takes in events until the life is over, and returns what fini is to end like.
func (l *loop) loop() result {
	// One that ended before SIGCHLD was caught is found by this.
	for l.mustReap = true; l.machine != nil; {
		switch {
		case len(l.queue) > 0:
			e := l.queue[0]
			l.queue = l.queue[1:]
			var do []action
			l.was = l.machine
			do, l.machine = l.machine.step(signals.Uptime(), e)
			for _, a := range do {
				l.do(a)
			}
		case l.mustReap:
			l.tree.Release()
			l.reap()
		default:
			l.tree.Release()
			l.wait()
		}
	}
	return l.result
}
