package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
)

// A deadline is the uptime at which something is due, 0 for none.
type deadline time.Duration

func (d *deadline) set(after time.Duration) { *d = deadline(orphans.Uptime() + after) }

// due tells whether it has come, and forgets it then.
func (d *deadline) due(now time.Duration) bool {
	if *d == 0 || time.Duration(*d) > now {
		return false
	}
	*d = 0
	return true
}

// A timer wakes wait at a deadline. Where time passes while this process does not run, because
// its container is paused or the machine sleeps, poll's own timeout would begin again.
type timer struct {
	fd    int // -1 for none
	tried bool
	at    deadline // what fd is set to
}

// poll is what to poll for a deadline: a descriptor, or a timeout where the kernel gives none.
func (t *timer) poll(at deadline) (fd unix.PollFd, milliseconds int) {
	if at == 0 {
		return unix.PollFd{Fd: -1}, -1
	}
	if !t.tried { // a life without a deadline needs none
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
	left := max(time.Duration(at)-orphans.Uptime(), 0)
	const most = 1 << 30 // poll takes an int of 32 bits
	return unix.PollFd{Fd: -1}, int(min((left+time.Millisecond-1)/time.Millisecond, most))
}

// While the command runs, orphans that end within this time share a wake-up.
const nap = 25 * time.Millisecond

// wait sleeps until something has happened, and takes it in. It is where fini spends its life:
// one thread, in one system call.
func (l *loop) wait() {
	timer, milliseconds := l.timer.poll(l.next())
	fds := append(l.fds[:0], unix.PollFd{Fd: int32(l.caught.FD), Events: unix.POLLIN}, timer, unix.PollFd{Fd: -1})
	if l.nap != 0 {
		fds[2] = unix.PollFd{Fd: int32(l.mainFD), Events: unix.POLLIN}
	}
	fds = append(fds, l.bond.Fds...)
	l.fds = fds
	if _, err := unix.Poll(fds, milliseconds); err != nil && err != unix.EINTR {
		// A filter refuses it, or the limit of descriptors is lower than their number here.
		rest := unix.NsecToTimespec(int64(nap / 2))
		_ = unix.Nanosleep(&rest, nil)
	}

	for _, got := range l.caught.Take() {
		if got.Signal == unix.SIGCHLD {
			l.ended = true
		} else {
			l.take(l.signal(got))
		}
	}
	for _, cause := range l.bond.Seen(fds[3:]) {
		l.take(stop{causes[cause]})
	}
	now := orphans.Uptime()
	if l.timeout.due(now) {
		l.take(stop{timedOut})
	}
	if l.wake.due(now) {
		l.take(elapsed{})
	}
	if fds[2].Revents != 0 {
		l.ended, l.mainFD = true, -1
	}
	if l.nap != 0 && time.Duration(l.nap) <= now {
		l.ended = true
	}
}

// next is the deadline that comes first, 0 for none.
func (l *loop) next() (first deadline) {
	for _, d := range []deadline{l.timeout, l.wake, l.nap} {
		if d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	return first
}

// reap is the event of children that have ended.
func (l *loop) reap() event {
	l.ended = false
	e := l.collect()
	resting := l.nap != 0
	// The end of the main child is not to be kept waiting, nor that of the last leftover.
	mayRest := l.mainFD >= 0 && l.life.phase < lingering || l.life.phase == pausing
	switch {
	case mayRest && len(e.exits) > 0 && !e.ends(l.life.group):
		l.nap.set(nap)
		if !resting {
			l.caught.Children(false)
		}
	case resting:
		l.nap = 0
		l.caught.Children(true)
		l.ended = true // some may have ended before that
	}
	return e
}
