package host

// This file contains the inner fini's end of the socket. The other end, and the table of messages, are in package
// entry.

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
)

// A Socket is the inner fini's end of the connection to the outer fini. Its FD is -1 if there is no outer fini.
type Socket struct{ FD int }

// BeAlone asks the outer fini to start the runtime as a single process. The inner fini must then exit.
func (s Socket) BeAlone() { s.send(entry.Message{Kind: entry.BeAlone}) }

// Starting tells the outer fini that the main child is about to start, so that it keeps signals for the main child.
func (s Socket) Starting() { s.send(entry.Message{Kind: entry.Starting}) }

// Started tells the outer fini that the main child has started, and sends it copies of the report descriptors.
func (s Socket) Started(pid int, inJob bool, reports ...int) {
	s.send(entry.Message{Kind: entry.Started, Value: uint32(pid), InJob: inJob}, reports...)
}

// Done tells the outer fini that the life is over, and with which wait status it has to end.
func (s Socket) Done(status syscall.WaitStatus) {
	s.send(entry.Message{Kind: entry.Done, Value: uint32(status)})
}

func (s Socket) send(m entry.Message, descriptors ...int) {
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m))
	const flags = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	if unix.Sendmsg(s.FD, text, rights, nil, flags) != nil && rights != nil {
		_ = unix.Sendmsg(s.FD, text, nil, nil, flags) // the kernel refuses only the descriptors
	}
}

// Receive returns the messages that have arrived. open is false if the outer fini has exited or was killed.
func (s Socket) Receive() (messages []entry.Message, open bool) {
	for {
		var m entry.Message
		// Use a raw system call, like all code that receives signals without blocking. See Take in package signals.
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.FD), uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m),
			unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return messages, true
		case errno != 0 || n < unsafe.Sizeof(m):
			return messages, false
		default:
			messages = append(messages, m)
		}
	}
}
