//go:build (amd64 || arm64) && !portable

package signals

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Real-time signals queue: each is one.
func TestCatchRealTime(t *testing.T) {
	c := startCatcher(t)
	for _, sig := range []syscall.Signal{34, 40, 64} { // 34 is the C library's SIGRTMIN
		for range 1000 {
			c.send(sig)
		}
		for range 1000 {
			c.want(c.is(sig))
		}
	}
	c.send(unix.SIGTERM)
	c.want(c.is(unix.SIGTERM))
}

// What the kernel itself sends has no sender: what stands in its place is something else.
func TestSenderIsNotTheKernel(t *testing.T) {
	const siKernel = 0x80
	caught.senders[unix.SIGINT] = siKernel | 77<<32
	if got := origin(unix.SIGINT); got.Sender != 0 || !got.Kernel {
		t.Errorf("%+v, want no sender but the kernel", got)
	}
}
