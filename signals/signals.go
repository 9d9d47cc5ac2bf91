// Package signals catches all signals together with their senders, sends signals, and names them. It is for an init,
// which starts a command, forwards signals to it, and ends the way the command did.
//
// # What it can't be used with
//
// Once Catch has been called, the package receives all signals of the process, and this can't be undone:
//
//   - os/signal receives nothing.
//   - The CPU profiler of runtime/pprof gets no samples, because SIGPROF is caught too.
//   - With cgo, the signal handlers of C code are replaced.
//
// The Go runtime keeps working. It still receives the signals that preempt goroutines, and a fault in Go code is still
// a panic. On architectures other than amd64 and arm64, and under the race detector, signals are caught by os/signal.
// SIGURG, SIGPROF and 32 to 34 are not caught in that case, and senders are unknown.
//
// Any program can use Name, Parse, To, ToGroup and EndBy. To and ToGroup signal whichever process has the pid, so the
// caller must ensure that the process has not been reaped.
//
// # Kernel facts
//
//   - Two equal signals that are pending at the same time count as one, unless they are real-time signals. See
//     signal(7).
//   - A signal that is ignored when a program starts is also ignored in its command, as with nohup(1). See execve(2).
//   - kill(2) for a process group is atomic with respect to fork(2), so no member escapes it.
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
	// Sender is the pid of the sender. It is 0 if the sender is unknown, the kernel, or outside of this PID namespace.
	Sender int

	Parent int // parent of the sender, or 0 if unknown

	FromKernel bool // sent by the kernel, such as SIGINT for Ctrl-C; see si_code in sigaction(2)

	// Outside is true if the signal may be from the kernel or from outside of this PID namespace. If equal signals were
	// merged, this holds if one of them was. A process in the namespace can only fake it by filling the queue of
	// pending signals (see RLIMIT_SIGPENDING in getrlimit(2)), because the kernel then loses the sender.
	Outside bool
}

// Own reports whether this process, whose pid is self, has caused the signal. Its own writes can cause SIGPIPE and
// SIGXFSZ, and its use of the processor SIGXCPU. Take leaves out such signals.
func (r Received) Own(self int) bool {
	return r.Sender == self && !r.FromKernel && self != 0 || r.FromKernel &&
		(r.Signal == unix.SIGXCPU || r.Signal == unix.SIGXFSZ || r.Signal == unix.SIGPIPE)
}

// Catcher receives the signals that are sent to this process. If two equal signals arrive before Take returns the
// first, they count as one unless they are real-time signals, as in the kernel.
type Catcher struct {
	FD int // readable if there is something to take

	// Ignored lists the signals that were ignored when this process started. See CatchIgnored.
	Ignored []syscall.Signal

	keep []syscall.Signal
	self int // pid

	timer  timer
	polled []unix.PollFd
}

// Catch starts catching all signals except SIGCHLD (see Children) and those in keep, which it doesn't change. A process
// must have only one Catcher. If there is an error, no descriptor is available, and Wait checks for signals
// periodically.
//
// ignored contains the signals that were ignored when this process started. Bit n-1 is signal n. They remain ignored
// until CatchIgnored, except for SIGCHLD, because otherwise the kernel would reap children. The Go runtime changes
// dispositions before main. If ignored is 0, Catch therefore detects only SIGHUP, SIGINT and the signals of job
// control.
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
			signal.Ignore(sig) // rather than setAction, because a fork resets every signal that the runtime believes it handles
		}
		if (known || slices.Contains(leftIgnored, sig)) && Ignored(sig) {
			c.Ignored = append(c.Ignored, sig)
		} else {
			c.catch(sig)
		}
	}
	return c, err
}

// catch starts catching a signal, if that is possible.
func (c *Catcher) catch(sig syscall.Signal) {
	if Catchable(sig) && !slices.Contains(c.keep, sig) {
		handler.Catch(sig)
	}
}

// CatchIgnored starts catching the ignored signals as well. Call it after starting the command, so that the command
// inherits them as ignored.
func (c *Catcher) CatchIgnored() {
	for _, sig := range c.Ignored {
		c.catch(sig)
	}
}

// Children starts catching SIGCHLD. Some children may have exited before the call, so check for them afterwards.
func (c *Catcher) Children() { handler.Catch(unix.SIGCHLD) }

// eventFD returns a descriptor to poll, and a descriptor that makes it readable. See eventfd(2).
func eventFD() (read, write int, err error) {
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		return fd, fd, nil
	}
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	return fds[0], fds[1], err
}

// Take returns the signals that were caught since the last call, in numerical order. Of SIGCONT and the signals that
// suspend a job, it returns only the latest. It does not block.
func (c *Catcher) Take() (taken []Received) {
	// A signal that is caught after this makes FD readable again, so FD may be readable for a signal that Take returns
	// now. This is a raw system call, because the Go runtime prepares for blocking on every other call, and this one
	// never blocks.
	var drop [64]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(c.FD), uintptr(unsafe.Pointer(&drop)), uintptr(len(drop)))
	pending, self := handler.Take(), c.self
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if pending&(1<<(sig-1)) == 0 {
			continue
		}
		n, outside := handler.Count(sig) // 0 if the previous Take has counted the signal just before it became pending
		if sig < rtMin {
			n = min(n, 1)
		}
		got := Received{Signal: sig, Outside: outside}
		got.Sender, got.FromKernel = handler.Origin(sig)
		if got.Own(self) {
			continue
		}
		for range n {
			taken = append(taken, got)
		}
	}
	return taken
}

// Catchable reports whether Catch can catch sig. It returns false for SIGKILL, SIGSTOP and SIGCHLD, and for signals
// that the C library or the Go runtime reserves.
func Catchable(sig syscall.Signal) bool { return handler.Catchable(sig) }

// Unblock unblocks all signals on this thread. Call it on the thread that has started the command.
func (c *Catcher) Unblock() {
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The default action of signals that can't be caught is to terminate the process, so ignore them.
	for sig := syscall.Signal(32); sig <= rtMin; sig++ {
		if !Catchable(sig) {
			calls.SetAction(sig, &calls.SigAction{calls.Ignore}, nil)
		}
	}
}

// leftIgnored lists the signals that the runtime doesn't catch if they are ignored.
var leftIgnored = []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}

// Ignored reports whether the current disposition of sig is SIG_IGN. Only the signals in leftIgnored were ignored from
// the start. See sigaction(2).
func Ignored(sig syscall.Signal) bool {
	var now calls.SigAction
	calls.SetAction(sig, nil, &now)
	return now[0] == calls.Ignore
}

// ToGroup sends sig to the process group that leader leads, and to leader itself if it has moved to another group. It
// returns nil if these processes have exited. See kill(2).
func ToGroup(leader int, sig syscall.Signal) error {
	group := unix.Kill(-leader, sig)
	if pgid, err := unix.Getpgid(leader); group == unix.ESRCH || err == nil && pgid != leader {
		return To(leader, sig)
	}
	return sent(group, leader, sig)
}

// To sends sig to one process. It returns nil if the process has exited.
func To(pid int, sig syscall.Signal) error {
	return sent(unix.Kill(pid, sig), pid, sig)
}

// EndBy terminates this process with sig, but without a core dump. wait4(2) in the parent then returns the same status
// as for a process that was killed with sig. EndBy returns only if this fails.
//
//go:nosplit
func EndBy(sig syscall.Signal) {
	var noCore [2]uint64 // struct rlimit64
	set := uint64(1) << uint(sig-1)
	calls.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0)
	// in case a filter refuses the prctl
	calls.Call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&noCore)), 0)
	calls.SetAction(sig, &calls.SigAction{}, nil) // zero is SIG_DFL
	calls.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&set)), 0, 8)
	// If it is sent to this thread, the signal takes effect before the call returns.
	self, thread := calls.Call(unix.SYS_GETPID, 0, 0, 0, 0), calls.Call(unix.SYS_GETTID, 0, 0, 0, 0)
	calls.Call(unix.SYS_TGKILL, uintptr(self), uintptr(thread), uintptr(sig), 0)
}

func sent(err error, pid int, sig syscall.Signal) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot send %s to %d: %w", Name(sig), pid, err)
}
