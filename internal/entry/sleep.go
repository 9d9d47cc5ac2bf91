//go:build amd64 || arm64

package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep is the outer fini's main loop. It returns if this process is to start the runtime. Mostly it does not return,
// because the outer fini exits as the main child did.
//
//go:nosplit
func (p *process) sleep() {
	p.polled[0] = pollFD{fd: int32(p.signalFD), events: unix.POLLIN}
	p.polled[1] = pollFD{fd: int32(p.Line), events: unix.POLLIN}
	p.polled[2] = pollFD{fd: int32(p.Parent.FD), events: unix.POLLIN}
	signalled := false
	for {
		p.poll()
		// The meaning of a signal depends on the messages before it. So the loop reads the signal first and handles it last.
		// If the signal has to wait, all later signals wait too.
		signalled = signalled || p.readSignal()
		p.reap() // after SIGCHLD was read: another exit sends another one
		started := Act(0)
		for p.receive() {
			act := p.Step(Seen{What: Said, Message: p.message})
			p.do(act)
			started |= act & LetGo
		}
		if started != 0 {
			p.deadline = 0
			p.letGo()
			// The SIGINT of a Ctrl-C may have come before the main child was there to get it too. So the loop relays it
			// like a signal from a process, and the main child may get it twice.
			signalFD(p.signalFD, ^uint64(0))
			for signalled = signalled || p.readSignal(); signalled && p.canSay(); signalled = p.readSignal() {
				p.do(p.takeSignal(false))
			}
			p.beStoppable()
		}
		if p.hungUp && p.polled[1].fd >= 0 {
			p.polled[1].fd = -1
			p.do(p.Step(Seen{What: HungUp}))
		}
		if p.Starting && !p.hungUp && p.deadline != 0 && now() >= p.deadline {
			p.do(p.Step(Seen{What: Waited}))
		}
		if p.polled[2].revents != 0 {
			p.polled[2] = pollFD{fd: -1}
			p.do(p.Step(Seen{What: ParentEnded}))
		}
		full := false
		if signalled && (p.Main != 0 || !p.Starting) {
			if full = !p.canSay(); !full {
				p.do(p.takeSignal(true))
				signalled = false
			}
		}
		p.polled[0].fd, p.polled[1].events = int32(p.signalFD), unix.POLLIN
		if signalled {
			p.polled[0].fd = -1
		}
		if full {
			p.polled[1].events |= unix.POLLOUT
			p.letInnerGoOn() // it reads nothing while it is stopped
		}
		if p.hungUp {
			switch act := p.ending(); {
			case act&Exit != 0:
				p.exitBy(p.Status)
			case act != 0 && !p.BeAlone:
				p.Role = Heir
				return
			case act != 0:
				return
			}
		}
	}
}

// poll waits for an event. A stop and continuation of this process interrupts the wait. See ppoll(2).
//
//go:nosplit
func (p *process) poll() {
	after, timeout := unix.Timespec{}, uintptr(0)
	if p.deadline != 0 {
		left := max(p.deadline-now(), 0)
		after.Sec, after.Nsec = left/1e9, left%1e9
		timeout = uintptr(unsafe.Pointer(&after))
	}
	p.polled[2].revents = 0
	err := call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), timeout, 0, 8, 0)
	if err == -int(unix.EINVAL) {
		// Another process has lowered the limit of descriptors since (RLIMIT_NOFILE), perhaps to 0. The loop reads the line
		// and the signals without waiting, and a parent that has died is no parent any more.
		nap()
		if p.polled[2].fd >= 0 && call(unix.SYS_GETPPID, 0, 0, 0, 0) != p.Parent.Pid {
			p.polled[2].revents = unix.POLLIN
		}
	}
}

// nap sleeps for 10 ms.
//
//go:nosplit
func nap() {
	moment := unix.Timespec{Nsec: 10e6}
	call(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&moment)), 0, 0, 0)
}

// reap reaps each child that has exited, except the inner fini and the main child. Such a child was there before this
// process became fini, or is an orphan of one that was. Another process may get its pid, so the pid no longer counts as
// an earlier child's.
//
//go:nosplit
func (p *process) reap() {
	for {
		pid := p.exited(unix.P_ALL, 0)
		if pid == 0 || pid == p.inner || pid == int(p.Main) {
			return
		}
		call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0)
		if from, to := p.findEarlier(pid); from != 0 {
			for ; from < to; from++ {
				*(*byte)(unsafe.Add(nil, from)) = ' '
			}
		}
	}
}

// exited returns a child that has exited and was not reaped, 0 for none, with its status in info. The arguments are those
// of waitid(2).
//
//go:nosplit
func (p *process) exited(idtype, id int) (pid int) {
	p.info.pid = 0
	call6(unix.SYS_WAITID, uintptr(idtype), uintptr(id), uintptr(unsafe.Pointer(&p.info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0, 0)
	return int(p.info.pid)
}

// receive takes a message from the line, with a descriptor if there is one, and records the hang-up.
//
//go:nosplit
func (p *process) receive() bool {
	if p.hungUp {
		return false
	}
	into := [2]uintptr{uintptr(unsafe.Pointer(&p.message)), unsafe.Sizeof(p.message)} // struct iovec
	head := [7]uintptr{2: uintptr(unsafe.Pointer(&into)), 3: 1, 4: uintptr(unsafe.Pointer(&p.control)), 5: unsafe.Sizeof(p.control)}
	n := call(unix.SYS_RECVMSG, uintptr(p.Line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC, 0)
	if n == 0 || n == -int(unix.ECONNRESET) {
		p.hungUp = true
	}
	if n > 0 && head[5] >= 20 { // a cmsghdr, and one descriptor
		closeFD(p.Report)
		p.Report = high(int(int32(p.control[2])))
	}
	return n == int(unsafe.Sizeof(p.message))
}

// canSay reports whether the line takes a message now. If signals come faster than the inner fini reads messages, the
// line is full: then signals have to stay pending, because a message that doesn't fit is lost.
//
//go:nosplit
func (p *process) canSay() bool {
	line, atOnce := pollFD{fd: int32(p.Line), events: unix.POLLOUT}, unix.Timespec{}
	return call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&line)), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0) != 0
}

// readSignal reads a signal. In a job the inner fini drops a signal whose sender belongs to the tree. But such a sender,
// as in (kill 0), has often exited by then. So readSignal at once asks for its parent, which a zombie still has.
//
//go:nosplit
func (p *process) readSignal() bool {
	if call(unix.SYS_READ, uintptr(p.signalFD), uintptr(unsafe.Pointer(&p.signal)), unsafe.Sizeof(p.signal), 0) <= 0 {
		return false
	}
	p.senderParent = 0
	if p.Job&InJob != 0 && p.signal.Code <= 0 && p.signal.Pid != 0 {
		p.senderParent = p.parentOf(p.signal.Pid)
	}
	return true
}

// parentOf returns the parent of a process, 0 if it is unknown. It never waits: see package orphans.
//
//go:nosplit
func (p *process) parentOf(pid uint32) int {
	// struct pidfd_info, as Linux 6.13 has it; the parent is at byte 24.
	const getInfo = 0xc040ff0b
	text := uintptr(unsafe.Pointer(&p.text))
	setWord(text, 0)
	fd := call(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0, 0)
	err := call(unix.SYS_IOCTL, uintptr(fd), getInfo, text, 0)
	closeFD(fd)
	if err == 0 {
		return int(uint32(word(text + 24)))
	}
	n := readFile(p.pathOf("/proc/", pid, "/status\x00"), text, len(p.text)-1)
	setByte(text+uintptr(max(n, 0)), 0)
	for at := text; byteAt(at) != 0; at++ {
		if begins(at, "\nPPid:\t") {
			parent, _ := number(at + 7)
			return parent
		}
	}
	return 0
}

// pathOf builds a path with a pid in text, from the last byte on, and returns its address.
//
//go:nosplit
func (p *process) pathOf(head string, pid uint32, tail string) uintptr {
	at := uintptr(unsafe.Pointer(&p.text)) + 64
	for i := uintptr(0); i < uintptr(len(tail)); i++ {
		setByte(at+i, byteAt(address(tail)+i))
	}
	for ; pid > 0; pid /= 10 {
		at--
		setByte(at, byte('0'+pid%10))
	}
	for i := uintptr(len(head)); i > 0; i-- {
		at--
		setByte(at, byteAt(address(head)+i-1))
	}
	return at
}

// takeSignal returns the acts for the signal that was read. If asKernel is false, a signal of the kernel, such as the SIGINT
// of Ctrl-C, counts as sent by a process, because the main child may not have got it.
//
//go:nosplit
func (p *process) takeSignal(asKernel bool) Act {
	if p.signal.Signo == ParentSignal && p.Parent.FD < 0 && (p.Parent.Pid != 0 || p.signal.Pid == 0) {
		// If the parent is still the same, only a thread of the parent process has exited.
		if p.Parent.Pid != 0 && call(unix.SYS_GETPPID, 0, 0, 0, 0) == p.Parent.Pid {
			return 0
		}
		return p.Step(Seen{What: ParentEnded})
	}
	seen, flags := Seen{What: Signalled, Signal: p.signal.Signo}, uint32(0)
	if p.signal.Code <= 0 {
		seen.Sender = int(int32(p.signal.Pid))
	} else if asKernel {
		flags = FromKernel
	}
	act := p.Step(seen)
	if act&Relay != 0 {
		p.say(Signal, p.signal.Signo, flags, int32(seen.Sender))
	}
	return act
}

// do carries out the acts that do not end the sleep, except LetGo and Relay: sleep carries them out, because the linker
// grants no stack for them here.
//
//go:nosplit
func (p *process) do(act Act) {
	if act&Hold != 0 {
		signalFD(p.signalFD, p.wanted()&^terminating)
		p.deadline = now() + 1e9
	}
	if act&Listen != 0 {
		signalFD(p.signalFD, p.wanted())
		p.deadline = 0
	}
	if act&TellParent != 0 && p.Parent.FD < 0 {
		p.say(ParentDied, 0, 0, 0)
	}
	if act&Continue != 0 {
		p.letInnerGoOn()
	}
	if act&ContinueJob != 0 {
		// The SIGTSTP may still be on its way to other members of the group, and SIGCONT must not overtake it. A signal
		// for a group is sent under a lock that setpgid(2) waits for, whatever its arguments are.
		const nobody = 1 << 30 // no pid is that large
		call(unix.SYS_SETPGID, nobody, nobody, 0, 0)
		call(unix.SYS_KILL, 0, uintptr(unix.SIGCONT), 0, 0)
	}
	if act&Suspend != 0 {
		p.beStoppable()
		call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.signal.Signo), 0, 0)
	}
	if act&Kill != 0 {
		call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGKILL), 0, 0)
	}
	if act&AwaitEnd != 0 {
		p.deadline = now() + 1e9 // after the line has hung up, only a tracer delays the end of a process
	}
	if act&TellParent != 0 && p.Parent.FD < 0 && p.Parent.Kept != 0 {
		call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Parent.Kept), 0, 0)
	}
}

// ending checks whether the inner fini has ended or the time is up, and returns the act that Step decides; 0 to wait on.
//
//go:nosplit
func (p *process) ending() Act {
	reaped := call(unix.SYS_WAIT4, uintptr(p.inner), uintptr(unsafe.Pointer(&p.info.status)), unix.WNOHANG|unix.WALL, 0)
	if reaped < 0 { // a filter refuses wait4(2)
		p.info.pid = 0
		call6(unix.SYS_WAITID, unix.P_PID, uintptr(p.inner), uintptr(unsafe.Pointer(&p.info)), unix.WEXITED|unix.WNOHANG, 0, 0)
		const exited = 1 // CLD_EXITED
		if reaped = int(p.info.pid); p.info.code == exited {
			p.info.status <<= 8
		}
	}
	seen := Seen{What: Ended, Status: uint32(p.info.status)}
	switch {
	case reaped == p.inner:
	case now() < p.deadline:
		return 0
	default:
		seen.What, seen.Status = TimeUp, uint32(unix.SIGKILL)
	}
	seen.Children = call6(unix.SYS_WAITID, unix.P_ALL, 0, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0, 0) != -int(unix.ECHILD)
	return p.Step(seen)
}

// inherit prepares for the runtime: some of the pending signals would kill this process once the runtime starts. inherit
// discards them, because the heir now stops the whole tree, whatever the signals ask for.
//
//go:nosplit
func (p *process) inherit() {
	p.makeRoom()
	signalFD(p.signalFD, ^uint64(childEnded))
	for p.readSignal() {
	}
	// If standard error is non-blocking, the runtime sets up epoll(7), and aborts if there are too few descriptors. So the
	// flag is off for a moment then: see Known. The other streams are blocking: see release.
	const some = 16
	spare := call(unix.SYS_FCNTL, 2, unix.F_DUPFD_CLOEXEC, some, 0)
	closeFD(spare)
	if flags := call(unix.SYS_FCNTL, 2, unix.F_GETFL, 0, 0); spare < 0 && flags > 0 && flags&unix.O_NONBLOCK != 0 {
		p.stderrFlags = flags
		call(unix.SYS_FCNTL, 2, unix.F_SETFL, uintptr(flags&^unix.O_NONBLOCK), 0)
	}
}

// letInnerGoOn continues the inner fini, if it is stopped.
//
//go:nosplit
func (p *process) letInnerGoOn() {
	p.info.pid = 0
	call6(unix.SYS_WAITID, unix.P_PID, uintptr(p.inner), uintptr(unsafe.Pointer(&p.info)), unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if p.info.pid != 0 {
		call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGCONT), 0, 0)
	}
}

// childEnded is the set that holds only SIGCHLD.
const childEnded = 1 << (unix.SIGCHLD - 1)

// wanted is the set of signals that the outer fini takes before the main child is started. All others wait.
//
//go:nosplit
func (p *process) wanted() uint64 {
	set := childEnded | terminating&^p.Ignored
	if p.Parent.FD < 0 {
		set |= 1 << (ParentSignal - 1)
	}
	return set
}

// beStoppable lets the kernel handle the signals that suspend this process with its job.
//
//go:nosplit
func (p *process) beStoppable() {
	stops := uint64(suspending)
	if p.Job&Orphaned != 0 {
		stops &^= 1 << (unix.SIGTSTP - 1)
	}
	if p.Job&InJob != 0 {
		signalFD(p.signalFD, ^stops)
		call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&stops)), 0, 8)
	}
}

// letGo closes the inherited descriptors, so that a reader gets end of file as if fini were not there. It also leaves the
// working directory, so that its file system may be unmounted.
//
//go:nosplit
func (p *process) letGo() {
	release(0, "/proc/self/fd/0\x00")
	release(1, "/proc/self/fd/1\x00")
	if atEntry.closed>>2&1 != 0 {
		release(2, root)
	}
	last := max(p.signalFD, p.Parent.FD, p.Line, p.Report)
	for fd := 3; fd < last; fd++ {
		if fd != p.signalFD && fd != p.Parent.FD && fd != p.Line && fd != p.Report {
			closeFD(fd)
		}
	}
	// Before Linux 5.9, or under a filter, close_range fails.
	if call(unix.SYS_CLOSE_RANGE, uintptr(last+1), 1<<32-1, 0, 0) != 0 {
		limit := unix.Rlimit{Cur: 1 << 16}
		call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 0, uintptr(unsafe.Pointer(&limit)))
		for fd := last + 1; fd < int(min(limit.Cur, 1<<16)); fd++ {
			closeFD(fd)
		}
	}
	call(unix.SYS_GETCWD, uintptr(unsafe.Pointer(&p.dir)), unsafe.Sizeof(p.dir), 0, 0)
	call(unix.SYS_CHDIR, address(root), 0, 0, 0)
}

const root = "/\x00"

// release turns a standard stream into a reference that doesn't keep a pipe open, as CloseInherited in package reaper
// does. If there is no /proc, or the stream was closed, it becomes a reference to the root directory: the runtime of an
// heir opens a file instead of a closed stream, and aborts if it can't.
//
//go:nosplit
func release(fd uintptr, link string) {
	path := call(unix.SYS_OPENAT, atCwd, address(link), unix.O_PATH|unix.O_CLOEXEC, 0)
	if path < 0 {
		path = call(unix.SYS_OPENAT, atCwd, address(root), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if path != int(fd) {
		call(unix.SYS_DUP3, uintptr(path), fd, unix.O_CLOEXEC, 0)
		closeFD(path)
	}
}

// exitBy ends the outer fini with a wait status: it calls exit(2), or kills itself with the same signal, without a core
// dump.
//
//go:nosplit
func (p *process) exitBy(status uint32) {
	sig := uintptr(status & 0x7f)
	if sig == 0 {
		exit(int(status>>8) & 0xff)
	}
	byDefault, set, noCore := [4]uint64{}, uint64(1)<<(sig-1), unix.Rlimit{}
	call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0)
	call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&noCore)), 0)
	call(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8)
	call(unix.SYS_KILL, uintptr(call(unix.SYS_GETPID, 0, 0, 0, 0)), sig, 0, 0)
	call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&set)), 0, 8)
	exit(128 + int(sig))
}

// makeRoom is for the heir. If the tree fills the process table before the heir has its threads, the runtime aborts, and
// all leftovers survive. So if the table is nearly full, makeRoom kills the tree's processes until there is room. It gives
// up after about ten seconds.
//
//go:nosplit
func (p *process) makeRoom() {
	const threads = 12 // that the runtime makes, and some more
	room := 64         // the tree can hardly fork that often in the few milliseconds until the heir has its threads
	for round := 0; round < 1000 && !hasRoom(room); round++ {
		p.killChildren()
		nap()
		room = threads
	}
}

// hasRoom tests whether the kernel allows n more processes.
//
//go:nosplit
func hasRoom(n int) bool {
	made := 0
	for ; made < n; made++ {
		pid := call(unix.SYS_CLONE, 0, 0, 0, 0) // a clone that sends no signal when it ends: see __WCLONE in wait(2)
		if pid == 0 {
			exit(0)
		}
		if pid < 0 {
			break
		}
	}
	for i := 0; i < made; i++ {
		call(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WCLONE, 0)
	}
	return made == n
}

// killChildren kills the main child's process group, if the main child leads a group. It also kills the children that
// /proc lists, as far as there is room for the list, except the children from before the exec. It reaps children that
// have exited, except the main child, whose pid names the group. It reports whether any other process may be left: only if
// nothing is listed but these two kinds. A child that has exited since the list was made may have left a child of its own.
//
//go:nosplit
func (p *process) killChildren() (left bool) {
	main := int(p.Main)
	isChild := main != 0 && call6(unix.SYS_WAITID, unix.P_PID, uintptr(main), 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0) == 0
	if isChild && p.Job&InJob == 0 {
		call(unix.SYS_KILL, uintptr(-main), uintptr(unix.SIGKILL), 0, 0)
	}
	mainOver := p.exited(unix.P_PID, main) != 0
	text, pid := uintptr(unsafe.Pointer(&p.text)), 0
	// The first thread adopts all orphans, but the runtime may have taken the signal on another one: see endEarly.
	n := readFile(p.pathOf("/proc/self/task/", uint32(p.Self), "/children\x00"), text, len(p.text)-1)
	left = n < 0
	for at := text; at < text+uintptr(n); at++ { // a blank follows each pid
		pid, at = number(at)
		if earlier, _ := p.findEarlier(pid); earlier != 0 || pid == main && mainOver {
			continue
		}
		if left = true; pid == 0 { // kill(2) would take it for this process's group
			continue
		}
		if pid == main || call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0) != pid {
			call(unix.SYS_KILL, uintptr(pid), uintptr(unix.SIGKILL), 0, 0)
		}
	}
	return left
}

// findEarlier returns where in earlier a pid stands, 0 if it is no earlier child's.
//
//go:nosplit
func (p *process) findEarlier(pid int) (from, to uintptr) {
	text, other := uintptr(unsafe.Pointer(&p.earlier)), 0
	for from = text; from < text+uintptr(p.earliers); from = to + 1 {
		if other, to = number(from); other == pid {
			return from, to
		}
	}
	return 0, 0
}

// number reads a number, and returns the address of the byte that follows it.
//
//go:nosplit
func number(at uintptr) (n int, end uintptr) {
	for ; byteAt(at) >= '0' && byteAt(at) <= '9'; at++ {
		n = 10*n + int(byteAt(at)-'0')
	}
	return n, at
}

// signalFD makes a descriptor that receives the signals of a set, or changes the set of a descriptor. See signalfd(2).
//
//go:nosplit
func signalFD(fd int, set uint64) int {
	return call(unix.SYS_SIGNALFD4, uintptr(fd), uintptr(unsafe.Pointer(&set)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
}

// now is the time of CLOCK_MONOTONIC in nanoseconds.
//
//go:nosplit
func now() int64 {
	var t unix.Timespec
	call(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0, 0)
	return t.Sec*1e9 + t.Nsec
}
