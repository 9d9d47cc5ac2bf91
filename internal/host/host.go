// Package host is the real kernel of a life: it waits for what a life waits for, carries out its actions, and writes
// its messages.
package host

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Run is one life, alone or as the inner fini of a pair. It returns how fini must end.
func Run(options *cli.Options, environ []string, self entry.Facts) life.Result {
	k := newKernel(options, self)
	if k.plan.BeAlone {
		k.line.BeAlone()
		return life.Result{}
	}
	if k.plan.NoShield != "" {
		k.Sayf(k.plan.Level, "%s: going on without a shield", k.plan.NoShield)
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

	// From here on fini ends as the loop decides: it first deals with the command and its tree.
	k.caught.CatchIgnored()
	k.caught.Unblock()
	k.early = k.caught.Take()
	reaper.CloseInherited(k.stdin == pdeath.Open)
	_ = os.Chdir("/")        // so that the file system of the old working directory may be unmounted
	runtime.UnlockOSThread() // so that the reader of package orphans can use this thread
	return k.begin(options, child).Run()
}

// A kernel is life.Kernel on the real kernel: through its methods a life.Loop learns what happens, and acts. Only one
// goroutine uses the kernel, reaps and signals: see life.Loop.
type kernel struct {
	Logger
	self   entry.Facts
	plan   life.Plan
	args   []string // the command
	rules  life.Rules
	line   Line // to the outer fini; FD is -1 if there is none
	mainFD int  // its pidfd, -1 for none

	caught *signals.Catcher
	early  []signals.Received // that came before the command was there
	stdin  pdeath.Stdin
	bonds  []bond
	tree   *orphans.Tree
	report report.Report
	memory proc.Memory
	fds    []unix.PollFd // see Wait

	owners   *report.Owners // which process started each leftover
	terminal int            // the terminal whose foreground the command got, -1 for none

	bySignal     bool             // parentSignal reports the parent process's death
	kept         signals.Received // the parent death signal whose place parentSignal takes: see TakeSlot in package pdeath
	begun, ended time.Duration    // of the command, as uptimes; 0 if not yet
	cannotReap   bool             // fini has warned of that
	saidRefused  bool             // that it may not signal a leftover
	rest         time.Duration    // see Rest in package signals; 0 for none
	lastExit     time.Duration    // of a child, as uptime
	isStopped    bool             // fini has stopped the command
	outOfTime    life.Reason      // the same, for this reason, and has said what was running
	toldOfMemory int              // how many processes fini has reported as killed because memory ran out
}

func newKernel(options *cli.Options, self entry.Facts) *kernel {
	k := &kernel{Logger: Logger{options.Level()}, self: self, args: options.Command, mainFD: -1, terminal: -1, line: Line{self.Line}, tree: orphans.New()}
	k.owners = report.NewOwners(k.tree, entry.Getenv)
	k.plan = life.PlanOf(options.Wanted(), life.Facts{
		Initial: os.Getpid() == 1, Inner: self.Role == entry.Inner, Heir: self.Role == entry.Heir, Limited: !self.Linked, NoFork: syscall.Errno(max(-self.Failed, 0)),
		Pid: self.Pid, Group: self.Group, Session: self.Session, Terminal: self.Role != entry.Heir && hasTerminal(),
	})
	k.rules = life.Rules{Policy: options.Policy(), Identity: k.plan.Identity}
	k.tree.Pipes = k.rules.Orphans == life.StopPipes
	k.tree.Entrants = k.rules.Pause && k.rules.Initial
	return k
}

// begin begins the life of the child.
func (k *kernel) begin(options *cli.Options, child reaper.Child) *life.Loop {
	k.begun = proc.Uptime()
	k.mainFD = child.FD
	k.tree.Allow(options.AllowOrphan, child.Pid)
	k.report.Pid = child.Pid
	if k.stdin == pdeath.Open && options.StdinEOF {
		k.bonds = append(k.bonds, bond{fd: 0, events: unix.POLLRDHUP, why: life.StdinClosed})
	}
	if len(k.args) == 0 {
		k.Sayf(life.Detail, "pausing")
	} else {
		k.Sayf(life.Detail, "started %d (%s)", child.Pid, k.args[0])
		k.owners.Main(child.Pid, strings.Join(k.args, " "))
	}
	lived := life.New(k, k.rules, child.Pid, child.FD >= 0)
	if k.stdin == pdeath.Ended && options.StdinEOF {
		lived.Stop(life.StdinClosed)
	}
	return lived
}
