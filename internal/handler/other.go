//go:build (!amd64 && !arm64) || portable || race

// The tag portable takes this file on every architecture, so that its tests run here: see make portable. So does the race
// detector, which would watch the handler in the middle of its own work.

package handler

import (
	"encoding/binary"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable reports whether sig may be caught and passed on to another process. It excludes SIGCHLD, which reports children of
// this process. The runtime keeps SIGURG, SIGPROF and 32 to 34 for itself.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig >= 1 && sig < 32 || sig > 34 && sig <= 64
}

// Threads is how many threads catching takes: os/signal takes a thread.
const Threads = 1

// The runtime sends the signals that it has caught to received. It drops a signal if the channel is full, and merges
// equal pending signals, so there are never this many under way.
var received = make(chan os.Signal, 256)

var caught struct{ pending atomic.Uint64 }

// Prepare prepares Catch: a goroutine makes eventFD readable.
func Prepare(eventFD int) {
	go func() {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for sig := range received {
			caught.pending.Or(1 << (sig.(syscall.Signal) - 1))
			_, _ = unix.Write(eventFD, one)
		}
	}()
}

// Catch makes the Go runtime catch a signal, if no handler is written for the architecture.
func Catch(sig syscall.Signal) { signal.Notify(received, sig) }

// Uncatch restores the default action of a signal.
func Uncatch(sig syscall.Signal) { signal.Reset(sig) }

// Take returns the signals that were caught since the last call: bit n-1 is signal n.
func Take() uint64 { return caught.pending.Swap(0) }

// Count knows only that there was one.
func Count(syscall.Signal) (n int, outside bool) { return 1, true }

// Origin does not know the sender, which the runtime does not report: signals that a terminal sends count as sent by
// the kernel.
func Origin(sig syscall.Signal) (sender int, kernel bool) {
	return 0, sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
}
