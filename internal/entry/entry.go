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
			if proc.Open("/dev/null\x00", unix.O_RDWR) < 0 { // as in a chroot without /dev, where the runtime would abort
				proc.Open("/\x00", unix.O_PATH) // reading and writing fail as for a closed stream
			}
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
	ours := [3]uintptr{uintptr(unsafe.Pointer(unsafe.StringData("GOMAXPROCS=1\x00"))), uintptr(unsafe.Pointer(unsafe.StringData("GODEBUG=asyncpreemptoff=1\x00")))}
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

// A terminating signal may come before the Go code of package signals catches it. The runtime unblocks these signals,
// and the kernel drops a signal that PID 1 does not catch. So PID 1 and an heir catch them here: see catchEarly. In its
// start the runtime replaces that by its own handler, which ends the process with status 2; but before that it calls
// the handler that it has replaced (dieFromSignal and sigfwdgo in the runtime). Only for SIGQUIT does it print a dump
// instead. So init puts our handler back as soon as Go code runs.
func init() { outer.catchEarly() }

//go:nosplit
func (p *process) catchEarly() {
	if p.Role == Heir || getID(unix.SYS_GETPID) == 1 {
		onTerminating(earlyPC)
	}
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
	exitBy(uint32(sig))
}

const moment = 10 * time.Millisecond

// exitBy ends this process with a wait status: it calls exit(2), or kills itself with the same signal.
//
//go:nosplit
func exitBy(status uint32) {
	code := uintptr(status >> 8)
	if sig := syscall.Signal(status & 0x7f); sig != 0 {
		signals.EndBy(sig)
		code = 128 + uintptr(sig)
	}
	proc.Call(unix.SYS_EXIT_GROUP, code, 0, 0, 0)
}

// fork makes a pair of this process, unless the arguments ask for a single process. It guesses: the inner fini parses
// the command line, and sends a correction if the guess was wrong.
//
//go:nosplit
func fork() {
	p := &outer
	p.noteSelf()
	p.catchEarly()
	err := p.noteEarlier()
	p.KnowsEarlier = err >= 0
	if p.Self == 1 || guessAlone(atEntry.arguments) {
		return
	}
	if p.Failed = err; err < 0 { // later, nothing tells these children from the main child's descendants
		return
	}
	if _, _, errno := proc.Wait(p.Self, 0); errno != unix.ECHILD { // this process is no child of its own
		p.Failed = -int(errno)
		return
	}
	if p.Parent.FD < 0 {
		p.Parent.TakeSlot(ParentSignal)
	}
	// Until the inner fini has a process group of its own, a signal for the outer fini's group reaches both processes.
	p.signalFD = signalFD(-1, p.Takes())
	proc.Call(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0) // if the kernel refuses, the inner fini reports it
	if atEntry.ignored&childEnded != 0 {
		proc.SetAction(unix.SIGCHLD, &proc.SigAction{}, nil) // if SIGCHLD is ignored, the kernel keeps no status
	}
	p.Failed = p.launch()
}

// watch is the life of the outer fini. It returns only if this process has to start the runtime: as the heir, or as a single
// process. There it has no more use for what a pair needs.
//
//go:nosplit
func watch() {
	p := &outer
	if p.inner == 0 { // this process is the inner fini, or alone
		return
	}
	if p.inner > 0 {
		p.sleep()
	}
	if p.Role == Heir {
		p.inherit()
		p.catchEarly()
		proc.Close(p.Parent.FD)
	}
	if p.Parent.FD < 0 {
		p.Parent.LeaveSlot()
	}
	proc.Close(p.signalFD)
	proc.Close(p.Line)
	p.Line = -1
}

// guessAlone looks for the flags that make fini a single process. It misses flags after a flag whose value is a separate
// word. An inner fini can correct a wrong guess, and a single process can't. So if any word may cancel the flag for a
// single process, fini makes a pair first.
//
//go:nosplit
func guessAlone(argv uintptr) (alone bool) {
	for i := uintptr(8); word(argv+i) != 0 && proc.ByteAt(word(argv+i)) == '-' && !proc.Begins(word(argv+i), "--\x00"); i += 8 {
		arg := word(argv + i)
		alone = alone || proc.Begins(arg, "--no-shield\x00") || proc.Begins(arg, "--pause\x00") || proc.Begins(arg, "-P\x00")
	}
	for at := argv; alone && word(at) != 0; at += 8 {
		alone = !proc.Begins(word(at), "--shield") && !proc.Begins(word(at), "--no-shield=") && !proc.Begins(word(at), "--pause=")
	}
	return alone
}

// launch forks. The child is the inner fini, and goes on to the runtime. launch returns a negative errno if the kernel
// refuses the fork, or something that a pair needs.
//
//go:nosplit
func (p *process) launch() (err int) {
	const sockets = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	ends, atOnce, head := [2]int32{-1, -1}, unix.Timespec{}, [7]uintptr{}
	err = proc.Call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, sockets, 0, uintptr(unsafe.Pointer(&ends)))
	line, inner := int(ends[0]), int(ends[1])
	// The inner fini needs some more descriptors.
	spare := proc.Call(unix.SYS_FCNTL, uintptr(p.signalFD), unix.F_DUPFD_CLOEXEC, uintptr(inner)+4, 0)
	proc.Close(spare)
	if spare == -int(unix.EINVAL) { // the number is beyond the limit
		spare = -int(unix.EMFILE)
	}
	p.polled[0] = unix.PollFd{Fd: int32(p.signalFD), Events: unix.POLLIN}
	p.polled[1] = unix.PollFd{Fd: int32(line), Events: unix.POLLIN}
	p.polled[2] = unix.PollFd{Fd: int32(p.Parent.FD), Events: unix.POLLIN}
	// Try each call that the outer fini can't do without, because a filter may refuse one: see seccomp(2).
	err = min(err, p.signalFD, spare, proc.Call(unix.SYS_KILL, uintptr(p.Self), 0, 0, 0),
		proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0),
		proc.Call6(unix.SYS_SENDTO, uintptr(line), 0, 0, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0))
	if n := proc.Call(unix.SYS_RECVMSG, uintptr(line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT, 0); n != -int(unix.EAGAIN) {
		err = min(err, n)
	}
	if err >= 0 {
		err = proc.Call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	}
	p.inner, p.Line = err, line
	if err == 0 {
		p.Role, p.Line, inner = Inner, inner, line
		proc.Close(p.signalFD)
		// Until the inner fini catches signals, a stopped inner fini would stay stopped if the outer fini were killed. So
		// until then the kernel kills it with the outer fini, even before it can see the hang-up. See OutliveOuter.
		proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
		proc.Call(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(InnerName+"\x00"))), 0, 0)
	}
	proc.Close(inner)
	return err
}

// say sends a message, about the signal that was read.
//
//go:nosplit
func (p *process) say(kind Kind) {
	p.Signal.Kind = kind
	proc.Call6(unix.SYS_SENDTO, uintptr(p.Line), uintptr(unsafe.Pointer(&p.Signal)), unsafe.Sizeof(p.Signal), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
}

// noteEarlier records the children that this process had before it became fini: a shell may start a process and then
// execute fini itself. The outer fini reaps them while it sleeps, as they exit. noteEarlier returns a negative errno if
// the children can't be read or have no room.
//
//go:nosplit
func (p *process) noteEarlier() (err int) {
	if !hasChildren() {
		return 0
	}
	at, end, err := p.readChildren()
	for i := range p.earlier {
		if at >= end {
			return err
		}
		pid, blank := proc.Number(at) // one follows each pid
		p.earlier[i], at = int32(pid), blank+1
	}
	return -int(unix.EPERM)
}

// readChildren reads the list of this process's children, as far as there is room for it. The first thread adopts all orphans,
// but the runtime may have taken a signal on another one: see endEarly.
//
//go:nosplit
func (p *process) readChildren() (at, end uintptr, err int) {
	n := proc.ReadOf("/proc/self/task/", p.Self, "/children\x00", &p.text)
	at = uintptr(unsafe.Pointer(&p.text))
	return at, at + uintptr(max(n, 0)), min(n, 0)
}
