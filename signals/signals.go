// Package signals catches every signal, with its sender, sends signals, and knows their names. It is for a program that is an
// init: one that starts a command, passes signals on to it, and ends as the command has ended.
//
// # Beside what it can't be used
//
// From Catch on the package has all signals of the process, for good:
//
//   - os/signal receives nothing.
//   - The CPU profiler of runtime/pprof gets no samples, because SIGPROF is caught too.
//   - Programs with cgo: the C code's handlers are replaced.
//
// The Go runtime keeps working. The signals with which it preempts goroutines reach it, and a fault in Go code remains a
// panic. On architectures other than amd64 and arm64, and under the race detector, os/signal catches the signals. Then SIGURG,
// SIGPROF and 32 to 34 aren't caught, and senders are unknown.
//
// Name, Parse, To, ToGroup and EndBy can be used in any program. To and ToGroup send to whoever has the pid now: the caller
// makes sure that the process has not been reaped.
//
// # Kernel facts that it relies on
//
//   - Two equal signals that are pending at the same time count as one, unless they are real-time signals. See signal(7).
//   - A signal that is ignored when a program starts is ignored in its command, too, as under nohup(1). See execve(2).
//   - kill(2) on a process group is atomic against fork(2): no member escapes it.
package signals

import (
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/handler"
)

// Received is a signal that was caught.
type Received struct {
	Signal syscall.Signal
	// Sender is the pid of the sender; 0 if the sender is not known, is outside of this PID namespace, or is the
	// kernel.
	Sender int

	Parent int // of the sender, 0 if unknown

	Kernel bool // the kernel sent it, such as the SIGINT of Ctrl-C; see si_code in sigaction(2)

	// Outside is true if the kernel itself or a process outside of this PID namespace sent the signal or an equal one that
	// it was merged with. No process in the namespace can pretend that, unless it has filled the queue of pending signals
	// (see RLIMIT_SIGPENDING in getrlimit(2)): then the kernel loses the sender. If the sender can't be known, Outside is true.
	Outside bool
}

// Own reports whether this process, which has the pid self, has caused the signal itself: SIGPIPE and SIGXFSZ come from its
// own writes, SIGXCPU from the CPU time that it has used. Take leaves out such signals.
func (r Received) Own(self int) bool {
	return r.Sender == self && !r.Kernel && self != 0 || r.Kernel && (r.Signal == unix.SIGXCPU || r.Signal == unix.SIGXFSZ || r.Signal == unix.SIGPIPE)
}

// Catcher receives the signals sent to this process. Two equal signals that come before Take returns the first count as
// one, as the kernel merges them, unless they are real-time signals.
type Catcher struct {
	FD int // becomes readable when there is something to take

	// Ignored are the signals that were ignored when this process started: see CatchIgnored.
	Ignored []syscall.Signal

	keep []syscall.Signal
	self int // pid

	timer  timer
	polled []unix.PollFd
}

// Catch starts to receive every signal except SIGCHLD: see Children. The signals in keep stay as they were. A process has
// one Catcher. An error means that there is no descriptor to wait for, so Wait looks for signals from time to time.
//
// ignored has the signals that were ignored when this process started: bit n-1 is signal n. They stay ignored until
// CatchIgnored, except SIGCHLD, because otherwise the kernel would reap the children. Pass 0 if they are unknown: the Go
// runtime installs its handlers before main. Even so Catch finds out about SIGHUP, SIGINT and the signals of job control.
func Catch(ignored uint64, keep []syscall.Signal) (*Catcher, error) {
	read, write, err := eventFD()
	if err != nil {
		read, write, err = -1, -1, fmt.Errorf("cannot catch signals: %w", err)
	}
	c := &Catcher{FD: read, keep: keep, self: unix.Getpid()}
	handler.Prepare(write)
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		known := ignored>>(sig-1)&1 != 0 && sig != unix.SIGCHLD
		if known && !Ignored(sig) { // the runtime has replaced SIG_IGN
			signal.Ignore(sig) // and not by setAction: a fork resets each signal that the runtime believes it handles
		}
		if (known || slices.Contains(leftIgnored, sig)) && Ignored(sig) {
			c.Ignored = append(c.Ignored, sig)
		} else {
			c.catch(sig)
		}
	}
	return c, err
}

// catch catches a signal if it may.
func (c *Catcher) catch(sig syscall.Signal) {
	if Catchable(sig) && !slices.Contains(c.keep, sig) {
		handler.Catch(sig)
	}
}

// CatchIgnored starts to receive the ignored signals, too. Call it when the command was started, which ignores them at
// first, but need not any more.
func (c *Catcher) CatchIgnored() {
	for _, sig := range c.Ignored {
		c.catch(sig)
	}
}

// Children makes this process catch SIGCHLD from now on. The caller must look for children that exited before.
func (c *Catcher) Children() { handler.Catch(unix.SIGCHLD) }

// eventFD returns a descriptor to wait for, and a descriptor that makes it readable. See eventfd(2).
func eventFD() (read, write int, err error) {
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		return fd, fd, nil
	}
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	return fds[0], fds[1], err
}

// Take returns the signals that were caught since the last Take, in the order of their numbers. If SIGCONT and a signal
// that suspends a job came, Take returns only the later of the two. Take does not wait.
func (c *Catcher) Take() (taken []Received) {
	// A signal that is caught from here on makes FD readable again. FD may be readable for a signal that Take has
	// returned already. The call is raw, because it does not wait. During a call that may wait, the runtime gives the
	// goroutine's processor away.
	var drop [64]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(c.FD), uintptr(unsafe.Pointer(&drop)), uintptr(len(drop)))
	pending, self := handler.Take(), c.self
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if pending&(1<<(sig-1)) == 0 {
			continue
		}
		n, outside := handler.Count(sig) // 0 if the last Take has counted the signal before it was pending
		if sig < rtMin {
			n = min(n, 1)
		}
		got := Received{Signal: sig, Outside: outside}
		got.Sender, got.Kernel = handler.Origin(sig)
		if got.Own(self) {
			continue
		}
		for range n {
			taken = append(taken, got)
		}
	}
	return taken
}

// Catchable reports whether Catch receives sig. It excludes SIGKILL and SIGSTOP, SIGCHLD, and those that the C library or the
// Go runtime keeps for itself.
func Catchable(sig syscall.Signal) bool { return handler.Catchable(sig) }

// Unblock unblocks all signals on this thread. Call it on the thread that started the command, after the start.
func (c *Catcher) Unblock() {
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The default action of the signals that can't be caught is to terminate the process.
	for sig := syscall.Signal(32); sig <= rtMin; sig++ {
		if !Catchable(sig) {
			calls.SetAction(sig, &calls.SigAction{calls.Ignore}, nil)
		}
	}
}

// leftIgnored are the signals that the runtime leaves as they were if they are ignored.
var leftIgnored = []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}

// Ignored reports whether the disposition of sig is SIG_IGN. Only for leftIgnored is this also the disposition at the
// start. See sigaction(2).
func Ignored(sig syscall.Signal) bool {
	var now calls.SigAction
	calls.SetAction(sig, nil, &now)
	return now[0] == calls.Ignore
}

// ToGroup sends sig to the process group that leader leads, and to leader itself if leader has moved to another group.
// It is not an error if these processes have exited. See kill(2).
func ToGroup(leader int, sig syscall.Signal) error {
	group := unix.Kill(-leader, sig)
	if pgid, err := unix.Getpgid(leader); group == unix.ESRCH || err == nil && pgid != leader {
		return To(leader, sig)
	}
	return sent(group, leader, sig)
}

// To sends sig to one process. It is not an error if the process has exited.
func To(pid int, sig syscall.Signal) error {
	return sent(unix.Kill(pid, sig), pid, sig)
}

// EndBy terminates this process by the default action of sig, without a core dump. The parent process sees in wait4(2)
// what it would have seen of a child that sig killed. EndBy returns only if this fails.
//
//go:nosplit
func EndBy(sig syscall.Signal) {
	var noCore [2]uint64 // struct rlimit64
	set := uint64(1) << uint(sig-1)
	calls.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0)
	calls.Call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&noCore)), 0) // if a filter refuses the prctl
	calls.SetAction(sig, &calls.SigAction{}, nil)                                            // zero is SIG_DFL
	calls.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&set)), 0, 8)
	// Sent to this very thread, the signal takes effect before the call returns.
	self, thread := calls.Call(unix.SYS_GETPID, 0, 0, 0, 0), calls.Call(unix.SYS_GETTID, 0, 0, 0, 0)
	calls.Call(unix.SYS_TGKILL, uintptr(self), uintptr(thread), uintptr(sig), 0)
}

func sent(err error, pid int, sig syscall.Signal) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot send %s to %d: %w", Name(sig), pid, err)
}
