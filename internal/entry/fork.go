//go:build amd64 || arm64

package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fork makes a pair of this process, unless the arguments ask for a single process. It guesses: the inner fini parses
// the command line, and sends a correction if the guess was wrong. In the inner fini, fork returns at once. In the
// outer fini, fork returns only if the outer fini has to start the runtime.
//
//go:nosplit
func (p *process) fork(argv uintptr) {
	p.Parent.FD, p.signalFD, p.Line, p.Report = -1, -1, -1, -1
	p.Self, p.Ignored = call(unix.SYS_GETPID, 0, 0, 0, 0), atEntry.ignored
	p.catchEarly()
	p.noteEarlier()
	if p.Self == 1 || guessAlone(argv) {
		return
	}
	if p.Failed = p.earliers; p.Failed < 0 { // later, nothing tells these children from the main child's descendants
		return
	}
	p.noteParent()
	// Until the inner fini has a process group of its own, a signal for the outer fini's group reaches both processes.
	p.signalFD = high(signalFD(-1, p.wanted()))
	call(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0) // if the kernel refuses, the inner fini reports it
	if atEntry.ignored&childEnded != 0 {
		byDefault := [4]uint64{} // if SIGCHLD is ignored, the kernel keeps no status
		call(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&byDefault)), 0, 8)
	}
	p.Failed = p.launch()
	if p.Role == Inner {
		p.beInner()
		return
	}
	if p.Failed >= 0 {
		p.sleep()
	}
	if p.Role == Heir {
		p.inherit()
		p.catchEarly()
	}
	p.closeAll()
}

// guessAlone looks for the flags that make fini a single process. It misses flags after a flag whose value is a separate
// word. An inner fini can correct a wrong guess, and a single process can't. So if any word may cancel the flag for a
// single process, fini makes a pair first.
//
//go:nosplit
func guessAlone(argv uintptr) (alone bool) {
	for i := uintptr(8); word(argv+i) != 0 && byteAt(word(argv+i)) == '-' && !begins(word(argv+i), "--\x00"); i += 8 {
		arg := word(argv + i)
		alone = alone || begins(arg, "--no-shield\x00") || begins(arg, "--pause\x00") || begins(arg, "-P\x00")
	}
	for at := argv; alone && word(at) != 0; at += 8 {
		alone = !begins(word(at), "--shield") && !begins(word(at), "--no-shield=") && !begins(word(at), "--pause=")
	}
	return alone
}

//go:nosplit
func begins(arg uintptr, with string) bool {
	for i := uintptr(0); i < uintptr(len(with)); i++ {
		if byteAt(arg+i) != byteAt(address(with)+i) {
			return false
		}
	}
	return true
}

// noteParent records the facts about the parent process.
//
//go:nosplit
func (p *process) noteParent() {
	p.Parent.Pid = call(unix.SYS_GETPPID, 0, 0, 0, 0)
	p.Group, p.Session = call(unix.SYS_GETPGID, 0, 0, 0, 0), call(unix.SYS_GETSID, 0, 0, 0, 0)
	if p.Parent.Pid != 0 {
		p.Parent.Session = call(unix.SYS_GETSID, uintptr(p.Parent.Pid), 0, 0, 0)
		p.Parent.FD = max(high(call(unix.SYS_PIDFD_OPEN, uintptr(p.Parent.Pid), 0, 0, 0)), -1)
	}
	if p.Parent.FD < 0 {
		p.takeSlot()
	}
	if call(unix.SYS_GETPPID, 0, 0, 0, 0) != p.Parent.Pid {
		closeFD(p.Parent.FD) // the pidfd may belong to another process
		p.Parent.FD, p.Parent.Gone = -1, true
	}
}

// takeSlot makes the kernel send ParentSignal when the parent process dies. The process that started fini may have set
// another parent death signal: see Kept. SIGKILL stays, because the kernel does then what no fini can do for itself.
//
//go:nosplit
func (p *process) takeSlot() {
	kept := &p.Parent.Kept
	call(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(kept)), 0, 0)
	if *kept != int32(unix.SIGKILL) {
		p.Parent.Err = syscall.Errno(-call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, ParentSignal, 0, 0))
	}
}

// launch forks. The child is the inner fini, and goes on to the runtime. launch returns a negative errno if the kernel
// refuses the fork, or something that a pair needs.
//
//go:nosplit
func (p *process) launch() (err int) {
	const sockets = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	ends := [2]int32{-1, -1}
	err = call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, sockets, 0, uintptr(unsafe.Pointer(&ends)))
	line, inner := high(int(ends[0])), high(int(ends[1]))
	// The inner fini needs some more descriptors.
	spare := call(unix.SYS_FCNTL, uintptr(p.signalFD), unix.F_DUPFD_CLOEXEC, uintptr(inner)+4, 0)
	closeFD(spare)
	if spare == -int(unix.EINVAL) { // the number is beyond the limit
		spare = -int(unix.EMFILE)
	}
	if err = min(p.signalFD, err, line, inner, spare); err >= 0 {
		err = p.tryCalls(line)
	}
	if err >= 0 {
		err = call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	}
	p.inner, p.Line = err, line
	switch {
	case err == 0:
		p.Role, p.Line, inner = Inner, inner, line
		// Until the inner fini catches signals, a stopped inner fini would stay stopped if the outer fini were killed. So
		// until then the kernel kills it with the outer fini, even before it can see the hang-up. See Settled.
		call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
		call(unix.SYS_PRCTL, unix.PR_SET_NAME, address(InnerName+"\x00"), 0, 0)
	case err < 0:
		closeFD(line)
		p.Line = -1
	}
	closeFD(inner)
	return err
}

// tryCalls makes each call that the outer fini can't do without, because a filter may refuse one: see seccomp(2). It
// returns the negative errno of a call that was refused, else 0.
//
//go:nosplit
func (p *process) tryCalls(line int) int {
	p.polled[0].fd, p.polled[1].fd, p.polled[2].fd = -1, -1, -1
	atOnce, head := unix.Timespec{}, [7]uintptr{}
	refused := min(
		call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0),
		call(unix.SYS_KILL, uintptr(p.Self), 0, 0, 0),
		call6(unix.SYS_SENDTO, uintptr(line), 0, 0, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0),
		call(unix.SYS_READ, uintptr(line), 0, 0, 0),
	)
	if n := call(unix.SYS_RECVMSG, uintptr(line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT, 0); n < 0 && n != -int(unix.EAGAIN) {
		return n
	}
	// This process is no child of its own.
	self := uintptr(p.Self)
	if call(unix.SYS_WAIT4, self, 0, unix.WNOHANG|unix.WALL, 0) != -int(unix.ECHILD) && call6(unix.SYS_WAITID, unix.P_PID, self, 0, unix.WEXITED|unix.WNOHANG, 0, 0) != -int(unix.ECHILD) {
		return -int(unix.EPERM)
	}
	return min(refused, 0)
}

//go:nosplit
func (p *process) closeAll() {
	if p.Parent.FD < 0 {
		call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(p.Parent.Kept), 0, 0)
	}
	closeFD(p.signalFD)
	closeFD(p.Parent.FD)
	closeFD(p.Line)
	p.signalFD, p.Parent.FD, p.Line = -1, -1, -1
}

// beInner is the work of the inner fini before it has a runtime.
//
//go:nosplit
func (p *process) beInner() {
	closeFD(p.signalFD)
	p.signalFD = -1
	switch call(unix.SYS_GETPPID, 0, 0, 0, 0) {
	case p.Self:
	case 0:
		const says = "fini: children of fini are in another PID namespace than fini: use unshare --fork\n"
		call(unix.SYS_WRITE, 2, address(says), uintptr(len(says)), 0)
		exit(125)
	default:
		exit(1)
	}
}

// say sends a message.
//
//go:nosplit
func (p *process) say(kind Kind, value, flags uint32, sender int32) {
	p.message = Message{kind, value, sender, flags, int32(p.senderParent)}
	call6(unix.SYS_SENDTO, uintptr(p.Line), uintptr(unsafe.Pointer(&p.message)), unsafe.Sizeof(p.message), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
}

// noteEarlier records the children that this process had before it became fini: a shell may start a process and then
// execute fini itself. The outer fini does not reap them while it sleeps, so each child keeps its pid.
//
//go:nosplit
func (p *process) noteEarlier() {
	if call6(unix.SYS_WAITID, unix.P_ALL, 0, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0, 0) == -int(unix.ECHILD) {
		return
	}
	p.earliers = readFile(address("/proc/thread-self/children\x00"), uintptr(unsafe.Pointer(&p.earlier)), len(p.earlier))
	if p.earliers == len(p.earlier) {
		p.earliers = -1
	}
}

// readFile reads the beginning of a file, and returns its length or a negative number.
//
//go:nosplit
func readFile(path, to uintptr, size int) int {
	fd := call(unix.SYS_OPENAT, atCwd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if fd < 0 {
		return fd
	}
	n := call(unix.SYS_READ, uintptr(fd), to, uintptr(size), 0)
	closeFD(fd)
	return n
}

// high moves a descriptor to 3 or above, away from the numbers of closed standard streams.
//
//go:nosplit
func high(fd int) int {
	if fd < 0 || fd > 2 {
		return fd
	}
	moved := call(unix.SYS_FCNTL, uintptr(fd), unix.F_DUPFD_CLOEXEC, 3, 0)
	closeFD(fd)
	return moved
}
