// Package reaper starts the command and collects every child that ends.
//
// Kernel facts it rests on:
//
//   - A child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) inherits every
//     orphan of its tree, through new sessions and double forks, as PID 1 does
//     in its namespace. wait4(-1) answering ECHILD therefore proves that no
//     descendant is alive.
//   - waitid(2) with WNOWAIT tells that a child has ended or stopped and leaves the zombie
//     in place, so that its pid and its process group id stay reserved until
//     the caller of Reap collects it.
//   - PR_SET_PDEATHSIG fires when the thread that forked ends. In a Go program
//     the main thread never ends, so Spawn is called on it.
//
// The package says what happened. It never decides, logs or exits.
package reaper

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit is one child that was reaped, or that was stopped by a signal: Status.Stopped tells
// the two apart. See wait(2).
type Exit struct {
	Pid    int
	Status syscall.WaitStatus
}

// Subreaper makes this process inherit the orphans of its tree. PID 1 inherits
// them already. See prctl(2), PR_SET_CHILD_SUBREAPER.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	return nil
}

// A Reaper waits for children. One goroutine owns it: the one that calls Reap
// also decides whom to signal, so that no pid it still counts as a child can
// have been recycled.
type Reaper struct {
	// Ended receives a value when a child waits to be reaped or has been
	// stopped, and then no other until Resume. It also receives one when there is no child at all.
	Ended <-chan struct{}

	resume chan time.Duration
}

// New starts to watch for children that end. mainFD is the pidfd of the main
// child (-1 for none): its end cuts short the nap asked for in Resume.
//
// SIGCHLD goes back to its default disposition: the watch sleeps in waitid, and
// a caught SIGCHLD would cost two thread switches for each orphan on top.
func New(mainFD int) *Reaper {
	// A zeroed struct sigaction is SIG_DFL with no flags in every layout that Linux has.
	var dfl, caught sigaction
	setSIGCHLD(&dfl, &caught)
	ended := make(chan struct{})
	r := &Reaper{Ended: ended, resume: make(chan time.Duration)}
	go func() {
		r.watch(ended, mainFD)
		// A filter refuses waitid. Signals cost more, but they do.
		signals := notifyChild()
		setSIGCHLD(&caught, nil)
		r.follow(signals, ended)
	}()
	return r
}

// sigaction is at least as long as the kernel's struct.
type sigaction [64]byte

// setSIGCHLD is rt_sigaction(2), whose last argument is the size of the mask in bytes.
func setSIGCHLD(set, old *sigaction) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// Adopt watches without a main child, and goes on when there is no child at all.
func Adopt() *Reaper {
	// waitid has nothing to sleep on then.
	signals := notifyChild()
	ended := make(chan struct{})
	r := &Reaper{Ended: ended, resume: make(chan time.Duration)}
	go r.follow(signals, ended)
	return r
}

func notifyChild() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGCHLD)
	return c
}

// follow says at each SIGCHLD that a child may have ended.
func (r *Reaper) follow(signals <-chan os.Signal, ended chan<- struct{}) {
	for {
		ended <- struct{}{}
		<-r.resume
		<-signals
	}
}

// watch sleeps in waitid until a child has ended, says so, and sleeps again once
// it was told to resume. It returns where it may not call waitid.
func (r *Reaper) watch(ended chan<- struct{}, mainFD int) {
	var mainEnded chan struct{}
	var timer *time.Timer
	for {
		// The answer is fetched by Reap; ECHILD is an answer too.
		err := unix.EINTR
		for err == unix.EINTR {
			err = waitid()
		}
		if err != 0 && err != unix.ECHILD {
			return
		}
		ended <- struct{}{}
		nap := <-r.resume
		if nap == 0 || mainFD < 0 {
			continue
		}
		if mainEnded == nil {
			mainEnded = make(chan struct{})
			go wait(mainFD, mainEnded)
		}
		// Not a sleep in a system call: as long as one may end soon, the runtime looks
		// for that every 20 microseconds.
		if timer == nil {
			timer = time.NewTimer(nap)
		} else {
			timer.Reset(nap)
		}
		select {
		case <-mainEnded:
			mainFD = -1
		case <-timer.C:
		}
	}
}

// waitid sleeps until there is a child that has ended or stopped. See waitid(2).
func waitid() syscall.Errno {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
	errno, _ := err.(syscall.Errno)
	return errno
}

// wait closes ended when the process behind the pidfd has ended.
func wait(pidfd int, ended chan<- struct{}) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for fds[0].Revents == 0 {
		_, _ = unix.Poll(fds, -1)
	}
	close(ended)
}

// Reap collects every child that has ended or stopped and does not wait. none is true when
// no child is left: with a subreaper that means no descendant. See wait(2).
func (r *Reaper) Reap() (exits []Exit, none bool) {
	for {
		// A raw call: it never waits, and telling the scheduler of each one costs more
		// than the call.
		var status syscall.WaitStatus
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&status)),
			syscall.WNOHANG|syscall.WUNTRACED, 0, 0, 0)
		switch {
		case errno != 0:
			return exits, true
		case pid == 0:
			return exits, false
		}
		exits = append(exits, Exit{Pid: int(pid), Status: status})
	}
}

// Resume lets the watch go on after nap, a rest in which more children may end
// and share one wake-up. The end of the main child ends the nap.
func (r *Reaper) Resume(nap time.Duration) { r.resume <- nap }
