package host

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enoughFree is how many descriptors a start and a sweep need.
const enoughFree = 14

// startPoller makes the Go runtime set up epoll(7) now. Otherwise the runtime would do so for its first timer, which it
// sets after some garbage collection, and abort if no descriptor were left. After an error epoll isn't set up, and
// nobody may set a timer.
func startPoller() error {
	// First try all calls that the runtime will make. file is the descriptor for which the runtime sets up epoll(7).
	poller, err1 := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	waker, err2 := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	file, err3 := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	var limit unix.Rlimit
	err := errors.Join(err1, err2, err3, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if err == nil && uint64(file)+enoughFree > limit.Cur {
		err = unix.EMFILE // file got the lowest free number
	}
	if err == nil {
		err = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, waker, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err == nil {
		// unix.EpollWait may call epoll_wait(2), which the runtime does not use.
		var event unix.EpollEvent
		if _, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poller), uintptr(unsafe.Pointer(&event)), 1, 0, 0, 0); errno != 0 {
			err = errno
		}
	}
	_, _ = unix.Close(poller), unix.Close(waker)
	if err != nil {
		_ = unix.Close(file)
		return err
	}
	return os.NewFile(uintptr(file), "").Close()
}
