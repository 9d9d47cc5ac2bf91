// Command fini runs one command and leaves nothing behind: it forwards signals to the command, reaps every orphan, stops
// what the command left running, and ends as the command did.
//
// Except as PID 1, fini by default forks into a pair before its Go runtime starts. The inner fini runs the command. The
// outer fini sleeps in package entry. If the inner fini was killed, the outer fini starts its Go runtime as the heir,
// which stops what the command left running. If the inner fini asks for a single process, the outer fini starts its Go
// runtime as that process.
//
// A life: Parse the command line. Settle whether this process is alone, the inner fini or the heir. Catch signals; bind
// the command to fini's parent process; start the command; let go of what fini has inherited; run a life.Loop. For each
// event the loop asks a machine of package life what to do, and does it by the methods in loop.go, until the machine
// says exit. CONTRIBUTING.md says where each thing is decided.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/pair"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// license has the licenses of fini and of its parts, because an image may hold nothing but the binary.
//
//go:embed internal/NOTICES
var license string

// fini starts the command on the main thread, because the main thread never exits. The kernel sends a parent death
// signal as soon as the thread that forked exits.
func init() { runtime.LockOSThread() }

// By default the Go runtime first collects garbage at a heap of 4 MB: too much if fini and its command have 8 MiB (see
// docs/refused-and-exhausted.md). With gcPercent the runtime first collects at 1 MB.
const gcPercent = 25

func main() {
	debug.SetGCPercent(gcPercent)
	environ := entry.Environ()
	options, err := cli.Parse(os.Args[1:], environ)
	if err != nil {
		fail("%v", err)
	}
	switch {
	case options.Help:
		answer(cli.Usage)
	case options.Version:
		answer(cli.Version() + "\n")
		if !entry.Linked() {
			logger{options.Level()}.sayf(life.Warning, "%s", cli.LimitedBuild)
		}
	case options.License:
		answer(license)
	case options.Install != "":
		if err := cli.Install(options.Install); err != nil {
			fail("--install: %v", err)
		}
	case len(options.Command) == 0 && !options.Pause:
		fail("%v", cli.NoCommand(os.Args[1:]))
	case entry.ThisRole() == entry.Heir:
		end(inherit(options))
	default:
		end(run(options, environ))
	}
}

// fail says why fini does nothing, and exits.
func fail(format string, args ...any) {
	logger{life.Warning}.sayf(life.Failure, format, args...)
	os.Exit(life.ExitFailed)
}

// answer prints the text that the user asked for instead of a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		fail("cannot write: %v", err)
	}
}

// end makes this process exit or die as the command did. For an inner fini, the outer fini does so.
func end(as life.Result) {
	if as.Sig != 0 && os.Getpid() != 1 && entry.ThisRole() != entry.Inner {
		signals.EndBy(as.Sig)
	}
	os.Exit(as.Status())
}

// run is one life, alone or as the inner fini of a pair. It returns how fini must end.
func run(options *cli.Options, environ []string) life.Result {
	l := newLoop(options)
	if err := l.settle(options); err != nil {
		return l.notStarted(err)
	}
	for _, text := range options.Misspelt {
		l.sayf(life.Warning, "%s", text)
	}
	inherited := entry.Inherited()
	if options.Report != "" {
		place, err := report.Open(options.Report, inherited.Closed)
		if err != nil {
			return l.notStarted(err)
		}
		l.report = report.New(place, options.Command, cli.VersionNumber(), l.isolated)
	}
	var err error
	if l.caught, err = signals.Catch(inherited.Ignored, l.keepDefault()); err != nil {
		return l.notStarted(err)
	}
	l.rules.Ignored = l.caught.Ignored
	entry.Settled()
	if err := l.bind(options); err != nil {
		return l.notStarted(err)
	}
	l.caught.Children(true)
	if os.Getpid() != 1 {
		if err := reaper.Subreaper(); err != nil {
			l.sayf(life.Failure, "%v: what the command leaves running goes on", err)
		}
	}
	if pids, known := entry.Earlier(); entry.ThisRole() != entry.Inner && (!known || len(pids) > 0) {
		// A shell may start a process and then execute fini in its own place.
		l.failed(l.tree.EarlierAre(pids, known))
	}
	if options.StdinEOF {
		if l.stdin, err = pdeath.LookAtStdin(); err != nil {
			return l.notStarted(fmt.Errorf("--stdin-eof: cannot watch standard input: %w", err))
		}
	}
	child, err := l.start(l.command(options, environ, inherited))
	if err != nil {
		return l.notStarted(err)
	}

	// From here on fini ends as the loop decides: it first deals with the command and its tree.
	l.caught.CatchIgnored()
	l.caught.Unblock()
	l.early = l.caught.Take()
	reaper.CloseInherited(l.stdin == pdeath.Open)
	_ = os.Chdir("/")        // so that the file system of the old working directory may be unmounted
	runtime.UnlockOSThread() // so that the reader of package orphans can use this thread
	return l.begin(options, child).Run()
}

// inherit is the rest of a life whose inner fini was killed.
func inherit(options *cli.Options) life.Result {
	will, reportFD := entry.Inherit()
	result := life.ResultOf(syscall.WaitStatus(will.Status))
	l := newLoop(options)
	l.isolated = will.Isolated
	l.begun, l.main = signals.Uptime(), int(will.Main)
	l.kills.Over = true
	l.failed(l.tree.EarlierAre(entry.Earlier()))
	switch {
	case options.Report == "" || will.Main == 0:
	case reportFD < 0:
		l.sayf(life.Failure, "--report: nothing is written: the inner fini was killed, and its descriptor of %q is lost", options.Report)
	default:
		l.report = report.New(report.Place{FD: reportFD, Path: options.Report}, options.Command, cli.VersionNumber(), l.isolated)
		l.report.Pid = l.main
	}
	var err error
	if l.caught, err = signals.Catch(entry.Inherited().Ignored, l.keepDefault()); err != nil {
		l.failed(err)
		_, _, err = l.tree.Kill()
		l.failed(err)
		return result
	}
	l.rules.Ignored = l.caught.Ignored
	l.caught.Children(true)
	l.caught.Unblock()
	l.tree.Allow(options.AllowOrphan, l.main)
	reserve()
	runtime.UnlockOSThread() // as in run
	switch {
	case will.EndBy != 0:
		result = life.Result{Sig: syscall.Signal(will.EndBy)}
	case will.GaveUp:
		l.sayf(life.Failure, "gave up on the PID namespace: a process in it does not end")
		if !will.Done {
			result = life.Result{Sig: syscall.SIGKILL}
		}
		return result
	case result.Sig == 0:
		result.Code = life.ExitFailed // the runtime of the inner fini aborted
	}
	return life.NewHeir(l, l.rules, l.main, l.isolated, result).Run()
}

// loop is the real life.Kernel: through its methods a life.Loop learns what happens, and acts. Only one goroutine uses
// the loop, reaps and signals: see life.Loop.
type loop struct {
	logger
	args   []string // the command
	rules  life.Rules
	line   pair.Line // to the outer fini; FD is -1 if there is none
	main   int       // the pid of the command
	mainFD int       // its pidfd, -1 for none

	caught *signals.Catcher
	early  []signals.Received // that came before the command was there
	stdin  pdeath.Stdin
	bonds  []bond
	tree   *orphans.Tree
	report report.Report
	kills  life.Kills
	memory reaper.Memory
	fds    []unix.PollFd // see Wait

	owners   *report.Owners // which process started each leftover
	terminal int            // the terminal whose foreground the command got, -1 for none

	isolated bool // the inner fini is the init of a PID namespace; messages and report use the pids of that namespace

	jobFlags     uint32        // see entry.Started
	bySignal     bool          // parentSignal reports the parent process's death
	polls        bool          // see livingChild
	refusedOther bool          // fini has named a signal that it dropped: see notForInner
	begun, ended time.Duration // of the command, as uptimes; 0 if not yet
	toldOfMemory int           // how many processes fini has reported as killed for want of memory
}

func newLoop(options *cli.Options) *loop {
	l := &loop{logger: logger{options.Level()}, args: options.Command, mainFD: -1, terminal: -1, line: pair.Line{FD: -1}, report: report.Report{To: report.Place{FD: -1}}, tree: orphans.New()}
	l.owners = report.NewOwners(l.tree, entry.Getenv)
	l.rules.Policy = options.Policy
	l.tree.Pipes = l.rules.Orphans == life.StopPipes
	return l
}

// begin begins the life of the child.
func (l *loop) begin(options *cli.Options, child reaper.Child) *life.Loop {
	l.begun = signals.Uptime()
	l.main, l.mainFD = child.Pid, child.FD
	l.tree.Allow(options.AllowOrphan, child.Pid)
	l.report.Pid = child.Pid
	if l.stdin == pdeath.Open {
		l.bonds = append(l.bonds, bond{fd: 0, events: unix.POLLRDHUP, why: life.StdinClosed})
	}
	if options.Pause {
		l.sayf(life.Detail, "pausing")
	} else {
		whose := ""
		if l.isolated {
			whose = "; pids are those of its own PID namespace"
		}
		l.sayf(life.Detail, "started %d (%s)%s", child.Pid, options.Command[0], whose)
		l.owners.Main(child.Pid, strings.Join(options.Command, " "))
		l.memory = reaper.CountMemory() // after the start, which it would delay
	}
	lived := life.New(l, l.rules, child.Pid, child.FD >= 0)
	if l.stdin == pdeath.Ended {
		lived.Stop(life.StdinClosed)
	}
	return lived
}
