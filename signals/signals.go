// Package signals names, catches and sends signals.
//
// Facts it rests on:
//
//   - The Go runtime sends its own threads SIGURG to preempt goroutines, and makes panics of
//     the faults of its own code. If the handler is fini's own (see catch_handler.go) it
//     hands those on to the runtime's; otherwise SIGURG is not caught.
//   - A signal that this process ignored when it was started, as under nohup, is ignored in the
//     command too if it is not caught here before that was started. See execve(2).
//   - kill(2) on a process group is atomic against fork: no member escapes it.
//
// It knows nothing of who ended: the caller sees to it that a pid or group it
// sends to has not been reaped.
package signals

import (
	"fmt"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Received is a signal that was caught.
type Received struct {
	Signal syscall.Signal
	// Sender is the pid of the process that sent it; 0 if it is not known, not in this PID
	// namespace, or the kernel itself.
	Sender int

	Kernel bool // the kernel sent it, as for a key of the terminal; see si_code in sigaction(2)
	OfTree bool // the sender belongs to the tree of this process, in which it has another pid
}

// Own reports whether fini, which has the pid self, has caused the signal itself: SIGPIPE and SIGXFSZ come
// from its own writes, SIGXCPU from the time that it has used. They are not for the command.
func (r Received) Own(self int) bool {
	return r.Sender == self && !r.Kernel && self != 0 || r.Kernel && (r.Signal == unix.SIGXCPU || r.Signal == unix.SIGXFSZ || r.Signal == unix.SIGPIPE)
}

// Catcher receives the signals sent to this process. Two of a kind that come before the
// first of them is taken are one, as the kernel merges them, unless they are real-time signals.
type Catcher struct {
	FD int // becomes readable when there is something to take

	// Ignored are the signals that were ignored when this process started: see CatchIgnored.
	Ignored []syscall.Signal

	keep []syscall.Signal

	pending *atomic.Uint64 // bit n-1 is signal n
	origin  func(syscall.Signal) Received
	count   func(syscall.Signal) int

	timer  timer
	polled []unix.PollFd
}

// Catch starts to receive every signal but SIGCHLD, for which see Children. ignored are
// those that were ignored when this process started: they stay ignored until CatchIgnored, except
// for SIGCHLD, without which nothing is reaped. Those to keep are as they were. There is one Catcher
// in a process.
func Catch(ignored, keep []syscall.Signal) (*Catcher, error) {
	KeepIgnored(ignored)
	read, write, err := eventFD()
	if err != nil {
		return nil, fmt.Errorf("cannot catch signals: %w", err)
	}
	c := &Catcher{FD: read, keep: keep}
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		known := slices.Contains(ignored, sig) || slices.Contains(leftIgnored, sig)
		if known && sig != unix.SIGCHLD && Ignored(sig) {
			c.Ignored = append(c.Ignored, sig)
		}
	}
	c.catch(write, slices.Concat(c.Ignored, keep))
	return c, nil
}

// CatchIgnored starts to receive what was ignored, too: the command may not ignore it any more. Call it
// when the command has been started, which ignores it at first.
func (c *Catcher) CatchIgnored() {
	c.catchAlso(slices.DeleteFunc(slices.Clone(c.Ignored), func(sig syscall.Signal) bool {
		return !Catchable(sig) || slices.Contains(c.keep, sig)
	}))
}

// eventFD is a descriptor to wait for, and the one that makes it readable. See eventfd(2).
func eventFD() (read, write int, err error) {
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		return fd, fd, nil
	}
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	return fds[0], fds[1], err
}

// Take returns what was caught since the last Take, in the order of the numbers; of SIGCONT and
// the signals that stop a job, what came last. It does not wait.
func (c *Catcher) Take() (taken []Received) {
	// What is caught from here on makes it readable again. It may have become so for what was
	// taken already. The call is raw, as are others on a signal's way: it does not
	// wait, and while a goroutine is in one that may, the runtime gives its processor away.
	var drop [64]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(c.FD), uintptr(unsafe.Pointer(&drop)), uintptr(len(drop)))
	pending, self := c.pending.Swap(0), unix.Getpid()
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if pending&(1<<(sig-1)) == 0 {
			continue
		}
		n := c.count(sig) // 0 if the last Take has seen it before it was pending
		if sig < rtMin {
			n = min(n, 1)
		}
		got := c.origin(sig)
		if got.Own(self) {
			continue
		}
		for range n {
			taken = append(taken, got)
		}
	}
	return taken
}

// Unblock unblocks all signals on this thread. Call it on the thread that started the command,
// after that.
func (c *Catcher) Unblock() {
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The default of those that can't be caught is to end the process.
	for _, sig := range uncatchable {
		setAction(sig, &sigaction{sigIgn}, nil)
	}
}

// KeepIgnored ignores signals again for which the runtime has replaced SIG_IGN.
func KeepIgnored(ignored []syscall.Signal) {
	for _, sig := range ignored {
		if sig != unix.SIGCHLD && !Ignored(sig) {
			signal.Ignore(sig)
		}
	}
}

// leftIgnored are the signals that the runtime leaves as they were if they are ignored.
var leftIgnored = []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}

// Ignored reports whether the disposition of sig is SIG_IGN, which is what it was at the
// start only for leftIgnored. See sigaction(2).
func Ignored(sig syscall.Signal) bool {
	var now sigaction
	setAction(sig, nil, &now)
	return now[0] == sigIgn
}

const sigIgn = 1 // SIG_IGN

// sigaction is the kernel's struct, which begins with the handler on every architecture
// that fini is built for.
type sigaction [8]uintptr

// setAction is rt_sigaction(2): set and old may be nil.
func setAction(sig syscall.Signal, set, old *sigaction) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// ToGroup sends sig to the process group that leader leads, and to leader itself
// if it has moved to another group. It is not an error if they have ended. See
// kill(2).
func ToGroup(leader int, sig syscall.Signal) error {
	group := unix.Kill(-leader, sig)
	if pgid, err := unix.Getpgid(leader); group == unix.ESRCH || err == nil && pgid != leader {
		return To(leader, sig)
	}
	return sent(group, leader, sig)
}

// To sends sig to one process. It is not an error if it has ended.
func To(pid int, sig syscall.Signal) error {
	return sent(unix.Kill(pid, sig), pid, sig)
}

// EndBy ends this process by the default action of sig, without a core dump, so that its
// parent sees in wait4(2) what it would have seen of a child that sig ended. It returns only
// if that can't be.
func EndBy(sig syscall.Signal) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // if a filter refuses that
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setAction(sig, &sigaction{}, nil) // zero is SIG_DFL
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// To this very thread: it takes effect before the call returns.
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
}

func sent(err error, pid int, sig syscall.Signal) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot send %s to %d: %w", Name(sig), pid, err)
}
