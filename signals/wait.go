package signals

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// A timer wakes up a poll at an uptime. poll's own timeout would start again if this process was stopped, because its
// container was paused or the machine was suspended.
type timer struct {
	fd    int // -1 for none
	tried bool
	at    time.Duration // uptime that fd is set to
}

// poll sets the timer to the given uptime and returns its descriptor, which becomes readable then. Without a timerfd,
// it returns a timeout instead.
func (t *timer) poll(at time.Duration) (fd unix.PollFd, milliseconds int) {
	if at == 0 {
		return unix.PollFd{Fd: -1}, -1
	}
	if !t.tried { // without a deadline, no timer is needed
		t.tried = true
		var err error
		if t.fd, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
			t.fd = -1
		}
	}
	if t.fd >= 0 && t.at != at {
		when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
		if unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &when, nil) != nil {
			t.fd = -1
		}
		t.at = at
	}
	if t.fd >= 0 {
		return unix.PollFd{Fd: int32(t.fd), Events: unix.POLLIN}, -1
	}
	left := max(at-calls.Uptime(), 0)
	const most = 1 << 30 // the timeout is a 32-bit integer
	return unix.PollFd{Fd: -1}, int(min((left+time.Millisecond-1)/time.Millisecond, most))
}

// Wait blocks until a signal is caught, the uptime is reached (0 for never), or one of fds is ready. It stores the
// result in fds. See poll(2).
func (c *Catcher) Wait(until time.Duration, fds []unix.PollFd) { c.wait(until, 0, fds) }

// WaitBriefly works like Wait, but returns after limit even if nothing has happened. It blocks in a raw system call,
// during which no other goroutine runs on this processor. If something happens soon, this is cheaper than Wait, for
// which the Go runtime wakes its monitor thread.
func (c *Catcher) WaitBriefly(until, limit time.Duration, fds []unix.PollFd) {
	c.wait(until, limit, fds)
}

func (c *Catcher) wait(until, brief time.Duration, fds []unix.PollFd) {
	const pause = 10 * time.Millisecond
	timer, milliseconds := c.timer.poll(until)
	if c.FD < 0 && milliseconds != 0 {
		milliseconds = int(pause.Milliseconds())
	}
	c.polled = append(append(c.polled[:0], unix.PollFd{Fd: int32(c.FD), Events: unix.POLLIN}, timer), fds...)
	var err error
	if brief > 0 {
		if milliseconds >= 0 {
			brief = min(brief, time.Duration(milliseconds)*time.Millisecond)
		}
		err = rawPoll(c.polled, brief)
	} else {
		_, err = unix.Poll(c.polled, milliseconds)
	}
	if err == unix.EINTR { // nothing is known about fds
		err = rawPoll(c.polled, 0)
	}
	if err != nil && err != unix.EINTR {
		// A filter refuses poll(2), or another process has reduced the limit of descriptors to less than len(fds).
		rest := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&rest, nil)
		for i := range c.polled {
			pollOne(&c.polled[i])
		}
	}
	copy(fds, c.polled[2:])
}

// rawPoll calls ppoll(2) without telling the Go runtime.
func rawPoll(fds []unix.PollFd, most time.Duration) error {
	timeout := unix.NsecToTimespec(int64(most))
	if _, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// pollOne polls a single descriptor. If the limit of descriptors is 0, the kernel refuses poll(2) but not select(2),
// for which a descriptor with a hang-up is readable.
func pollOne(p *unix.PollFd) {
	if _, err := unix.Poll(unsafe.Slice(p, 1), 0); err == nil || p.Fd < 0 || p.Fd >= unix.FD_SETSIZE {
		return
	}
	var read unix.FdSet
	read.Set(int(p.Fd))
	n, _ := unix.Select(int(p.Fd)+1, &read, nil, nil, &unix.Timeval{})
	if unread, _ := unix.IoctlGetInt(int(p.Fd), unix.TIOCINQ); n > 0 && (p.Events&unix.POLLIN != 0 || unread == 0) {
		p.Revents = unix.POLLHUP
	}
}
