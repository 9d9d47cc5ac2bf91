//go:build (!amd64 && !arm64) || portable

// The tag portable takes this file on every architecture, so that its tests run here: see make portable.

package signals

import (
	"encoding/binary"
	"os"
	"os/signal"
	"slices"
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

var uncatchable = []syscall.Signal{32, 33, 34}

// The runtime sends the signals that it has caught to received. It drops a signal if the channel is full, and merges
// equal pending signals, so there are never this many under way.
var received = make(chan os.Signal, 256)

// catch makes the Go runtime catch every signal except the signals in leave, if no handler is written for the
// architecture. The runtime does not report the sender: signals that a terminal sends count as sent by the kernel.
func (c *Catcher) catch(eventFD int, leave []syscall.Signal) {
	c.pending = new(atomic.Uint64)
	c.origin = func(sig syscall.Signal) Received {
		return Received{Signal: sig, Kernel: sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH}
	}
	c.count = func(syscall.Signal) int { return 1 }
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if Catchable(sig) && !slices.Contains(leave, sig) {
			signal.Notify(received, sig)
		}
	}
	go func() {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for sig := range received {
			c.pending.Or(1 << (sig.(syscall.Signal) - 1))
			_, _ = unix.Write(eventFD, one)
		}
	}()
}

// catchAlso makes the Go runtime catch these signals, too.
func (c *Catcher) catchAlso(sigs []syscall.Signal) {
	for _, sig := range sigs {
		signal.Notify(received, sig)
	}
}

// Children makes this process catch SIGCHLD from now on, or no longer. The caller must look for children that exited
// before.
func (c *Catcher) Children(on bool) {
	if on {
		signal.Notify(received, unix.SIGCHLD)
		return
	}
	signal.Reset(unix.SIGCHLD)
}
