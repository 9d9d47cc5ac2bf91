// Command fini runs one command and leaves nothing behind: it forwards signals to
// it, reaps every orphan, ends what the command left running, and ends as the
// command did.
//
// A life, from top to bottom: parse the command line, catch signals, take a role, start the
// command, let go of what fini has inherited, and run a life.Loop. For each event that one asks a machine
// of package life what to do, and does it by the methods in loop.go, until the machine says exit. Where what is
// decided and done: CONTRIBUTING.md.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/cli"
	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/report"
	"github.com/seed-126c5d8a/fini/signals"
)

// The statuses that are fini's own beside those of life; the rest are the command's.
const (
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

// By default the Go runtime first collects garbage at a heap of 4 MB, in each process of a pair: too much
// where fini and its command have 8 MiB (see docs/refused-and-exhausted.md). With this it does so at 1 MB.
const gcPercent = 25

func main() {
	debug.SetGCPercent(gcPercent)
	environ := reaper.Environ()
	options, err := cli.Parse(os.Args[1:], environ)
	if err != nil {
		logger{life.Warning}.sayf(life.Failure, "%v", err)
		os.Exit(life.ExitFailed)
	}
	flags := &commandLine{Options: options}
	if err := flags.readInner(); err != nil {
		logger{life.Warning}.sayf(life.Failure, "%v", err)
		os.Exit(life.ExitFailed)
	}
	switch {
	case flags.Help:
		answer(cli.Usage)
	case flags.Version:
		answer(cli.Version() + "\n")
		if !reaper.HasEntry() {
			logger{flags.Level()}.sayf(life.Warning, "%s", cli.LimitedBuild)
		}
	case flags.License, flags.License2:
		answer(license)
	case flags.Install != nil:
		if err := cli.Install(*flags.Install); err != nil {
			logger{flags.Level()}.sayf(life.Failure, "--install: %v", err)
			os.Exit(life.ExitFailed)
		}
	case len(flags.Command) == 0 && !flags.Pause:
		logger{life.Warning}.sayf(life.Failure, "%v", cli.NoCommand(os.Args[1:]))
		os.Exit(life.ExitFailed)
	default:
		end := run(flags, environ)
		if end.Sig != 0 && os.Getpid() != 1 {
			signals.EndBy(end.Sig)
		}
		os.Exit(end.Status())
	}
}

// A commandLine is what the user, or for an inner fini the outer one, asks for.
type commandLine struct {
	*cli.Options
	Inner *orders // nil if this is no inner fini
}

// sleeps reports whether the outer fini has nothing to do but what it does asleep: see reaper.Fork.
func (c *commandLine) sleeps() bool {
	return c.Inner == nil && c.Shield && c.Isolate == "" && !c.Pause && c.Report == "" && len(c.Bind) == 0
}

// readInner reads --inner, the orders of the outer fini, if there are any.
func (c *commandLine) readInner() error {
	if c.Options.Inner == "" {
		return nil
	}
	c.Inner = &orders{}
	if err := c.Inner.UnmarshalText([]byte(c.Options.Inner)); err != nil || len(c.Inner.bound) != len(c.Bind) {
		return errNotForUsers
	}
	for _, fd := range []int{c.Inner.word, c.Inner.line} { // numbers that somebody has typed are not these
		if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
			return errNotForUsers
		}
	}
	return nil
}

// answer prints what was asked for instead of a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		logger{life.Warning}.sayf(life.Failure, "cannot write: %v", err)
		os.Exit(life.ExitFailed)
	}
}

// run is one life. It returns what fini is to end like.
func run(flags *commandLine, environ []string) life.Result {
	l := &loop{logger: logger{flags.Level()}, mainFD: -1}
	var err error
	fork := reaper.ForkedAtEntry()
	asleep := fork != nil && !fork.IsInner // until now
	first := flags.Inner == nil && !asleep // of a pair, to say what there is to say of the command line
	if fork != nil && fork.IsInner && !flags.sleeps() {
		fork.StandDown()
	}
	if asleep {
		l.threshold = min(l.threshold, life.Warning) // the inner one has said the rest
		fork.ReturnToDir()
	}
	if flags.Report != "" {
		if l.report, err = report.New(flags.Report, flags.Command, cli.VersionNumber()); err != nil {
			l.sayf(life.Failure, "%v", err)
			return life.Result{Code: life.ExitFailed}
		}
	}
	inherited := reaper.Inherited()
	l.tree = orphans.New()
	l.owners = report.NewOwners(l.tree, reaper.Getenv)
	rules := life.Rules{Policy: flags.Policy()}
	rules.Job = job(flags)
	pair := flags.Inner == nil && (flags.Shield || flags.Isolate != "")
	rules.Orphaned = rules.Job != 0 && pair && l.tree.GroupIsOrphaned()
	if fork != nil && fork.IsInner {
		if rules.Orphaned || rules.Job == life.OutsideJob || fork.LeaveGroup() != nil {
			fork.StandDown()
		}
		flags.Inner = &orders{job: rules.Job, word: fork.Word.Write, line: fork.Line.Read, parent: -1}
	}
	if first && !reaper.HasEntry() {
		l.sayf(life.Detail, "%s", cli.LimitedBuild)
	}
	if first {
		for _, text := range flags.Misspelt {
			l.sayf(life.Warning, "%s", text)
		}
	}
	if l.caught, err = signals.Catch(inherited.Ignored, keepDefault(flags, rules)); err != nil {
		return l.notStarted(err)
	}
	rules.Ignored = l.caught.Ignored
	if l.isolated = flags.Inner != nil && flags.Inner.isolated != nil; l.isolated {
		if !settle(flags.Inner) {
			return life.Result{Code: life.ExitFailed} // the outer one says so
		}
		l.report.Isolated()
	}
	l.caught.Children(true)
	if os.Getpid() != 1 {
		// An inner fini says nothing: the outer one has met the same error, and has said so.
		if err := reaper.Subreaper(); err != nil && flags.Inner == nil {
			l.sayf(life.Failure, "%v: what the command leaves running goes on", err)
		}
	}
	if asleep {
		// Its child is the inner one.
	} else if _, none := reaper.Reap(nil); !none {
		// A shell may start a process and then execute fini in its own place.
		l.failed(l.tree.EarlierAre(earlier()))
	}
	command := reaper.Command{Args: flags.Command, Env: environ, Inherited: inherited, Terminal: -1}
	if l.role, err = l.takeRole(flags, command, rules); err != nil {
		return l.notStarted(err)
	}
	var child reaper.Child
	if l.role, child, err = l.role.start(l); err != nil {
		return l.notStarted(err)
	}

	// From here on nothing but the end of the command and its tree ends fini.
	l.caught.Unblock()
	reaper.CloseOnExec(pidfds(l.role.whileInnerIsStopped())...)
	reaper.CloseInherited(l.role.common().stdin == pdeath.Open)
	_ = os.Chdir("/")        // its file system may be unmounted
	runtime.UnlockOSThread() // or each question to the reader would switch threads once more: see package orphans
	return l.begin(flags, child).Run()
}

// loop is the real life.Kernel: by its methods a life.Loop learns what happens, and acts. One goroutine uses
// it, which alone reaps and signals: see loop.go.
type loop struct {
	logger
	role   role
	main   int // the command's first process, or the inner fini
	mainFD int // its pidfd, -1 for none

	caught *signals.Catcher
	bond   *pdeath.Bond
	bound  []watched // what bond watches
	tree   *orphans.Tree
	report *report.Report // nil if none is asked for
	kills  life.Kills
	memory reaper.Memory
	fds    []unix.PollFd // see Wait
	polls  bool          // see livingChild

	found    []orphans.Process // the leftovers that the last look has found
	owners   *report.Owners    // who started them
	told     []string          // those that were told of
	isolated bool              // pids are those of a PID namespace of the tree's own
	allow    []string          // names of those that are left alone

	bySignal     bool          // parentSignal tells of the parent process's death
	parent       int           // that process's pid, 0 if it is outside of the PID namespace
	begun, ended time.Duration // of the command, as uptimes; 0 if not yet
	toldOfMemory int           // how many processes were said to have been killed for it
}

// begin begins the life of the child.
func (l *loop) begin(flags *commandLine, child reaper.Child) *life.Loop {
	r := l.role.common()
	l.begun = signals.Uptime()
	l.main, l.mainFD = child.Pid, child.FD
	l.allow = flags.Patterns()
	l.tree.Allow(l.allow, child.Pid)
	l.tree.Pipes = r.rules.Orphans == life.StopPipes
	l.report.Started(child.Pid)
	l.watch(r.watch, r.stdin)
	leads := l.role.leads()
	switch leads {
	case life.Pause:
		l.sayf(life.Detail, "pausing")
	case life.Outer:
		l.threshold = min(l.threshold, life.Warning) // what there is to say of the command, the inner one says
	default:
		whose := ""
		if l.isolated {
			whose = "; pids are those of its own PID namespace"
		}
		l.sayf(life.Detail, "started %d (%s)%s", child.Pid, flags.Command[0], whose)
		l.owners.Main(child.Pid, strings.Join(flags.Command, " "))
		l.memory = reaper.CountMemory() // while the command is being executed
	}
	lived := life.New(l, leads, r.rules, child.Pid, child.FD >= 0)
	if r.stdin == pdeath.Ended {
		lived.Stop(life.StdinClosed)
	}
	return lived
}

// watch watches processes and standard input from now on.
func (l *loop) watch(processes []watched, stdin pdeath.Stdin) {
	l.bound = processes
	for i, w := range processes {
		if !l.isolated {
			processes[i].name = orphans.Name(w.pid)
		}
	}
	l.bond = pdeath.Watch(pidfds(processes), stdin)
}
