//go:build amd64 || arm64

package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Linters don't see that the assembly calls these functions.
var _, _, _ = begin, rebuild, endEarly

// A terminating signal may come before the Go code of package signals catches it. The runtime unblocks these signals,
// and the kernel drops a signal that PID 1 does not catch. So PID 1 and an heir catch them here: see catchEarly. In its
// start the runtime replaces that by its own handler, which ends the process with status 2; but before that it calls
// the handler that it has replaced (dieFromSignal and sigfwdgo in the runtime). Only for SIGQUIT does it print a dump
// instead. So init puts our handler back as soon as Go code runs.
func init() { outer.catchEarly() }

//go:nosplit
func (p *process) catchEarly() {
	if p.Role != Heir && call(unix.SYS_GETPID, 0, 0, 0, 0) != 1 {
		return
	}
	for sig := uintptr(1); sig <= uintptr(unix.SIGTERM); sig++ {
		now, early := [4]uint64{}, [4]uint64{uint64(earlyPC), earlyFlags, 0, ^uint64(0)}
		call(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), 8)
		if terminating>>(sig-1)&1 != 0 && now[0] != ignore {
			call(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&early)), 0, 8)
		}
	}
}

// earlyFlags are SA_ONSTACK, and SA_RESTORER, without which amd64 calls no handler.
const earlyFlags = 0x08000000 | 0x04000000

// earlyPC is where the handler begins.
var earlyPC uintptr

// endEarly ends this process by a signal that came early. There is no command yet, or an heir is to stop its tree: this
// heir kills all children first. Another thread must not do the same for the next signal: both write to the same memory, and
// a pid that is read from a list that changes may be anybody's.
//
//go:nosplit
func endEarly(sig uintptr) {
	ignored := [4]uint64{ignore}
	for next := uintptr(1); next <= uintptr(unix.SIGTERM); next++ {
		if terminating>>(next-1)&1 != 0 {
			call(unix.SYS_RT_SIGACTION, next, uintptr(unsafe.Pointer(&ignored)), 0, 8)
		}
	}
	for round := 0; round < 1000 && outer.Role == Heir && outer.killChildren(); round++ {
		nap()
	}
	outer.exitBy(uint32(sig))
}

// begin gets the address of the words that the kernel has put on the stack: argc, the arguments, 0, the environment, 0,
// and the auxiliary vector. See getauxval(3). begin returns the address that rebuild writes these words to anew. In the
// outer fini of a pair, begin returns only if the outer fini has to do more than sleep.
//
//go:nosplit
func begin(stack uintptr) (to uintptr) {
	block, none := ^uint64(0), uintptr(0)
	call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&block)), uintptr(unsafe.Pointer(&atEntry.blocked)), 8)
	atEntry.note()
	atEntry.environ = stack + 8*(word(stack)+2)
	outer.fork(stack + 8)
	from, end := vector(atEntry.environ)
	size := atEntry.environ - stack + 3*unsafe.Sizeof(none) + end - from
	// The runtime uses up to 64 KiB below these words, which the limit of the stack may not allow: see RLIMIT_STACK.
	const runtimes = 64 << 10
	flags := uintptr(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS)
	if own := call6(unix.SYS_MMAP, 0, runtimes+size+16, unix.PROT_READ|unix.PROT_WRITE, flags, ^uintptr(0), 0); own > 0 {
		stack = uintptr(own) + runtimes + size + 16
	}
	return (stack - size) &^ 15
}

const ignore = 1 // SIG_IGN

//go:nosplit
func (a *inherited) note() {
	for sig := uintptr(1); sig <= 64; sig++ {
		if call(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&a.action)), 8) == 0 && a.action[0] == ignore {
			a.ignored |= 1 << (sig - 1)
		}
	}
	for fd := uintptr(0); fd < 3; fd++ {
		if call(unix.SYS_FCNTL, fd, unix.F_GETFD, 0, 0) == -int(unix.EBADF) {
			a.closed |= 1 << fd
		}
	}
}

// rebuild copies the words that the kernel has put on the stack to another address. Instead of the environment the
// runtime gets two variables of our own, because others such as GODEBUG and GOMEMLIMIT are meant for the main child. fini
// needs one processor. And the runtime must not interrupt a system call by SIGURG after 10 ms: if another process answers
// the call later (seccomp_unotify(2)), it would begin anew each time, for ever.
//
//go:nosplit
func rebuild(from, to uintptr) {
	to = copyWords(from, atEntry.environ, to)
	setWord(to, uintptr(unsafe.Pointer(unsafe.StringData("GOMAXPROCS=1\x00"))))
	setWord(to+8, uintptr(unsafe.Pointer(unsafe.StringData("GODEBUG=asyncpreemptoff=1\x00"))))
	setWord(to+16, 0)
	begin, end := vector(atEntry.environ)
	copyWords(begin, end, to+24)
}

// vector returns the beginning and the end of the auxiliary vector, which follows the environment.
//
//go:nosplit
func vector(environ uintptr) (begin, end uintptr) {
	for begin = environ; word(begin) != 0; {
		begin += 8
	}
	begin += 8
	for end = begin; word(end) != 0; {
		end += 16
	}
	return begin, end + 16
}

//go:nosplit
func copyWords(from, end, to uintptr) uintptr {
	for ; from < end; from, to = from+8, to+8 {
		setWord(to, word(from))
	}
	return to
}

// call is a system call. It returns the kernel's answer: a negative errno if the kernel refuses.
//
//go:nosplit
func call(number, a, b, c, d uintptr) int { return call6(number, a, b, c, d, 0, 0) }

// call6 is a system call with more arguments. It is written in assembly because syscall.RawSyscall6 takes a third of the
// stack that the linker grants.
//
//go:noescape
func call6(number, a, b, c, d, e, f uintptr) int

// address is the address of a string that ends in a NUL.
//
//go:nosplit
func address(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s))) }

//go:nosplit
func closeFD(fd int) {
	if fd >= 0 {
		call(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0)
	}
}

//go:nosplit
func exit(status int) {
	for {
		call(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0, 0)
	}
}

const atCwd = ^uintptr(99) // AT_FDCWD
