package main

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
)

// runtimeTimers tells whether the timers of the Go runtime can be used. The first of them
// makes the runtime call these, and it aborts where one of them is refused. See epoll(7).
var runtimeTimers = sync.OnceValue(func() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(wake) }()
	var event unix.EpollEvent
	if unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, &event) != nil {
		return false
	}
	// unix.EpollWait is another system call on some architectures.
	_, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&event)), 1, 0, 0, 0)
	return errno == 0 || errno == unix.EINTR
})

// An alarm rings once after the time it was last set to. The zero alarm is never set, and
// costs a life without one nothing.
type alarm struct {
	C     <-chan time.Time // nil before the first set
	timer *time.Timer

	// Without the runtime's timers:
	due  atomic.Int64 // as uptime, 0 for not set
	ring chan time.Time
}

// set has the alarm ring after d, and forget what was set before.
func (a *alarm) set(d time.Duration) {
	switch {
	case a.timer != nil:
		a.timer.Reset(d)
	case runtimeTimers():
		a.timer = time.NewTimer(d)
		a.C = a.timer.C
	default:
		a.due.Store(int64(orphans.Uptime() + d))
		if a.ring == nil {
			a.ring = make(chan time.Time)
			a.C = a.ring
			go a.sleep()
		}
	}
}

// sleep rings in the place of the runtime's timer, at most slice late.
func (a *alarm) sleep() {
	const slice = 5 * time.Millisecond
	for {
		nap := unix.NsecToTimespec(int64(slice))
		_ = unix.Nanosleep(&nap, nil)
		if due := a.due.Load(); due != 0 && orphans.Uptime() >= time.Duration(due) && a.due.CompareAndSwap(due, 0) {
			a.ring <- time.Time{}
		}
	}
}
