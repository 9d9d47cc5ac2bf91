package main

// What comes before the loop, besides the role: see main.go.

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-126c5d8a/fini/cli"
	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// reserve makes the Go runtime allocate now the threads and descriptors that it would otherwise want
// while the command runs, and abort if there are none.
var reserve = sync.OnceFunc(func() {
	makeThreads(2 + signals.Threads)
	if reaper.StartPoller() != nil {
		debug.SetGCPercent(-1) // a collection would set a timer, to give memory back, which needs the poller
	}
})

// earlier are the children that this process has now. known is false if that can't be told.
func earlier() (pids []int, known bool) {
	text, err := os.ReadFile("/proc/thread-self/children")
	for _, word := range strings.Fields(string(text)) {
		pid, _ := strconv.Atoi(word)
		pids = append(pids, pid)
	}
	return pids, err == nil
}

// makeThreads makes n idle threads beside those that there are. The runtime makes a thread
// whenever it wants one, and aborts if it can't; once the command has filled the process
// table it must not want any. With GOMAXPROCS(1) it wants one beside this thread, for other goroutines such
// as those that collect garbage, and another while that one is only just coming to rest: the 2 in reserve. An idle fini
// has 7 threads: the main one, the runtime's monitor, the thread by which it would start others (LockOSThread makes it),
// the reader of package orphans, the 2 in reserve, and the one that runs the first goroutine in here.
func makeThreads(n int) {
	runtime.GOMAXPROCS(1)
	made, parked, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { // the first thread, which waits, would be switched to and from for each of them
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
		close(made)
	}()
	<-made
	close(release)
}

// notStarted says why there is no command, and returns what fini is to end like.
func (l *loop) notStarted(err error) life.Result {
	status := failureStatus(err)
	text := err.Error()
	if status == exitNotFound && l.role != nil && l.role.common().command.Path == "" {
		if hint := cli.Hint(l.role.common().command.Args); hint != "" {
			text += "; " + hint
		}
	}
	l.sayf(life.Failure, "%s", text)
	l.report.NotStarted(err)
	l.failed(l.report.Write(status))
	result := life.Result{Code: status}
	if l.role != nil {
		l.role.notStarted(result)
	}
	return result
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
	return life.ExitFailed
}
