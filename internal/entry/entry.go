//go:build amd64 || arm64

package entry

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/signals"
)

// Linters don't see that the assembly calls these functions.
var _, _, _, _, _ = note, fork, watch, rebuild, endEarly

// note records what fini has inherited. It gets the address of the words that the kernel has put on the stack: argc, the
// arguments, 0, the environment, 0, and the auxiliary vector. See getauxval(3). From here on all signals are blocked.
//
//go:nosplit
func note(stack uintptr) {
	a, all, now := &atEntry, ^uint64(0), proc.SigAction{}
	proc.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&a.blocked)), 8)
	a.arguments = stack + 8
	a.environ = a.arguments + 8*(word(stack)+1)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if proc.SetAction(sig, nil, &now); now[0] == proc.Ignore {
			a.ignored |= 1 << uint(sig-1)
		}
	}
	for fd := range a.closed {
		if proc.Call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0, 0) == -int(unix.EBADF) {
			// The runtime would do the same. Now the descriptors that fini opens have other numbers.
			a.closed[fd] = true
			proc.Open("/dev/null\x00", unix.O_RDWR)
		}
	}
}

// rebuild copies the words that the kernel has put on the stack to another one, and returns their address. Instead of the
// environment the runtime gets two variables of our own, because others such as GODEBUG and GOMEMLIMIT are meant for the
// main child. fini needs one processor. And the runtime must not interrupt a system call by SIGURG after 10 ms: if another
// process answers the call later (seccomp_unotify(2)), it would begin anew each time, for ever.
//
//go:nosplit
func rebuild() (stack uintptr) {
	begin := atEntry.environ // of the auxiliary vector, which follows the environment
	for begin += 8; word(begin-8) != 0; begin += 8 {
	}
	end := begin
	for end += 16; word(end-16) != 0; end += 16 {
	}
	// The runtime uses up to 64 KiB below these words, which the limit of the stack may not allow: see RLIMIT_STACK.
	const runtimes = 64 << 10
	from := atEntry.arguments - 8
	own := proc.Call6(unix.SYS_MMAP, 0, runtimes+end-from+3*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if own < 0 {
		return from // the runtime will find no memory either
	}
	stack = uintptr(own) + runtimes
	to := copyWords(from, atEntry.environ, stack)
	setWord(to, uintptr(unsafe.Pointer(unsafe.StringData("GOMAXPROCS=1\x00"))))
	setWord(to+8, uintptr(unsafe.Pointer(unsafe.StringData("GODEBUG=asyncpreemptoff=1\x00"))))
	setWord(to+16, 0)
	copyWords(begin, end, to+24)
	return stack
}

//go:nosplit
func copyWords(from, end, to uintptr) uintptr {
	for ; from < end; from, to = from+8, to+8 {
		setWord(to, word(from))
	}
	return to
}

// A terminating signal may come before the Go code of package signals catches it. The runtime unblocks these signals,
// and the kernel drops a signal that PID 1 does not catch. So PID 1 and an heir catch them here: see catchEarly. In its
// start the runtime replaces that by its own handler, which ends the process with status 2; but before that it calls
// the handler that it has replaced (dieFromSignal and sigfwdgo in the runtime). Only for SIGQUIT does it print a dump
// instead. So init puts our handler back as soon as Go code runs.
func init() { outer.catchEarly() }

//go:nosplit
func (p *process) catchEarly() {
	if p.Role != Heir && proc.Call(unix.SYS_GETPID, 0, 0, 0, 0) != 1 {
		return
	}
	onTerminating(earlyPC)
}

// onTerminating gives each terminating signal that is not ignored a handler.
//
//go:nosplit
func onTerminating(handler uintptr) {
	const flags = 0x08000000 | 0x04000000 // SA_ONSTACK, and SA_RESTORER, without which amd64 calls no handler
	now, set := proc.SigAction{}, proc.SigAction{handler, flags, 0, ^uintptr(0)}
	for sig := syscall.Signal(1); sig <= unix.SIGTERM; sig++ {
		if proc.SetAction(sig, nil, &now); terminating>>uint(sig-1)&1 != 0 && now[0] != proc.Ignore {
			proc.SetAction(sig, &set, nil)
		}
	}
}

// earlyPC is where the handler begins.
var earlyPC uintptr

// endEarly ends this process by a signal that came early. There is no command yet, or an heir is to stop its tree: this
// heir kills all children first. Another thread must not do the same for the next signal: both write to the same memory, and
// a pid that is read from a list that changes may be anybody's.
//
//go:nosplit
func endEarly(sig uintptr) {
	onTerminating(proc.Ignore)
	for round := 0; round < 1000 && outer.Role == Heir && outer.killChildren(); round++ {
		proc.Rest(moment)
	}
	exitBy(syscall.WaitStatus(sig))
}

const moment = 10 * time.Millisecond

// exitBy ends this process with a wait status: it calls exit(2), or kills itself with the same signal.
//
//go:nosplit
func exitBy(status syscall.WaitStatus) {
	if sig := syscall.Signal(status & 0x7f); sig != 0 {
		signals.EndBy(sig)
		exit(128 + int(sig))
	}
	exit(int(status >> 8))
}

//go:nosplit
func exit(status int) {
	for {
		proc.Call(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0, 0)
	}
}
