package host

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// enoughFree is how many descriptors fini needs to start the command and to stop leftovers.
const enoughFree = 14

// startPoller makes the Go runtime set up epoll(7) now. Otherwise it would do so for its first timer, which it sets
// after a garbage collection, and would abort if no descriptor is left. If startPoller fails, the runtime has not set
// up epoll(7), and no timer may be set. prepare has checked that no seccomp filter refuses epoll.
func startPoller() error {
	// First try the same calls that the runtime will make. The runtime will set up epoll(7) for the descriptor file.
	poller, err1 := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	waker, err2 := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	file, err3 := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	var limit unix.Rlimit
	err := errors.Join(err1, err2, err3, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if err == nil && uint64(file)+enoughFree > limit.Cur {
		err = unix.EMFILE // file has the lowest free number, so too few are left
	}
	if err == nil {
		err = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, waker, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	_, _ = unix.Close(poller), unix.Close(waker)
	if err != nil {
		_ = unix.Close(file)
		return err
	}
	return os.NewFile(uintptr(file), "").Close()
}
