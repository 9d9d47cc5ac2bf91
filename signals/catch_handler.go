//go:build (amd64 || arm64) && !portable

package signals

import (
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable reports whether fini can receive sig from others and pass it on. It excludes SIGCHLD, which reports fini's
// own children, and 32 and 33, which the C library of the command keeps for itself.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, 32, 33:
		return false
	}
	return sig >= 1 && sig <= rtMax
}

// Threads is how many threads catching takes.
const Threads = 0

var uncatchable = []syscall.Signal{32, 33}

// caught is the state that handler works on.
var caught catching

// catching takes the place of os/signal, which costs a thread, and thread switches for each caught signal, and does not
// report the sender.
type catching struct {
	pending atomic.Uint64
	eventFD int64     // the descriptor to write to
	pid     int64     // of this process
	one     uint64    // the value to write
	runtime uintptr   // the runtime's handler
	senders [65]int64 // of the last signal of each number: si_code in the low half, si_pid in the high half
	counts  [65]atomic.Uint32
	keeps   [65]uint64 // which pending signals each signal leaves pending
}

// setKeeps makes SIGCONT discard pending stop signals, and each stop signal discard a pending SIGCONT, as the kernel
// does: see signal(7). Take returns signals in the order of their numbers, and not as they came.
func (c *catching) setKeeps() {
	for sig := range c.keeps {
		c.keeps[sig] = ^uint64(0)
	}
	for _, stop := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		c.keeps[stop] &^= 1 << (unix.SIGCONT - 1)
		c.keeps[unix.SIGCONT] &^= 1 << (stop - 1)
	}
}

// handlerPC is where handler begins.
var handlerPC uintptr

// catch makes handler catch every signal except the signals in leave.
func (c *Catcher) catch(eventFD int, leave []syscall.Signal) {
	c.pending, c.origin, c.count = &caught.pending, origin, count
	caught.eventFD, caught.pid, caught.one = int64(eventFD), int64(unix.Getpid()), 1
	caught.setKeeps()
	// Like the runtime's handler, handler runs on the stack that the runtime gives each thread for signals, with all
	// signals blocked.
	action := segvAction()
	caught.runtime, action[0] = action[0], handlerPC
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if Catchable(sig) && !slices.Contains(leave, sig) {
			setAction(sig, &action, nil)
		}
	}
}

// catchAlso makes handler catch these signals, too.
func (c *Catcher) catchAlso(sigs []syscall.Signal) {
	action := segvAction()
	for _, sig := range sigs {
		setAction(sig, &action, nil)
	}
}

// segvAction is how this process catches SIGSEGV. At the start the runtime replaces any handler of SIGSEGV by its own.
// Once catch has returned, handler catches SIGSEGV.
func segvAction() (action sigaction) {
	setAction(unix.SIGSEGV, nil, &action)
	return action
}

// Children makes this process catch SIGCHLD from now on, or no longer. The caller must look for children that exited
// before.
func (c *Catcher) Children(on bool) {
	var action sigaction // zero is SIG_DFL
	if on {
		action = segvAction()
	}
	setAction(unix.SIGCHLD, &action, nil)
}

// count returns how many signals of a number were caught since the last call.
func count(sig syscall.Signal) int { return int(caught.counts[sig].Swap(0)) }

// origin returns the sender of the last signal of a number.
func origin(sig syscall.Signal) Received {
	info := atomic.LoadInt64(&caught.senders[sig])
	if code := int32(info); code > 0 { // the next field of the siginfo is no pid
		return Received{Signal: sig, Kernel: true}
	}
	return Received{Signal: sig, Sender: int(info >> 32)}
}
