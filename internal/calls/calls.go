// Package calls contains raw system calls, which bypass the Go runtime, and functions that are built on them. Package
// entry needs them because it runs before the runtime, where the stack can't grow, there is no heap, and there are no
// write barriers. All that it calls is nosplit, and a test reads the machine code. The rest of fini uses them for
// calls that never block but are frequent, because the runtime prepares for blocking on every ordinary system call.
package calls

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call makes a system call. It returns a negative errno if the kernel refuses.
//
//go:nosplit
func Call(number, a, b, c, d uintptr) int { return Call6(number, a, b, c, d, 0, 0) }

// Call6 makes a system call with up to six arguments.
//
//go:nosplit
func Call6(number, a, b, c, d, e, f uintptr) int {
	answer, _, errno := syscall.RawSyscall6(number, a, b, c, d, e, f)
	if errno != 0 {
		return -int(errno)
	}
	return int(answer)
}

// Open opens a file. path must end with a NUL.
//
//go:nosplit
func Open(path string, flags int) int {
	return OpenAt(uintptr(unsafe.Pointer(unsafe.StringData(path))), flags)
}

// OpenAt opens a file whose path is at an address.
//
//go:nosplit
func OpenAt(path uintptr, flags int) int {
	const workingDir = ^uintptr(99) // AT_FDCWD
	return Call(unix.SYS_OPENAT, workingDir, path, uintptr(flags)|unix.O_CLOEXEC, 0)
}

// Close closes a descriptor. It does nothing if fd is negative.
//
//go:nosplit
func Close(fd int) {
	if fd >= 0 {
		Call(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0)
	}
}

// ByteAt returns the byte at an address. It adds to nil because the address need not belong to a Go object.
//
//go:nosplit
func ByteAt(at uintptr) byte { return *(*byte)(unsafe.Add(nil, at)) }

// SetByte sets the byte at an address.
//
//go:nosplit
func SetByte(at uintptr, value byte) { *(*byte)(unsafe.Add(nil, at)) = value }

// TextAt returns the NUL-terminated text at an address. The text is not copied, so it must never change.
func TextAt(begin uintptr) string {
	end := begin
	for ByteAt(end) != 0 {
		end++
	}
	return unsafe.String((*byte)(unsafe.Add(nil, begin)), end-begin)
}

// Begins reports whether the text at an address begins with a string.
//
//go:nosplit
func Begins(text uintptr, with string) bool {
	for i := range len(with) {
		if ByteAt(text+uintptr(i)) != with[i] {
			return false
		}
	}
	return true
}

// Number parses a number, and returns the address of the byte after it.
//
//go:nosplit
func Number(at uintptr) (n int, end uintptr) {
	for ; ByteAt(at) >= '0' && ByteAt(at) <= '9'; at++ {
		n = 10*n + int(ByteAt(at)-'0')
	}
	return n, at
}

// Wait calls wait4(2) without blocking. reaped is 0 if there is no child to reap.
//
//go:nosplit
func Wait(pid, flags int) (reaped int, status syscall.WaitStatus, errno syscall.Errno) {
	var word int32
	reaped = Call(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(&word)), uintptr(flags|unix.WNOHANG|unix.WALL), 0)
	return max(reaped, 0), syscall.WaitStatus(word), syscall.Errno(max(-reaped, 0))
}

// WaitID calls waitid(2) without blocking. pid is 0 if no child has changed.
//
//go:nosplit
func WaitID(kind, id, flags int) (pid int, errno syscall.Errno) {
	var info struct { // siginfo_t, as far as it is needed here
		_   [3]int32
		_   [0]uintptr // aligns the next field
		pid int32
		_   [120]byte
	}
	flags |= unix.WNOHANG | unix.WALL
	errno = syscall.Errno(-Call6(unix.SYS_WAITID, uintptr(kind), uintptr(id), uintptr(unsafe.Pointer(&info)),
		uintptr(flags), 0, 0))
	return int(info.pid), errno
}

// needed lists the system calls that fini can't do without. The Go runtime aborts without epoll(7), for example.
var needed = [...]struct {
	name   string
	number uintptr
}{
	{"getpid(2)", unix.SYS_GETPID},
	{"wait4(2)", unix.SYS_WAIT4},
	{"waitid(2)", unix.SYS_WAITID},
	{"epoll_create1(2)", unix.SYS_EPOLL_CREATE1},
	{"epoll_ctl(2)", unix.SYS_EPOLL_CTL},
	{"epoll_pwait(2)", unix.SYS_EPOLL_PWAIT},
}

// Refused returns the first needed call that a seccomp(2) filter refuses, with the filter's error, or "" if there is
// none. The arguments of the calls are chosen so that the kernel itself would return a different error.
//
//go:nosplit
func Refused() (call string, errno syscall.Errno) {
	const bad = ^uintptr(0)
	for i := range needed {
		errno = syscall.Errno(max(-Call(needed[i].number, bad, bad, bad, bad), 0))
		if errno != 0 && errno != unix.EINVAL && errno != unix.EBADF && errno != unix.EFAULT {
			return needed[i].name, errno
		}
	}
	return "", 0
}

// A SigAction is the kernel's struct sigaction. Its first word is the handler on every architecture that fini supports.
type SigAction [8]uintptr

const Ignore = 1 // SIG_IGN

// SetAction calls rt_sigaction(2). set and old may be nil.
//
//go:nosplit
func SetAction(sig syscall.Signal, set, old *SigAction) {
	Call(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8)
}

// Uptime returns the time since boot, from CLOCK_BOOTTIME in clock_gettime(2). The start time of a process in
// proc_pid_stat(5) is from the same clock.
//
//go:nosplit
func Uptime() time.Duration {
	var t unix.Timespec
	Call(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&t)), 0, 0)
	return time.Duration(t.Nano())
}

// Rest sleeps without making the runtime start a thread.
//
//go:nosplit
func Rest(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	Call(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}
