package host

// This file contains the steps before the loop. See main.go.

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/cgroup"
	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/handler"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// prepare does everything that must be done before the command starts. If it returns an error, the command must not
// start.
func (k *system) prepare(options *cli.Options) (err error) {
	// kill(-1) would signal every process, and -1 is the error of getpid(2)
	if call, errno := calls.Refused(); errno != 0 {
		return fmt.Errorf("cannot do without %s: %w", call, errno)
	}
	if len(options.Report) > entry.MaxReports {
		return fmt.Errorf("--report: cannot write %d reports: want at most %d", len(options.Report), entry.MaxReports)
	}
	var places []report.Place
	for _, path := range options.Report {
		place, failed := report.Open(path, k.self.Closed)
		if failed == nil {
			places = append(places, place)
		}
		err = cmp.Or(err, failed)
	}
	if len(places) > 0 {
		k.report = report.New(places, options.Command, VersionNumber())
		k.report.Fini = k.self.Pid
	}
	if err != nil { // the reports that could be opened will contain it
		return err
	}
	if err := k.catch(); err != nil {
		return err
	}
	if k.socket.FD >= 0 {
		entry.OutliveOuter()
	}
	if err := k.bind(options.Bind, options.Pdeathsig); err != nil {
		return err
	}
	k.caught.Children()
	if !k.rules.Initial {
		if err := reaper.Subreaper(); err != nil {
			k.Sayf(life.Always, "%v: leftovers will keep running", err)
		}
	}
	// With --pause as PID 1, inherited children are part of the container and are treated like all others.
	if k.self.Role != entry.Inner && (!k.self.KnowsInherited || len(k.self.Inherited) > 0) &&
		!(options.Pause && k.rules.Initial) {
		// A shell may have started these children before it executed fini in its own place.
		k.tree.SetInherited(k.self.Inherited, k.self.KnowsInherited)
		k.rules.HasInherited = k.rules.Initial
	}
	if options.StdinEOF || options.Idle > 0 {
		k.stdin, err = pdeath.Stdin()
		if k.stdinEnded = err == pdeath.ErrGone; err != nil && !k.stdinEnded {
			flag := "--idle"
			if options.StdinEOF {
				flag = "--stdin-eof"
			}
			return fmt.Errorf("%s: cannot watch standard input: %w", flag, err)
		}
	}
	if !k.watchesStdin() { // nobody writes to /dev/null
		k.rules.Idle = 0
	}
	return nil
}

// catch installs the signal handlers.
func (k *system) catch() (err error) {
	k.caught, err = signals.Catch(k.self.Ignored, k.plan.Stops)
	k.rules.Ignored = k.caught.Ignored
	return err
}

// command returns what reaper.Spawn needs to start the command.
func (k *system) command(environ []string) reaper.Command {
	if k.plan.GivesTerminal {
		k.terminal = foreground()
	}
	c := reaper.Command{Args: k.args, Env: environ, Deathsig: k.plan.Deathsig, Closed: k.self.Closed,
		Blocked: k.self.Blocked, Terminal: k.terminal}
	if k.rules.Job != life.NoJob {
		c.PGID = reaper.SameGroup
	}
	return c
}

// start starts the command, if there is one, and warns about anything that the kernel has refused. It tells the outer
// fini when the command is about to start and when it has started.
func (k *system) start(c reaper.Command) (child reaper.Child, err error) {
	reserve()
	if len(c.Args) == 0 {
		return reaper.Child{FD: -1}, nil
	}
	k.memory = cgroup.CountMemory() // before the start, because the command may be killed immediately
	inJob, orphaned := k.rules.Job != life.NoJob, false
	if k.socket.FD >= 0 {
		k.socket.Starting()
		orphaned = inJob && groupIsOrphaned(k.self.PGID, k.self.Session, k.self.Pid)
		if !orphaned && k.leave(false) && inJob {
			c.PGID = int(k.rules.Job)
		}
	}
	if child, err = reaper.Spawn(c); err != nil {
		return child, err
	}
	if orphaned {
		k.leave(true)
	}
	if k.socket.FD >= 0 {
		var descriptors []int
		for _, place := range k.report.To {
			descriptors = append(descriptors, place.FD)
		}
		k.socket.Started(child.Pid, inJob, descriptors...)
	}
	if child.Ungrouped {
		k.rules.ToGroup = false
		if c.Deathsig == 0 {
			k.Sayf(life.Always, "cannot give the command a process group: signals are sent only to the main child")
		} else {
			k.Sayf(life.Always, "cannot give the command a process group and a parent death signal: signals are sent only to "+
				"the main child, which survives if fini is killed")
		}
	}
	return child, nil
}

// leave moves the inner fini to a process group of its own, so that killing the outer fini's group spares it, and
// reports whether that worked. In an orphaned process group, the kernel suspends no process, and reads from the
// terminal fail. A parent in another group of the session would change that, because it might be a shell. See
// setpgid(2). So for a command in such a group, start calls leave only after the start, and with session true.
func (k *system) leave(session bool) bool {
	err := error(nil)
	if session {
		_, err = unix.Setsid()
	} else {
		err = unix.Setpgid(0, 0)
	}
	if err != nil {
		k.Sayf(life.Always, "cannot give the inner fini a process group of its own: %v: SIGKILL for fini's group would "+
			"kill both processes of fini", err)
	}
	return err == nil
}

// reserve makes the Go runtime allocate its threads and descriptors in advance. If it had to allocate them later, while
// the command uses up what is available, it would abort.
func reserve() {
	makeThreads(2 + handler.Threads)
	if startPoller() != nil {
		debug.SetGCPercent(-1) // because after a collection the runtime sets a timer, which needs the poller
	}
}

// makeThreads makes the runtime create n threads, which then remain idle. The runtime aborts if it can't create a
// thread when it needs one, so it must not need any once the command has filled the process table. Because Go code has
// a single processor, at most three threads are busy at a time. One is in Wait, one reads /proc for package orphans,
// and one runs a goroutine of the runtime, such as the garbage collector. Besides these three, an idle fini has two
// more threads, which are the runtime's monitor and one that LockOSThread creates to start others.
func makeThreads(n int) {
	runtime.GOMAXPROCS(1) // in case the entry has not set GOMAXPROCS
	parked, release := make(chan struct{}), make(chan struct{})
	for range n - 1 { // the runtime creates one more to return to this thread
		go func() {
			// A locked goroutine keeps its thread while it is blocked. Unlock it before it ends, because otherwise the
			// thread would exit with it.
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

// notStarted writes a message about why the command was not started, and returns how fini must end. In a pair, the
// outer fini exits with the same status.
func (k *system) notStarted(err error) life.Result {
	status, text := life.ExitFailed, err.Error()
	var failed *reaper.SpawnError
	if errors.As(err, &failed) {
		status = failed.Status
	}
	if status == reaper.NotFound {
		if guess := cli.Hint(k.args); guess != "" {
			text += "; " + guess
		}
	}
	k.Sayf(life.Always, "%s", text)
	k.report.Err = err.Error()
	k.writeReport(status)
	return life.Result{Code: status}
}
