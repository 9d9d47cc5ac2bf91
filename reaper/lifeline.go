package reaper

import (
	"golang.org/x/sys/unix"
)

// A Lifeline is a socket pair of which one process alone has the writing end. When that process ends,
// however it does, the kernel closes it, and who has the reading end sees the hang-up: on every kernel,
// and without a pid that may become another's. Each byte in it tells something, the first one that the
// reader may begin.
type Lifeline struct{ Read, Write int } // the descriptors of both ends

// NewLifeline opens the pair. Both ends are close-on-exec; the writing one has to stay so.
func NewLifeline() (Lifeline, error) {
	read, write, err := channel()
	return Lifeline{Read: read, Write: write}, err
}

// Begin lets the reader go on from Await. It comes before all else.
func (l Lifeline) Begin() { l.tell() }

// ParentDied tells that the parent process of the writer has ended.
func (l Lifeline) ParentDied() { l.tell() }

// A reader that is gone is no reason for a SIGPIPE.
func (l Lifeline) tell() { _ = unix.Send(l.Write, []byte{1}, unix.MSG_NOSIGNAL) }

// Await waits until the reader may begin, or the writer, or another of the processes whose pidfds are given,
// has ended. It reports whether the reader may begin, or poll(2) fails.
func (l Lifeline) Await(pidfds ...int) (begin bool) {
	fds := []unix.PollFd{{Fd: int32(l.Read), Events: unix.POLLIN}}
	for _, fd := range pidfds {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err != nil || l.Told()
		}
	}
}

// Told takes one byte, and reports whether there was one. If there is none where poll(2) has shown
// something, the writer has ended.
func (l Lifeline) Told() bool {
	n, err := unix.Read(l.Read, make([]byte, 1))
	return err == nil && n == 1
}
