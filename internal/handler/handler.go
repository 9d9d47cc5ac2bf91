//go:build (amd64 || arm64) && !portable && !race

// Package handler catches signals by a signal handler of its own, which records each signal and its sender and makes a
// descriptor readable. Where none is written for the architecture, os/signal takes its place: see other.go.
//
// The Go runtime sends its own threads SIGURG to preempt goroutines, and turns faults of its own code into panics. The handler
// hands these signals on to the runtime's handler.
package handler

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// Catchable reports whether sig may be caught and passed on to another process. It excludes SIGCHLD, which reports children of
// this process, and 32 and 33, which the C library of the other process keeps for itself.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, 32, 33:
		return false
	}
	return sig >= 1 && sig <= most
}

// most is the greatest number of a signal.
const most = 64

// Threads is how many threads catching takes.
const Threads = 0

// caught is the state that handler works on.
var caught catching

// catching takes the place of os/signal, which costs a thread, and thread switches for each caught signal, and does not
// report the sender.
type catching struct {
	pending atomic.Uint64
	eventFD int
	pid     int32             // of this process
	runtime uintptr           // the runtime's handler
	senders [64]atomic.Int64  // of the last signal of each number n, at n-1: si_code in the low half, si_pid in the high half
	counts  [64]atomic.Uint64 // how many signals of each number came; those from outside count in the high half too
	keeps   [64]uint64        // which pending signals each signal leaves pending
	action  proc.SigAction    // by which handler catches a signal
}

// Linters don't see that the assembly calls this function.
var _ = handle

// siginfo is the part of the kernel's struct that tells the sender. See sigaction(2).
type siginfo struct{ _, _, code, _, pid int32 }

// handle records a signal and makes eventFD readable. It reports whether the signal is the Go runtime's own instead. It is
// called in the middle of anything: see signal-safety(7).
//
//go:nosplit
//go:norace
func handle(sig uintptr, info *siginfo) (ofRuntime bool) {
	const siUser, siKernel = 0, 0x80
	const siTkill = -6        // a thread was meant
	const faults = 0x800009b0 // ILL TRAP BUS FPE SEGV SYS
	switch code, pid := info.code, info.pid; {
	case code == siTkill && pid == caught.pid:
		return true
	case code == siTkill:
	case sig == uintptr(unix.SIGURG) && pid == 0 && caught.pid != 1:
		// Without a sender it is the runtime's, if the kernel had no memory for a siginfo. PID 1 may get it from a process
		// outside of the PID namespace.
		return true
	case code > 0 && faults>>sig&1 != 0: // a signal from a process has at most 0
		return true
	}
	n := (sig - 1) % 64
	caught.senders[n].Store(int64(info.pid)<<32 | int64(uint32(info.code)))
	more := uint64(1)
	if info.code == siKernel || info.code == siUser && info.pid == 0 { // other codes let a process choose the pid
		more += 1 << 32
	}
	caught.counts[n].Add(more)
	for done := false; !done; {
		pending := caught.pending.Load()
		done = caught.pending.CompareAndSwap(pending, pending&caught.keeps[n]|1<<n)
	}
	one := uint64(1)
	proc.Call(unix.SYS_WRITE, uintptr(caught.eventFD), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one), 0)
	return false
}

// handlerPC is where handler begins.
var handlerPC uintptr

// Prepare prepares Catch: the handler makes eventFD readable.
func Prepare(eventFD int) {
	caught.eventFD, caught.pid = eventFD, int32(unix.Getpid())
	// SIGCONT discards pending stop signals, and each stop signal discards a pending SIGCONT, as in the kernel: see
	// signal(7). Take returns signals in the order of their numbers, and not as they came.
	for sig := range caught.keeps {
		caught.keeps[sig] = ^uint64(0)
	}
	for _, stop := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		caught.keeps[stop-1] &^= 1 << (unix.SIGCONT - 1)
		caught.keeps[unix.SIGCONT-1] &^= 1 << (stop - 1)
	}
	// At the start the runtime replaces any handler of SIGSEGV by its own. Like the runtime's handler, handler runs on
	// the stack that the runtime gives each thread for signals, with all signals blocked.
	if caught.runtime == 0 {
		proc.SetAction(unix.SIGSEGV, nil, &caught.action)
		caught.runtime, caught.action[0] = caught.action[0], handlerPC
	}
}

// Catch makes the handler catch a signal.
func Catch(sig syscall.Signal) { proc.SetAction(sig, &caught.action, nil) }

// Uncatch restores the default action of a signal.
func Uncatch(sig syscall.Signal) { proc.SetAction(sig, &proc.SigAction{}, nil) } // zero is SIG_DFL

// Take returns the signals that were caught since the last call, and may be counted: bit n-1 is signal n.
func Take() uint64 { return caught.pending.Swap(0) }

// Count returns how many signals of a number were caught since the last call, and whether one of them came from outside.
func Count(sig syscall.Signal) (n int, outside bool) {
	counted := caught.counts[sig-1].Swap(0)
	return int(uint32(counted)), counted>>32 != 0
}

// Origin returns the sender of the last signal of a number: its pid, 0 if it is unknown, or that it was the kernel.
func Origin(sig syscall.Signal) (sender int, kernel bool) {
	info := caught.senders[sig-1].Load()
	if code := int32(info); code > 0 { // the next field of the siginfo is no pid
		return 0, true
	}
	return int(info >> 32), false
}
