package reaper

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A Gate is what one process waits at until another opens it. See eventfd(2).
type Gate struct{ FD int }

// NewGate returns a gate that is closed, nil if the kernel gives none. Its descriptor is close-on-exec.
func NewGate() *Gate {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return &Gate{fd}
}

// Open opens the gate for good.
func (g *Gate) Open() { _, _ = unix.Write(g.FD, binary.NativeEndian.AppendUint64(nil, 1)) }

// Await waits until the gate is open, or one of the processes has ended, among which is the one that is
// to open it. It reports whether it is open, or poll(2) fails. It closes the gate's descriptor.
func (g *Gate) Await(pidfds ...int) (open bool) {
	fds := []unix.PollFd{{Fd: int32(g.FD), Events: unix.POLLIN}}
	for _, fd := range pidfds {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	defer func() { _ = unix.Close(g.FD) }()
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err != nil || fds[0].Revents != 0
		}
	}
}
