package life

import (
	"syscall"
	"testing"
)

// The main child may be stopped and end between two calls of wait4(2). What is then decided because it was
// stopped must not reach who has its pid next.
func TestNothingIsSentToAReapedPid(t *testing.T) {
	k := &kernel{} // without a world: whatever is sent makes it panic
	l := &Loop{Kernel: k, main: firstMain, reaped: true}
	forward{syscall.SIGKILL}.do(l)
	relay{received{sig: syscall.SIGKILL}}.do(l)
	if k.called {
		t.Error("something was sent")
	}
}
