package check

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// HungUp reports whether no process has the other end of a pipe open. It waits for tests that are starting a command at
// the same time, with syscall.ForkLock, because their child has all descriptors of this process open until it executes
// its program.
func HungUp(f *os.File) bool {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, _ = unix.Poll(fds, 0)
	return fds[0].Revents&unix.POLLHUP != 0
}

// Terminal opens a pseudoterminal. ours can be closed even during a read.
func Terminal(t testing.TB) (theirs, ours *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	NoError(t, err)
	ours = os.NewFile(uintptr(fd), "pty")
	t.Cleanup(func() { _ = ours.Close() })
	NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	NoError(t, err)
	return theirs, ours
}
