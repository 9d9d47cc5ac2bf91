package host

// The steps before the loop: see main.go.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// settle settles whether this process is what the options ask for, because package entry has only guessed. An inner
// fini that should not exist tells the outer fini, and exits here.
//
//	wanted  this process is alone  inner
//	alone   goes on                asks for it
//	pair    says why it is alone   goes on
//
// PID 1 and a fini that pauses never have an outer fini, so they don't warn.
func (k *kernel) settle(options *cli.Options) {
	inner, initial := entry.ThisRole() == entry.Inner, os.Getpid() == 1
	outer, group, session := entry.Outer()
	if !inner {
		outer, group = os.Getpid(), unix.Getpgrp()
		session, _ = unix.Getsid(0)
	}
	k.rules.Job = job(options, group, initial)
	k.rules.Group = k.rules.Job == 0 && options.ToGroup()
	k.rules.Leader = session == outer
	if !inner {
		k.alone(options, initial)
		return
	}
	k.line.FD = entry.LineFD()
	if !options.Pair() || options.Pause || k.rules.Job == life.OutsideJob {
		k.line.BeAlone()
	}
	if k.rules.Job != 0 {
		k.jobFlags = entry.InJob
		if pdeath.GroupIsOrphaned(group, session, entry.ParentProcess().Pid) {
			k.jobFlags |= entry.Orphaned
		}
	}
}

// alone warns that this process runs without a shield, and why, if the options ask for one.
func (k *kernel) alone(options *cli.Options, initial bool) {
	why, level := entry.Failed(), life.Failure
	switch {
	case initial, options.Pause, !options.Pair():
		return
	case !entry.Linked() && options.Shield != nil:
		why = errors.New(LimitedBuild)
	case !entry.Linked():
		why, level = errors.New(LimitedBuild), life.Detail
	case why != nil:
		why = fmt.Errorf("cannot fork: %w", why)
	case k.rules.Job != life.OutsideJob: // for example a flag's value that looks like a flag
		why = errors.New("a word in front of the command looks like --no-shield or --pause")
	default:
		why, level = errors.New("this process group is outside of the PID namespace, and the inner fini could not leave it"), life.Detail
	}
	k.Sayf(level, "%v: going on without a shield", why)
}

// job is the process group that fini was started in, if the command must stay in this group; else 0. A terminal and its
// shell then treat the command as if fini were not there. The first process of a container has a terminal for itself,
// unless its group is outside of the PID namespace.
func job(options *cli.Options, group int, initial bool) int {
	outside := group == 0 // in this PID namespace the group has no number
	stay := (!initial || outside) && !options.Pause && hasTerminal()
	if options.Foreground != nil {
		stay = *options.Foreground
	}
	switch {
	case stay && outside:
		return life.OutsideJob
	case stay:
		return group
	}
	return 0
}

// keepDefault returns the signals that fini leaves at their default action. In a job these are the signals that suspend
// the job, so that fini is suspended together with the job. An inner fini catches these signals.
func (k *kernel) keepDefault() []syscall.Signal {
	if k.rules.Job == 0 || k.line.FD >= 0 {
		return nil
	}
	return []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
}

// command describes what to start, and how.
func (k *kernel) command(options *cli.Options, environ []string, inherited entry.Attributes) reaper.Command {
	c := reaper.Command{Args: options.Command, Env: environ, Closed: inherited.Closed, Blocked: inherited.Blocked, Terminal: -1}
	if k.rules.Job != 0 {
		c.Group = reaper.SameGroup
	}
	switch {
	case os.Getpid() == 1: // the whole PID namespace dies with fini
	case k.line.FD >= 0:
		c.Deathsig = syscall.SIGTERM // if both fini are killed at once, the kernel at least asks the command to end
	default:
		c.Deathsig = syscall.SIGKILL
	}
	if c.Group == 0 && os.Getpid() == 1 && k.line.FD < 0 {
		c.Terminal = foreground()
		k.terminal = c.Terminal
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
	if k.line.FD >= 0 {
		k.line.Starting()
		if k.leaveGroup() && k.rules.Job != 0 {
			c.Group = k.rules.Job
		}
	}
	if child, err = reaper.Spawn(c); err != nil {
		return child, err
	}
	if k.line.FD >= 0 {
		k.line.Started(child.Pid, k.jobFlags, k.report.To.FD)
	}
	if child.Ungrouped {
		k.rules.Group = false
		if c.Deathsig == 0 {
			k.Sayf(life.Failure, "cannot give the command a process group: signals go to the main child alone")
		} else {
			k.Sayf(life.Failure, "cannot give the command a process group and a parent death signal: signals go to the main child alone, and it outlives a fini that is killed")
		}
	}
	return child, nil
}

// leaveGroup gives an inner fini a process group of its own, so that killing the outer fini's group spares it, and
// reports whether it has one. Every signal to the group until now has reached the outer fini too.
func (k *kernel) leaveGroup() bool {
	err := unix.Setpgid(0, 0)
	if err != nil {
		k.Sayf(life.Failure, "cannot give the inner fini a process group of its own: %v: a SIGKILL for fini's group kills both", err)
	}
	k.caught.Take()
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
	k.Sayf(life.Failure, "%s", text)
	k.report.Err = err.Error()
	k.failed(k.report.Write(status))
	return life.Result{Code: status}
}
