// Package signals names, catches and sends signals.
//
// Facts it rests on:
//
//   - The Go runtime sends its own threads SIGURG to preempt goroutines, and makes panics of
//     the faults of its own code. Where the handler is fini's own (see catch_handler.go) it
//     hands those on to the runtime's; elsewhere SIGURG is not caught.
//   - A signal that this process ignored when it was started, as nohup has it,
//     stays ignored here and in the command as long as it is never caught.
//   - kill(2) on a process group is atomic against fork: no member escapes it.
//
// It knows nothing of who ended: the caller sees to it that a pid or group it
// sends to has not been reaped.
package signals

import (
	"fmt"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Received is a signal that was caught.
type Received struct {
	Signal syscall.Signal
	// Sender is the pid of the process that sent it, 0 where it is not known, not in this
	// PID namespace, or the kernel itself.
	Sender int
}

// Catcher receives the signals sent to this process. Two of a kind that come before the
// first of them is taken are one, as the kernel has it, unless they are real-time signals.
type Catcher struct {
	FD int // becomes readable when there is something to take

	pending *atomic.Uint64 // bit n-1 is signal n
	sender  func(syscall.Signal) int
	count   func(syscall.Signal) int
}

// Catch starts to receive every signal but SIGCHLD, for which see Children. ignored are
// those that were ignored when this process started: they stay ignored, here and in the
// command, except for SIGCHLD, without which nothing is reaped. There is one Catcher in a
// process.
func Catch(ignored []syscall.Signal) (*Catcher, error) {
	KeepIgnored(ignored)
	read, write, err := bell()
	if err != nil {
		return nil, fmt.Errorf("cannot catch signals: %w", err)
	}
	c := &Catcher{FD: read}
	c.catch(write)
	return c, nil
}

// bell is a descriptor to wait for, and the one that makes it readable. See eventfd(2).
func bell() (read, write int, err error) {
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		return fd, fd, nil
	}
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	return fds[0], fds[1], err
}

// Take returns what was caught since the last Take, in the order of the numbers. It does
// not wait.
func (c *Catcher) Take() (taken []Received) {
	// What is caught from here on makes it readable again. The last bell may have been rung
	// for what was taken already. The call is raw, as are others on a signal's way: it does not
	// wait, and while a goroutine is in one that may, the runtime gives its processor away.
	var drop [64]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(c.FD), uintptr(unsafe.Pointer(&drop)), uintptr(len(drop)))
	pending := c.pending.Swap(0)
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if pending&(1<<(sig-1)) == 0 {
			continue
		}
		n := c.count(sig) // 0 where the last Take has seen it before it was pending
		if sig < rtMin {
			n = min(n, 1)
		}
		for range n {
			taken = append(taken, Received{sig, c.sender(sig)})
		}
	}
	return taken
}

// Started is to be called when the command has been started, on the thread that did: it
// receives also those signals that were blocked when this process started, and the command
// inherits nothing of what must be done about those that can't be caught.
func (c *Catcher) Started() {
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The default of those that can't be caught is to end the process.
	for _, sig := range uncatchable {
		setAction(sig, &sigaction{sigIgn}, nil)
	}
}

// KeepIgnored ignores signals where the runtime has put a handler in the place of SIG_IGN.
func KeepIgnored(ignored []syscall.Signal) {
	for _, sig := range ignored {
		if sig != unix.SIGCHLD && !Ignored(sig) {
			signal.Ignore(sig)
		}
	}
}

// Stop stops this process as sig does by default, and returns when it has been continued;
// at once where it can't be stopped, because it is PID 1 or no shell is there to continue
// its group (an orphaned process group, see setpgid(2)).
func (c *Catcher) Stop(sig syscall.Signal) {
	// Sent to this very thread, the signal takes effect before the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var dfl, caught sigaction // zero is SIG_DFL
	setAction(sig, &dfl, &caught)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	setAction(sig, &caught, nil)
}

// Ignored tells whether the disposition of sig is SIG_IGN, as far as the runtime has let
// it stand: HUP, INT, TSTP, TTIN, TTOU and CONT. See sigaction(2).
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
// where it has moved to another group. It is not an error if they have ended. See
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

// Relay sends sig to one process as if it came from sender, where that is known. It is not
// an error if the process has ended. See rt_sigqueueinfo(2).
func Relay(pid int, sig syscall.Signal, sender int) error {
	const siQueue = -1
	info := struct {
		signo, errno, code int32
		_                  [unsafe.Sizeof(uintptr(0))/4 - 1]int32
		pid                int32
		_                  [128]byte
	}{signo: int32(sig), code: siQueue, pid: int32(sender)}
	_, _, errno := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(sig), uintptr(unsafe.Pointer(&info)))
	if errno != 0 && errno != unix.ESRCH {
		return To(pid, sig) // a filter refuses it
	}
	return nil
}

func sent(err error, pid int, sig syscall.Signal) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot send %s to %d: %w", Name(sig), pid, err)
}
