//go:build (!amd64 && !arm64) || portable || race

// The tag portable takes this file on every architecture, so that its tests run here: see make portable. So does the race
// detector, which would watch the handler in the middle of its own work.

package signals

import (
	"encoding/binary"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable reports whether fini can receive sig from others and pass it on. It excludes SIGCHLD, which reports fini's
// own children. The runtime keeps SIGURG, SIGPROF and 32 to 34 for itself.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig >= 1 && sig < 32 || sig > rtMin && sig <= rtMax
}

// Threads is how many threads catching takes: os/signal takes a thread.
const Threads = 1

// The runtime sends the signals that it has caught to received. It drops a signal if the channel is full, and merges
// equal pending signals, so there are never this many under way.
var received = make(chan os.Signal, 256)

var caught struct{ pending atomic.Uint64 }

// prepare prepares catch: a goroutine makes eventFD readable.
func prepare(eventFD int) {
	go func() {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for sig := range received {
			caught.pending.Or(1 << (sig.(syscall.Signal) - 1))
			_, _ = unix.Write(eventFD, one)
		}
	}()
}

// catch makes the Go runtime catch a signal, if no handler is written for the architecture.
func catch(sig syscall.Signal) { signal.Notify(received, sig) }

// uncatch restores the default action of a signal.
func uncatch(sig syscall.Signal) { signal.Reset(sig) }

func count(syscall.Signal) (n int, outside bool) { return 1, true }

// origin does not know the sender, which the runtime does not report: signals that a terminal sends count as sent by
// the kernel.
func origin(sig syscall.Signal) Received {
	return Received{Signal: sig, Kernel: sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH}
}
