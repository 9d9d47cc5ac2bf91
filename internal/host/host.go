// Package host carries out what package life decides. It waits for events, passes them to life, makes the system calls
// that life asks for, and writes the messages.
package host

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/cgroup"
	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Run runs the command as a single process or as the inner fini, and returns how fini must end after that.
func Run(options *cli.Options, environ []string, self entry.Origin) life.Result {
	k := newSystem(options, self)
	if k.plan.BeAlone {
		k.socket.BeAlone()
		return life.Result{}
	}
	if k.plan.NoShield != "" {
		k.Sayf(k.plan.Level, "%s: running as with --no-shield, so leftovers survive if fini is killed", k.plan.NoShield)
	}
	if parent := os.Getppid(); self.Role == entry.Inner && parent == 0 {
		return k.notStarted(errors.New("children of fini are in another PID namespace than fini: use unshare --fork"))
	} else if self.Role == entry.Inner && parent != self.Pid {
		return k.notStarted(errors.New("the outer fini was killed before it started the command"))
	}
	for _, text := range options.Misspelt {
		k.Sayf(life.Normal, "%s", text)
	}
	child, err := reaper.Child{}, k.prepare(options)
	if err == nil {
		child, err = k.start(k.command(environ))
	}
	if err != nil {
		return k.notStarted(err)
	}

	// The command is running, so from here on fini must not exit before the loop has ended.
	k.caught.CatchIgnored()
	k.caught.Unblock()
	k.early = k.caught.Take()
	entry.CloseInherited(k.watchesStdin())
	_ = os.Chdir("/")        // so that the old directory's file system can be unmounted
	runtime.UnlockOSThread() // so that other goroutines can use this thread
	return k.begin(options, child).Run()
}

// A system implements life.Kernel on the real kernel, so that a life.Loop can learn what happens and act on it. Only
// one goroutine uses it, because only one goroutine may reap children and send signals. See life.Loop.
type system struct {
	Logger
	self   entry.Origin
	plan   life.Plan
	args   []string // the command line to run
	rules  life.Rules
	socket Socket // the connection to the outer fini; FD is -1 if there is none
	mainFD int    // pidfd of the main child, or -1

	caught     *signals.Catcher
	early      []signals.Received // signals that arrived before the command was started
	stdin      pdeath.Watch       // FD is -1 for none
	stdinEnded bool               // standard input had ended before the start
	bonds      []bond
	tree       *orphans.Tree
	report     report.Report
	memory     cgroup.Memory
	fds        []unix.PollFd // buffer for Wait

	owners   *report.Owners // records which process started each leftover
	terminal int            // the terminal where the command was put in the foreground, or -1

	bySignal     bool          // entry.ParentSignal reports the death of the parent process
	begun, ended time.Duration // uptimes of the command's start and end, or 0
	saidRefused  bool          // a message about a leftover that fini may not signal has been written
	lastExit     time.Duration // uptime of the last exit of a child
	isStopped    bool          // fini has stopped the command
	outOfTime    life.Reason   // the reason, if the command has exceeded a limit of time
	toldOfMemory int           // number of messages about processes killed for lack of memory
}

func newSystem(options *cli.Options, self entry.Origin) *system {
	k := &system{Logger: Logger{options.Level()}, self: self, args: options.Command, mainFD: -1, terminal: -1,
		socket: Socket{self.Socket}, stdin: pdeath.Watch{FD: -1}, tree: orphans.New()}
	k.owners = report.NewOwners(k.tree, entry.Getenv)
	k.plan = life.PlanOf(options.Wanted(), life.Facts{
		Initial: os.Getpid() == 1, Inner: self.Role == entry.Inner, Heir: self.Role == entry.Heir, Limited: !self.Linked,
		NoFork: syscall.Errno(max(-self.Failed, 0)),
		Pid:    self.Pid, PGID: self.PGID, Session: self.Session, Terminal: self.Role != entry.Heir && hasTerminal(),
	})
	k.rules = life.Rules{Policy: options.Policy(), Identity: k.plan.Identity}
	k.tree.Pipes = k.rules.Orphans == life.StopPipes
	k.tree.Entrants = k.rules.Pause && k.rules.Initial
	return k
}

// begin creates the loop for a command that was just started.
func (k *system) begin(options *cli.Options, child reaper.Child) *life.Loop {
	k.begun = calls.Uptime()
	k.mainFD = child.FD
	k.tree.Allow(options.AllowOrphan, child.Pid)
	k.report.Pid = child.Pid
	if k.watchesStdin() && options.StdinEOF {
		k.bonds = append(k.bonds, bond{fd: k.stdin.FD, events: k.stdin.Events, why: life.StdinClosed})
	}
	if len(k.args) == 0 {
		k.Sayf(life.Detail, "pausing")
	} else {
		k.Sayf(life.Detail, "started %d (%s)", child.Pid, k.args[0])
		k.owners.Main(child.Pid, strings.Join(k.args, " "))
	}
	lived := life.New(k, k.rules, child.Pid, child.FD >= 0)
	if k.stdinEnded && options.StdinEOF {
		lived.Stop(life.StdinClosed)
	}
	return lived
}
