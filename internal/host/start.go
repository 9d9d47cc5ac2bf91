package host

// The steps before the loop: see main.go.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// prepare does all that comes before the start, and returns the first error because of which there is none.
func (k *kernel) prepare(options *cli.Options) (err error) {
	if os.Getpid() < 1 { // the error of a filter, and kill(2) takes -1 for every process
		return errors.New("cannot find out the pid of fini: getpid(2) is refused")
	}
	if len(options.Report) > entry.MaxReports {
		return fmt.Errorf("--report: cannot write %d reports: want at most %d", len(options.Report), entry.MaxReports)
	}
	var places []report.Place
	for _, path := range options.Report {
		place, err := report.Open(path, k.self.Closed)
		if err != nil {
			return err
		}
		places = append(places, place)
	}
	if len(places) > 0 {
		k.report = report.New(places, options.Command, VersionNumber())
		k.report.Fini = k.self.Pid
	}
	if err := k.catch(); err != nil {
		return err
	}
	if k.line.FD >= 0 {
		entry.OutliveOuter()
	}
	if err := k.bind(options.Bind, options.Pdeathsig); err != nil {
		return err
	}
	k.caught.Children()
	if !k.rules.Initial {
		if err := reaper.Subreaper(); err != nil {
			k.Sayf(life.Always, "%v: what the command leaves running goes on", err)
		}
	}
	// As PID 1 a pause deals with everything in the container, as in: sshd & exec fini --pause.
	if k.self.Role != entry.Inner && (!k.self.KnowsEarlier || len(k.self.Earlier) > 0) && !(options.Pause && k.rules.Initial) {
		// A shell may start a process and then execute fini in its own place.
		k.failed(k.tree.EarlierAre(k.self.Earlier, k.self.KnowsEarlier))
		k.rules.Before = k.rules.Initial
	}
	if options.StdinEOF || options.Idle > 0 {
		if k.stdin, err = pdeath.LookAtStdin(); err != nil {
			flag := "--idle"
			if options.StdinEOF {
				flag = "--stdin-eof"
			}
			return fmt.Errorf("%s: cannot watch standard input: %w", flag, err)
		}
	}
	if k.stdin != pdeath.Open { // no host writes to /dev/null
		k.rules.Idle = 0
	}
	return reaper.CanReap()
}

// catch starts to receive signals.
func (k *kernel) catch() (err error) {
	k.caught, err = signals.Catch(k.self.Ignored, k.plan.Stops)
	k.rules.Ignored = k.caught.Ignored
	return err
}

// command describes what to start, and how.
func (k *kernel) command(environ []string) reaper.Command {
	if k.plan.GivesTerminal {
		k.terminal = foreground()
	}
	c := reaper.Command{Args: k.args, Env: environ, Deathsig: k.plan.Deathsig, Closed: k.self.Closed, Blocked: k.self.Blocked, Terminal: k.terminal}
	if k.rules.Job != 0 {
		c.Group = reaper.SameGroup
	}
	return c
}

// start starts the command, if there is one, and warns of what the kernel has refused the child. It tells the outer
// fini before and after the start.
func (k *kernel) start(c reaper.Command) (child reaper.Child, err error) {
	reserve()
	if len(c.Args) == 0 {
		return reaper.Child{FD: -1}, nil
	}
	k.memory = proc.CountMemory() // before the start: the command may be killed at once
	job, orphaned := uint32(0), false
	if k.line.FD >= 0 {
		k.line.Starting()
		if k.rules.Job != 0 {
			job = entry.InJob
			orphaned = pdeath.GroupIsOrphaned(k.self.Group, k.self.Session, k.self.Pid)
		}
		if !orphaned && k.leave(false) && k.rules.Job != 0 {
			c.Group = k.rules.Job
		}
	}
	if child, err = reaper.Spawn(c); err != nil {
		return child, err
	}
	if orphaned {
		k.leave(true)
	}
	if k.line.FD >= 0 {
		var descriptors []int
		for _, place := range k.report.To {
			descriptors = append(descriptors, place.FD)
		}
		k.line.Started(child.Pid, job, descriptors...)
	}
	if child.Ungrouped {
		k.rules.Group = false
		if c.Deathsig == 0 {
			k.Sayf(life.Always, "cannot give the command a process group: signals go to the main child alone")
		} else {
			k.Sayf(life.Always, "cannot give the command a process group and a parent death signal: signals go to the main child alone, and it outlives a fini that is killed")
		}
	}
	return child, nil
}

// leave gives an inner fini a process group of its own, so that killing the outer fini's group spares it, and reports
// whether it has one. In a job that no shell could continue, it gets a session too, but only after the start. The kernel
// suspends no process of such a job, and a read from the terminal fails there. But as the parent of the main child, in the
// same session and in another group, the inner fini would count as a shell that can continue the job. See setpgid(2).
func (k *kernel) leave(session bool) bool {
	err := error(nil)
	if session {
		_, err = unix.Setsid()
	} else {
		err = unix.Setpgid(0, 0)
	}
	if err != nil {
		k.Sayf(life.Always, "cannot give the inner fini a process group of its own: %v: a SIGKILL for fini's group kills both", err)
	}
	return err == nil
}

// reserve makes the Go runtime allocate its threads and descriptors now. Otherwise the runtime would allocate them
// while the command runs, and abort if there are none.
var reserve = sync.OnceFunc(func() {
	makeThreads(2 + signals.Threads)
	if startPoller() != nil {
		debug.SetGCPercent(-1) // a collection would set a timer, to give memory back, and a timer needs the poller
	}
})

// makeThreads makes n idle threads. The runtime makes a thread whenever it needs another thread, and aborts if it can't:
// once the command has filled the process table, the runtime must not need any. Go code has one processor. So at most
// three threads have work at a time: the first waits in Wait, the second reads a detail for package orphans, and the
// third runs a goroutine of the runtime, such as the garbage collector's. So the runtime needs two threads besides the
// main thread. An idle fini has five threads: these three, the runtime's monitor, and the thread that starts others
// (LockOSThread makes it).
func makeThreads(n int) {
	runtime.GOMAXPROCS(1) // for a build without the entry, which sets the same
	parked, release := make(chan struct{}), make(chan struct{})
	for range n - 1 { // the runtime makes one more to come back to this thread
		go func() {
			// A locked goroutine keeps its thread while the goroutine is parked. If it is unlocked before it ends,
			// the thread stays behind.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			parked <- struct{}{}
			<-release
		}()
	}
	for range n - 1 {
		<-parked
	}
	close(release)
}

// notStarted writes why the command was not started, and returns how fini must end. The outer fini, if there is one,
// exits with the same status as the inner fini.
func (k *kernel) notStarted(err error) life.Result {
	status, text := life.ExitFailed, err.Error()
	var failed *reaper.SpawnError
	if errors.As(err, &failed) {
		status = failed.Status
	}
	if status == reaper.NotFound {
		if guess := hint(k.args); guess != "" {
			text += "; " + guess
		}
	}
	k.Sayf(life.Always, "%s", text)
	k.report.Err = err.Error()
	k.writeReport(status)
	return life.Result{Code: status}
}
