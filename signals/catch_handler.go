//go:build (amd64 || arm64) && !portable

package signals

import (
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
	action  sigaction  // by which handler catches a signal
}

// handlerPC is where handler begins.
var handlerPC uintptr

// prepare prepares catch: handler makes eventFD readable.
func prepare(eventFD int) {
	caught.eventFD, caught.pid, caught.one = int64(eventFD), int64(unix.Getpid()), 1
	// SIGCONT discards pending stop signals, and each stop signal discards a pending SIGCONT, as in the kernel: see
	// signal(7). Take returns signals in the order of their numbers, and not as they came.
	for sig := range caught.keeps {
		caught.keeps[sig] = ^uint64(0)
	}
	for _, stop := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		caught.keeps[stop] &^= 1 << (unix.SIGCONT - 1)
		caught.keeps[unix.SIGCONT] &^= 1 << (stop - 1)
	}
	// At the start the runtime replaces any handler of SIGSEGV by its own. Like the runtime's handler, handler runs on
	// the stack that the runtime gives each thread for signals, with all signals blocked.
	setAction(unix.SIGSEGV, nil, &caught.action)
	caught.runtime, caught.action[0] = caught.action[0], handlerPC
}

// catch makes handler catch a signal.
func catch(sig syscall.Signal) { setAction(sig, &caught.action, nil) }

// uncatch restores the default action of a signal.
func uncatch(sig syscall.Signal) { setAction(sig, &sigaction{}, nil) } // zero is SIG_DFL

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
