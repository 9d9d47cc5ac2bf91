//go:build (!amd64 && !arm64) || portable || race

// The build tag portable selects this file on every architecture, so that its tests can run here. See make portable.
// The race detector needs it too, because its code must not run in a signal handler.

package handler

import (
	"encoding/binary"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable reports whether sig can be caught and forwarded to another process. It returns false for SIGCHLD, which is
// about children of this process, and for SIGURG, SIGPROF and 32 to 34, which the Go runtime reserves.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig >= 1 && sig < 32 || sig > 34 && sig <= 64
}

// Threads is the number of threads that are needed to catch signals. os/signal needs one.
const Threads = 1

// received is the channel that the runtime sends caught signals to. The runtime drops a signal if the channel is full.
// That can't happen, because it merges equal pending signals.
var received = make(chan os.Signal, 256)

var caught struct{ pending atomic.Uint64 }

// Prepare must be called before Catch. A goroutine makes eventFD readable.
func Prepare(eventFD int) {
	go func() {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for sig := range received {
			caught.pending.Or(1 << (sig.(syscall.Signal) - 1))
			_, _ = unix.Write(eventFD, one)
		}
	}()
}

// Catch makes the Go runtime catch a signal.
func Catch(sig syscall.Signal) { signal.Notify(received, sig) }

// Uncatch restores the default action for a signal.
func Uncatch(sig syscall.Signal) { signal.Reset(sig) }

// Take returns the signals that were caught since the last call. Bit n-1 is signal n.
func Take() uint64 { return caught.pending.Swap(0) }

// Count returns 1, because the runtime doesn't count signals.
func Count(syscall.Signal) (n int, outside bool) { return 1, true }

// Origin returns no sender, because the runtime doesn't report it. kernel is true for the signals that a terminal can
// send.
func Origin(sig syscall.Signal) (sender int, kernel bool) {
	return 0, sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
}
