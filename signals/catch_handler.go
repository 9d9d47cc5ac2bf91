//go:build amd64 || arm64

package signals

import (
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable reports whether fini can receive sig from others and pass it on. SIGCHLD is left
// out, which speaks of fini's own children, and 32 and 33, which the C library of the command
// keeps for itself.
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

// caught is what handler works on.
var caught catching

// catching is this instead of os/signal, since receiving through that costs thread switches for
// each signal that is to be caught, and a thread, and does not tell the sender.
type catching struct {
	pending atomic.Uint64
	eventFD int64     // the descriptor to write to
	pid     int64     // of this process
	one     uint64    // what is written
	runtime uintptr   // the runtime's handler
	senders [65]int64 // the last of each kind: si_code below, si_pid above
	counts  [65]atomic.Uint32
	keeps   [65]uint64 // of those that are pending, which each kind leaves so
}

// setKeeps makes SIGCONT discard the stop signals that are pending, and each of them SIGCONT, as the
// kernel does: see signal(7). They are taken in the order of the numbers, and not as they came.
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

// catch makes handler catch every signal but those to leave.
func (c *Catcher) catch(eventFD int, leave []syscall.Signal) {
	c.pending, c.origin, c.count = &caught.pending, origin, count
	caught.eventFD, caught.pid, caught.one = int64(eventFD), int64(unix.Getpid()), 1
	caught.setKeeps()
	// Like the runtime's own: on the stack that it gives each thread for this, with all
	// signals blocked.
	action := segvAction()
	caught.runtime, action[0] = action[0], handlerPC
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if Catchable(sig) && !slices.Contains(leave, sig) {
			setAction(sig, &action, nil)
		}
	}
}

// catchAlso makes handler catch these, too.
func (c *Catcher) catchAlso(sigs []syscall.Signal) {
	action := segvAction()
	for _, sig := range sigs {
		setAction(sig, &action, nil)
	}
}

// segvAction is how SIGSEGV is caught: first by the runtime, which puts its handler in place of
// whatever it finds, and then by handler.
func segvAction() (action sigaction) {
	setAction(unix.SIGSEGV, nil, &action)
	return action
}

// Children makes SIGCHLD be caught from now on, or not any more. It is for the caller to look
// for children that ended before.
func (c *Catcher) Children(on bool) {
	var action sigaction // zero is SIG_DFL
	if on {
		action = segvAction()
	}
	setAction(unix.SIGCHLD, &action, nil)
}

// count is how many of a kind were caught since it was asked for.
func count(sig syscall.Signal) int { return int(caught.counts[sig].Swap(0)) }

// origin is who sent the last signal of a kind.
func origin(sig syscall.Signal) Received {
	info := atomic.LoadInt64(&caught.senders[sig])
	if code := int32(info); code > 0 { // what follows it in the siginfo is no pid
		return Received{Signal: sig, Kernel: true}
	}
	return Received{Signal: sig, Sender: int(info >> 32)}
}
