//go:build (amd64 || arm64) && !portable && !race

// Package handler catches signals with a signal handler of its own. The handler records each signal with its sender,
// and makes a descriptor readable. For other architectures, os/signal is used instead (see other.go).
//
// The Go runtime sends SIGURG to its own threads to preempt goroutines, and turns faults in its own code into panics.
// The handler passes these signals on to the runtime's handler.
package handler

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// Catchable reports whether sig can be caught and forwarded to another process. It returns false for SIGCHLD, which is
// about children of this process, and for 32 and 33, which the C library of the other process reserves.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, 32, 33:
		return false
	}
	return sig >= 1 && sig <= most
}

// most is the highest signal number.
const most = 64

// Threads is the number of threads that are needed to catch signals.
const Threads = 0

// caught is the state that the signal handler uses.
var caught catching

// catching replaces os/signal, which needs a thread, switches threads for each signal, and doesn't report the sender.
type catching struct {
	pending atomic.Uint64
	eventFD int
	pid     int32            // of this process
	runtime uintptr          // the Go runtime's handler
	senders [64]atomic.Int64 // sender of the last signal n, at n-1: si_code in the low half, si_pid in the high half
	// number of signals n that were caught, at n-1; signals from outside also count in the high half
	counts [64]atomic.Uint64
	keeps  [64]uint64      // for each signal, which pending signals it leaves pending
	action calls.SigAction // the action that catches a signal
}

// The assembly calls this function, and linters can't see that.
var _ = handle

// siginfo is the part of the kernel's siginfo_t that contains the sender. See sigaction(2).
type siginfo struct{ _, _, code, _, pid int32 }

// handle records a signal and makes eventFD readable. It returns true if the signal belongs to the Go runtime instead.
// It may be called at any point of the program. See signal-safety(7).
//
//go:nosplit
//go:norace
func handle(sig uintptr, info *siginfo) (ofRuntime bool) {
	const siUser, siKernel = 0, 0x80
	const siTkill = -6        // the signal was sent to a thread
	const faults = 0x800009b0 // ILL TRAP BUS FPE SEGV SYS
	switch code, pid := info.code, info.pid; {
	case code == siTkill && pid == caught.pid:
		return true
	case code == siTkill:
	case sig == uintptr(unix.SIGURG) && pid == 0 && caught.pid != 1:
		// If the kernel has no memory for a siginfo, there is no sender, and the signal is the runtime's. For PID 1, it
		// may also be from a process outside of the PID namespace.
		return true
	case code > 0 && faults>>sig&1 != 0: // 0 or less for a signal from a process
		return true
	}
	n := (sig - 1) % 64
	caught.senders[n].Store(int64(info.pid)<<32 | int64(uint32(info.code)))
	more := uint64(1)
	// with other codes, a process can choose the pid itself
	if info.code == siKernel || info.code == siUser && info.pid == 0 {
		more += 1 << 32
	}
	caught.counts[n].Add(more)
	for done := false; !done; {
		pending := caught.pending.Load()
		done = caught.pending.CompareAndSwap(pending, pending&caught.keeps[n]|1<<n)
	}
	one := uint64(1)
	calls.Call(unix.SYS_WRITE, uintptr(caught.eventFD), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one), 0)
	return false
}

// handlerPC is the address of the signal handler.
var handlerPC uintptr

// Prepare must be called before Catch. The handler makes eventFD readable.
func Prepare(eventFD int) {
	caught.eventFD, caught.pid = eventFD, int32(unix.Getpid())
	// SIGCONT discards pending stop signals, and a stop signal discards a pending SIGCONT, as in the kernel (see
	// signal(7)). That is necessary because Take returns signals in numerical order.
	for sig := range caught.keeps {
		caught.keeps[sig] = ^uint64(0)
	}
	for _, stop := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		caught.keeps[stop-1] &^= 1 << (unix.SIGCONT - 1)
		caught.keeps[unix.SIGCONT-1] &^= 1 << (stop - 1)
	}
	// At its start, the runtime replaces any handler for SIGSEGV with its own. Like the runtime's handler, ours runs on
	// the signal stack that the runtime gives each thread, with all signals blocked.
	if caught.runtime == 0 {
		calls.SetAction(unix.SIGSEGV, nil, &caught.action)
		caught.runtime, caught.action[0] = caught.action[0], handlerPC
	}
}

// Catch makes the handler catch a signal.
func Catch(sig syscall.Signal) { calls.SetAction(sig, &caught.action, nil) }

// Uncatch restores the default action for a signal.
func Uncatch(sig syscall.Signal) { calls.SetAction(sig, &calls.SigAction{}, nil) } // zero is SIG_DFL

// Take returns the signals that were caught since the last call. Bit n-1 is signal n.
func Take() uint64 { return caught.pending.Swap(0) }

// Count returns how often a signal was caught since the last call, and whether any of them was sent from outside of the
// PID namespace.
func Count(sig syscall.Signal) (n int, outside bool) {
	counted := caught.counts[sig-1].Swap(0)
	return int(uint32(counted)), counted>>32 != 0
}

// Origin returns the pid of the last sender of a signal, or 0 if it is unknown. kernel is true if the kernel sent it.
func Origin(sig syscall.Signal) (sender int, kernel bool) {
	info := caught.senders[sig-1].Load()
	if code := int32(info); code > 0 { // the next field of the siginfo is not a pid
		return 0, true
	}
	return int(info >> 32), false
}
