// Package pair is the Go side of being two processes: the inner fini's end of the line, and isolation. Package entry has
// what comes before the Go runtime: the fork, the outer fini, and the table of the messages.
package pair

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/entry"
)

// A Line is the inner fini's end of the line to the outer fini.
type Line struct{ FD int }

// Ask tells the outer fini to go another way than the fork that made this process, and exits: see entry.Message.
func (l Line) Ask(kind entry.Kind) { l.ask(entry.Message{Kind: kind}) }

// AskIsolated asks for an isolated inner fini, which watches the processes bound.
func (l Line) AskIsolated(bound []int) {
	for _, pid := range bound {
		l.send(entry.Message{Kind: entry.Bind, Value: uint32(pid)}, -1)
	}
	l.Ask(entry.BeIsolated)
}

func (l Line) ask(m entry.Message) {
	l.send(m, -1)
	os.Exit(0)
}

// Starting tells that the command is about to be started: from now on it may run, and signals are for it.
func (l Line) Starting() { l.send(entry.Message{Kind: entry.Starting}, -1) }

// Started tells that the command was started. report is the descriptor of the place of the report, or -1.
func (l Line) Started(pid int, job uint32, report int) {
	l.send(entry.Message{Kind: entry.Started, Value: uint32(pid), Flags: job}, report)
}

// Done tells that this process has done its work, and by which wait status the outer fini is to end.
func (l Line) Done(status syscall.WaitStatus) {
	l.send(entry.Message{Kind: entry.Done, Value: uint32(status)}, -1)
}

func (l Line) send(m entry.Message, fd int) {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m))
	const flags = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	if unix.Sendmsg(l.FD, text, rights, nil, flags) != nil && fd >= 0 {
		_ = unix.Sendmsg(l.FD, text, nil, nil, flags) // the kernel refuses the descriptor, and not the words
	}
}

// Receive returns the messages that have come. open is false once the outer fini has exited or was killed.
func (l Line) Receive() (messages []entry.Message, open bool) {
	for {
		var m entry.Message
		// Raw, as are all calls on a signal's way that do not wait: see signals.Catcher.
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(l.FD), uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), unix.MSG_DONTWAIT, 0, 0)
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
