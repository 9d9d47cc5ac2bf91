//go:build amd64 || arm64

package signals

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Catchable tells whether fini can receive sig from others and pass it on. SIGCHLD is left
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
	bell    int64       // the descriptor to write to
	pid     int64       // of this process
	one     uint64      // what is written
	runtime [65]uintptr // the runtime's handlers, by signal; 0 for none
	senders [65]int64   // the last of each kind: si_code below, si_pid above
	counts  [65]atomic.Uint32
}

// The flags of sigaction(2), which are the same on both architectures.
const (
	saSiginfo  = 0x4
	saRestorer = 0x04000000
	saOnstack  = 0x08000000
	saRestart  = 0x10000000
)

// handlerPC and restorerPC are where handler begins, and what it returns to where the kernel
// has nothing for that.
var handlerPC, restorerPC uintptr

// catch has handler catch every signal that is not ignored.
func (c *Catcher) catch(bell int) {
	c.pending, c.sender, c.count = &caught.pending, sender, count
	caught.bell, caught.pid, caught.one = int64(bell), int64(unix.Getpid()), 1
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if Catchable(sig) {
			install(sig)
		}
	}
}

// install has handler catch a signal, unless it is ignored.
func install(sig syscall.Signal) {
	var before sigaction
	setAction(sig, nil, &before)
	if before[0] == sigIgn {
		return
	}
	// The handler may need this at once.
	if before[0] != handlerPC {
		caught.runtime[sig] = before[0]
	}
	// On the stack that the runtime gives each thread for this, with all signals blocked.
	set := sigaction{handlerPC, saSiginfo | saOnstack | saRestart, 0, ^uintptr(0)}
	if restorerPC != 0 {
		set[1], set[2] = set[1]|saRestorer, restorerPC
	}
	setAction(sig, &set, nil)
}

// Children has SIGCHLD be caught from now on, or not any more. It is for the caller to look
// for children that ended before.
func (c *Catcher) Children(on bool) {
	if on {
		install(unix.SIGCHLD)
		return
	}
	var dfl sigaction
	setAction(unix.SIGCHLD, &dfl, nil)
}

// count is how many of a kind were caught since it was asked for.
func count(sig syscall.Signal) int { return int(caught.counts[sig].Swap(0)) }

// sender is who sent the last signal of a kind.
func sender(sig syscall.Signal) int {
	info := atomic.LoadInt64(&caught.senders[sig])
	if code := int32(info); code > 0 { // the kernel; what follows is no pid
		return 0
	}
	return int(info >> 32)
}
