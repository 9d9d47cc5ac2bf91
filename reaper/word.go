package reaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Word is a socket pair by which one process tells another of the child that it runs: which one
// it is, and how it ended. It can be read also if the writer has been killed.
type Word struct {
	Read, Write int  // the descriptors of both ends
	InJob       bool // the reader is stopped along with its process group
	late        bool // what Settled tells was not read
	got         []byte
}

// Settled tells how Isolation.Settle went. It comes before all else.
func (w Word) Settled(err error) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		w.write(0)
		return
	}
	errno, _ := refused.Err.(syscall.Errno)
	w.write(uint32(slices.Index(calls[:], refused.Call))<<16 | uint32(errno))
}

// AwaitSettled waits until Settled was told, or the child has ended, and reports what was told.
// A child that ends without a word was killed, and one that says nothing for long is stopped:
// what it has to say is then left to be read.
func (w *Word) AwaitSettled(child Child, limit time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(w.Read), Events: unix.POLLIN}, {Fd: int32(child.FD), Events: unix.POLLIN}}
	for end := time.Now().Add(limit); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds())) // less than 0 is no limit
		if err == unix.EINTR && time.Now().Before(end) {
			continue
		}
		if n == 0 || err != nil {
			w.late = true
			return nil
		}
		break
	}
	var b [4]byte
	if n, _ := unix.Read(w.Read, b[:]); n < 4 {
		return nil
	}
	told := binary.NativeEndian.Uint32(b[:])
	if told == 0 {
		return nil
	}
	// It ends, and is nobody's to reap later. The poll is over at once where its pidfd tells of that.
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if pid, _ := unix.Wait4(child.Pid, nil, unix.WNOHANG, nil); pid != 0 {
			break
		}
		_, _ = unix.Poll(fds[1:], 10)
	}
	call, errno := int(told>>16), syscall.Errno(told&0xffff)
	if errno == 0 {
		return refusedCall(call%len(calls), errors.New("it is not mounted"))
	}
	return refusedCall(call%len(calls), errno)
}

// NewWord opens the pair. Both ends are close-on-exec.
func NewWord() (Word, error) {
	read, write, err := channel()
	return Word{Read: read, Write: write}, err
}

// channel is a pair of descriptors, close-on-exec, of which one is read and the other written. They are those of
// sockets, because the command may open a pipe once more by /proc/PID/fd if it may look at fini, and then keep it
// open or write into it. A socket can't be opened so. See unix(7).
func channel() (read, write int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("cannot open a pair of sockets: %w", err)
	}
	return fds[0], fds[1], nil
}

// Told is what has been told of the child.
type Told struct {
	Pid     int                // 0 if it was not started
	Unbound bool               // the kernel does not signal it when the writer dies
	Done    bool               // it has ended, and all that the writer had to do is done
	Status  syscall.WaitStatus // what the reader is to end like, if Done
	Stays   bool               // the writer goes on, if Done
}

// unbound marks a pid, which has at most 22 bits, and stays marks a status, which has 16.
const unbound, inJob, stays = 1 << 31, 1 << 30, 1 << 31

// Started tells that the child was started, and whether the kernel refused its parent death signal.
func (w Word) Started(pid int, isUnbound bool) {
	number := uint32(pid)
	if isUnbound {
		number |= unbound
	}
	if w.InJob {
		number |= inJob
	}
	w.write(number)
}

// ContinueBy makes the kernel send this process SIGCONT at the first write after Continue, in case
// it is stopped: a process in a PID namespace can't signal one outside. See F_SETSIG in fcntl(2).
func (w Word) ContinueBy() error {
	if _, err := unix.FcntlInt(uintptr(w.Read), unix.F_SETSIG, int(unix.SIGCONT)); err != nil {
		return err
	}
	_, err := unix.FcntlInt(uintptr(w.Read), unix.F_SETOWN, unix.Getpid())
	return err
}

// Continue makes the next thing that is told continue the reader, which has called ContinueBy.
// It takes the reading end.
func (w Word) Continue() {
	_, _ = unix.FcntlInt(uintptr(w.Read), unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC)
}

// Done tells that the writer's work is done, and how the child ended. Nothing comes after it.
func (w Word) Done(status syscall.WaitStatus) {
	w.write(uint32(status))
	_ = unix.Close(w.Write)
}

// Stays tells the same of a writer that goes on.
func (w Word) Stays(status syscall.WaitStatus) { w.Done(status | stays) }

func (w Word) write(number uint32) {
	_ = unix.Send(w.Write, binary.NativeEndian.AppendUint32(nil, number), unix.MSG_NOSIGNAL)
}

// Told returns what has been told so far. The second number ends it. news reports whether there is
// more than the last time.
func (w *Word) Told() (t Told, news bool) {
	var b [12]byte
	if n, _ := unix.Read(w.Read, b[:]); n > 0 {
		w.got, news = append(w.got, b[:n]...), true
	}
	numbers := w.got
	if w.late {
		numbers = numbers[min(4, len(numbers)):]
	}
	if len(numbers) >= 4 {
		number := binary.NativeEndian.Uint32(numbers)
		t.Pid, t.Unbound = int(number&^(unbound|inJob)), number&unbound != 0
	}
	if len(numbers) >= 8 {
		status := binary.NativeEndian.Uint32(numbers[4:])
		t.Done, t.Stays, t.Status = true, status&stays != 0, syscall.WaitStatus(status&^stays)
	}
	return t, news
}
