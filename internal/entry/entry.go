//go:build amd64 || arm64

package entry

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/signals"
)

// The assembly calls these functions, and linters can't see that.
var _, _, _, _, _ = note, fork, watch, rebuild, endEarly

// note blocks all signals, and records the signal state, arguments, environment and closed standard streams that fini
// inherited. stack is the address of argc. It is followed by argv, envp and the auxiliary vector (see getauxval(3)).
//
//go:nosplit
func note(stack uintptr) {
	a, all, now := &atEntry, ^uint64(0), calls.SigAction{}
	calls.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)),
		uintptr(unsafe.Pointer(&a.blocked)), 8)
	a.arguments = stack + 8
	a.environ = a.arguments + 8*(word(stack)+1)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if calls.SetAction(sig, nil, &now); now[0] == calls.Ignore {
			a.ignored |= 1 << uint(sig-1)
		}
	}
	for fd := range a.closed {
		if calls.Call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0, 0) == -int(unix.EBADF) {
			// The runtime would open /dev/null here too, but only after fini has opened descriptors of its own.
			a.closed[fd] = true
			if calls.Open("/dev/null\x00", unix.O_RDWR) < 0 { // this fails in a chroot without /dev, and the runtime would abort
				calls.Open("/\x00", unix.O_PATH) // reading and writing fail with EBADF, as they would on a closed stream
			}
		}
	}
}

// rebuild copies the argument block from the initial stack to a new one and returns its address. In the copy it
// replaces the environment with two variables, because GODEBUG or GOMEMLIMIT may have been set for the main child and
// must not affect fini. GOMAXPROCS is 1 because fini needs only one processor. Asynchronous preemption is off because
// its signals interrupt system calls. If another process answers a call slowly, as with seccomp_unotify(2), the call
// would be interrupted and restarted again and again.
//
//go:nosplit
func rebuild() (stack uintptr) {
	begin := atEntry.environ // will be the start of the auxiliary vector, which follows the environment
	for begin += 8; word(begin-8) != 0; begin += 8 {
	}
	end := begin
	for end += 16; word(end-16) != 0; end += 16 {
	}
	// The runtime uses up to 64 KiB below the argument block, which may be more than RLIMIT_STACK allows.
	const runtimes = 64 << 10
	from := atEntry.arguments - 8
	own := calls.Call6(unix.SYS_MMAP, 0, runtimes+end-from+3*8, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if own < 0 {
		return from // the runtime won't get any memory either
	}
	stack = uintptr(own) + runtimes
	to := copyWords(from, atEntry.environ, stack)
	ours := [3]uintptr{uintptr(unsafe.Pointer(unsafe.StringData("GOMAXPROCS=1\x00"))),
		uintptr(unsafe.Pointer(unsafe.StringData("GODEBUG=asyncpreemptoff=1\x00")))}
	to = copyWords(uintptr(unsafe.Pointer(&ours)), uintptr(unsafe.Pointer(&ours))+unsafe.Sizeof(ours), to)
	copyWords(begin, end, to)
	return stack
}

//go:nosplit
func copyWords(from, end, to uintptr) uintptr {
	for ; from < end; from, to = from+8, to+8 {
		*(*uintptr)(unsafe.Add(nil, to)) = word(from)
	}
	return to
}

// Between the start of the runtime and signals.Catch, a terminating signal would be lost in PID 1, and would kill an
// heir before it has stopped anything. Both therefore install a handler before the runtime starts. See catchEarly. The
// runtime installs its own, but calls ours before it would die from a signal (see dieFromSignal and sigfwdgo in package
// runtime). On SIGQUIT it prints a dump instead, so init installs our handler again.
func init() { current.catchEarly() }

//go:nosplit
func (p *process) catchEarly() {
	if p.Role == Heir || getID(unix.SYS_GETPID) == 1 {
		onTerminating(earlyPC)
	}
}

// onTerminating sets the handler of every terminating signal that is not ignored.
//
//go:nosplit
func onTerminating(handler uintptr) {
	// SA_ONSTACK, and SA_RESTORER, without which the kernel doesn't call a handler on amd64
	const flags = 0x08000000 | 0x04000000
	now, set := calls.SigAction{}, calls.SigAction{handler, flags, 0, ^uintptr(0)}
	for sig := syscall.Signal(1); sig <= unix.SIGTERM; sig++ {
		if calls.SetAction(sig, nil, &now); terminating>>uint(sig-1)&1 != 0 && now[0] != calls.Ignore {
			calls.SetAction(sig, &set, nil)
		}
	}
}

// earlyPC is the address of the signal handler that the assembly defines.
var earlyPC uintptr

// endEarly terminates this process with a signal that arrived before package signals was ready. There is no command
// yet, unless this process is an heir, which kills all of its children first. It ignores any further terminating signal
// because a second thread would use the same buffers, and might kill the wrong process.
//
//go:nosplit
func endEarly(sig uintptr) {
	onTerminating(calls.Ignore)
	for round := 0; round < 1000 && current.Role == Heir && current.killChildren(); round++ {
		calls.Rest(moment)
	}
	exitBy(uint32(sig))
}

const moment = 10 * time.Millisecond

// exitBy terminates this process so that its parent sees the given wait status. It either calls exit_group(2) or kills
// this process with the signal in the status.
//
//go:nosplit
func exitBy(status uint32) {
	code := uintptr(status >> 8)
	if sig := syscall.Signal(status & 0x7f); sig != 0 {
		signals.EndBy(sig)
		code = 128 + uintptr(sig)
	}
	calls.Call(unix.SYS_EXIT_GROUP, code, 0, 0, 0)
}

// fork splits this process into an outer and an inner fini, unless the arguments ask for a single process. That is only
// a guess, because the command line is not parsed until later. If it was wrong, the inner fini sends BeAlone.
// Assembly calls it before the runtime starts.
//
//go:nosplit
func fork() {
	p := &current
	p.noteSelf()
	p.catchEarly()
	err := p.noteInherited()
	p.KnowsInherited = err >= 0
	if p.Self == 1 || guessAlone(atEntry.arguments) {
		return
	}
	// without this list, fini could not tell these children from descendants of the main child
	if p.Failed = err; err < 0 {
		return
	}
	if _, errno := calls.Refused(); errno != 0 {
		p.Failed = -int(errno)
		return
	}
	if p.Parent.FD < 0 {
		p.Parent.TakeSlot(ParentSignal)
	}
	// A signal to the process group reaches both processes until the inner fini has a group of its own.
	p.signalFD = signalFD(-1, p.Takes())
	// if the kernel refuses this, the inner fini reports it
	calls.Call(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0)
	if atEntry.ignored&childEnded != 0 {
		calls.SetAction(unix.SIGCHLD, &calls.SigAction{}, nil) // if SIGCHLD is ignored, the kernel discards exit statuses
	}
	p.Failed = p.launch()
}

// watch runs the outer fini. It returns only if this process has to start the Go runtime, either as the heir or as a
// single process. It then closes the descriptors that only a pair needs. Assembly calls it too.
//
//go:nosplit
func watch() {
	p := &current
	if p.inner == 0 { // this process is the inner fini or a single process
		return
	}
	if p.inner > 0 {
		p.sleep()
	}
	if p.Role == Heir {
		p.inherit()
		p.catchEarly()
		calls.Close(p.Parent.FD)
	}
	if p.Parent.FD < 0 {
		p.Parent.LeaveSlot()
	}
	calls.Close(p.signalFD)
	calls.Close(p.Socket)
	p.Socket = -1
}

// guessAlone reports whether the flags seem to ask for a single process. It stops at the first word that is not a flag,
// so it misses flags that follow a flag's separate value. It returns false if any word might cancel the request,
// because a pair can still become a single process later, but a single process can't become a pair.
//
//go:nosplit
func guessAlone(argv uintptr) (alone bool) {
	for i := uintptr(8); word(argv+i) != 0 && calls.ByteAt(word(argv+i)) == '-' &&
		!calls.Begins(word(argv+i), "--\x00"); i += 8 {
		arg := word(argv + i)
		alone = alone || calls.Begins(arg, "--no-shield\x00") || calls.Begins(arg, "--pause\x00") ||
			calls.Begins(arg, "-P\x00")
	}
	for at := argv; alone && word(at) != 0; at += 8 {
		alone = !calls.Begins(word(at), "--shield") && !calls.Begins(word(at), "--no-shield=") &&
			!calls.Begins(word(at), "--pause=")
	}
	return alone
}

// launch forks the inner fini, which returns from launch as the child and continues to the Go runtime. launch fails
// with a negative errno if the kernel refuses the fork or any other call that a pair needs.
//
//go:nosplit
func (p *process) launch() (err int) {
	const sockets = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	ends, atOnce, head := [2]int32{-1, -1}, unix.Timespec{}, [7]uintptr{}
	err = calls.Call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, sockets, 0, uintptr(unsafe.Pointer(&ends)))
	socket, inner := int(ends[0]), int(ends[1])
	// Make sure that there are enough descriptors for the inner fini too.
	spare := calls.Call(unix.SYS_FCNTL, uintptr(p.signalFD), unix.F_DUPFD_CLOEXEC, uintptr(inner)+4, 0)
	calls.Close(spare)
	if spare == -int(unix.EINVAL) { // the number would exceed RLIMIT_NOFILE
		spare = -int(unix.EMFILE)
	}
	p.polled[0] = unix.PollFd{Fd: int32(p.signalFD), Events: unix.POLLIN}
	p.polled[1] = unix.PollFd{Fd: int32(socket), Events: unix.POLLIN}
	p.polled[2] = unix.PollFd{Fd: int32(p.Parent.FD), Events: unix.POLLIN}
	// Try every call that the outer fini depends on, because a seccomp(2) filter may refuse some of them.
	err = min(err, p.signalFD, spare, calls.Call(unix.SYS_KILL, uintptr(p.Self), 0, 0, 0),
		calls.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)),
			uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0),
		calls.Call6(unix.SYS_SENDTO, uintptr(socket), 0, 0, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0))
	if n := calls.Call(unix.SYS_RECVMSG, uintptr(socket), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT,
		0); n != -int(unix.EAGAIN) {
		err = min(err, n)
	}
	if err >= 0 {
		err = calls.Call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	}
	p.inner, p.Socket = err, socket
	if err == 0 {
		p.Role, p.Socket, inner = Inner, inner, socket
		calls.Close(p.signalFD)
		// Until the inner fini calls OutliveOuter, the kernel kills it together with the outer fini. Otherwise, an
		// inner fini that is stopped at this time would stay stopped forever.
		calls.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
		calls.Call(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(InnerName+"\x00"))), 0, 0)
	}
	calls.Close(inner)
	return err
}

// say sends a message of the given kind to the inner fini, with the signal that was read last.
//
//go:nosplit
func (p *process) say(kind Kind) {
	p.Signal.Kind = kind
	calls.Call6(unix.SYS_SENDTO, uintptr(p.Socket), uintptr(unsafe.Pointer(&p.Signal)), unsafe.Sizeof(p.Signal),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
}

// noteInherited records the children that this process had before it executed fini. A shell may start a background
// process and then exec fini, for example. The outer fini reaps these children while it sleeps. noteInherited fails
// with a negative errno if the kernel doesn't list the children or if there are too many.
//
//go:nosplit
func (p *process) noteInherited() (err int) {
	if !hasChildren() {
		return 0
	}
	at, end, err := p.readChildren()
	for i := range p.inherited {
		if at >= end {
			return err
		}
		pid, blank := calls.Number(at) // each pid is followed by a blank
		p.inherited[i], at = int32(pid), blank+1
	}
	return -int(unix.EPERM)
}

// readChildren reads the kernel's list of this process's children into p.text, which may be too short for all of it. It
// reads the main thread's list because orphans are reparented to that thread, and endEarly may run on another one.
//
//go:nosplit
func (p *process) readChildren() (at, end uintptr, err int) {
	n := proc.ReadOf("/proc/self/task/", p.Self, "/children\x00", &p.text)
	at = uintptr(unsafe.Pointer(&p.text))
	return at, at + uintptr(max(n, 0)), min(n, 0)
}
