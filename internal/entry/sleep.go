//go:build amd64 || arm64

package entry

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// sleep is the main loop of the outer fini. It returns only if this process has to start the Go runtime. Otherwise the
// outer fini exits from here, with the status of the main child.
//
//go:nosplit
func (p *process) sleep() {
	for act := Act(0); act&StartRuntime == 0; {
		p.check(p.Next())
		act = p.Step(&p.seen)
		if act&LetGo != 0 {
			CloseInherited(false)
			// Leave the working directory too, so that its file system can be unmounted.
			calls.Call(unix.SYS_GETCWD, uintptr(unsafe.Pointer(&p.dir)), unsafe.Sizeof(p.dir), 0, 0)
			calls.Call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(unsafe.StringData("/\x00"))), 0, 0, 0)
		}
		if act&Relay != 0 {
			p.say(Signal)
			if p.Asked == 0 && p.Signal.Value == uint32(unix.SIGTERM) {
				p.Asked = calls.Uptime()
			}
		}
		p.do(act)
		if act&Exit != 0 {
			exitBy(p.Status)
		}
	}
}

// check looks for one kind of event and stores what it finds in p.seen.
//
//go:nosplit
func (p *process) check(what EventKind) {
	e, found := &p.seen, true
	switch e.Event = what; what {
	case Nothing:
		p.poll()
	case SignalRead:
		found = p.readSignal()
		p.reap() // only after reading SIGCHLD, so that a child that exits later causes another SIGCHLD
	case MessageRead:
		found = p.receive()
	case WaitOver:
		found = calls.Uptime() >= p.deadline
	case PidfdReadable:
		found = p.Parent.Died()
	case Writable:
		// The socket buffer is full if signals arrive faster than the inner fini reads them. Signals then have to stay
		// pending, because a message that doesn't fit would be lost.
		atOnce := unix.Timespec{}
		p.polled[3] = unix.PollFd{Fd: int32(p.Socket), Events: unix.POLLOUT}
		found = calls.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled[3])), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 8,
			0) != 0
		e.ParentDied = p.Signal.Value == ParentSignal && p.Parent.Died()
	case Ended:
		reaped, status, _ := calls.Wait(p.inner, 0)
		if e.Value, e.Children = uint32(status), hasChildren(); reaped != p.inner {
			e.Value, found = uint32(unix.SIGKILL), calls.Uptime() >= p.deadline
		}
	}
	if !found {
		e.Event = Nothing
	}
}

// poll waits for the next event. It also returns if this process was stopped and continued. See ppoll(2).
//
//go:nosplit
func (p *process) poll() {
	for i, what := range [...]EventKind{SignalRead, MessageRead, PidfdReadable, Writable} {
		if p.Heeds(what) != (p.polled[i].Fd >= 0) {
			p.polled[i].Fd = ^p.polled[i].Fd // ppoll(2) ignores negative descriptors
		}
	}
	after, timeout := unix.Timespec{}, uintptr(0)
	if p.IsBounded() {
		after = unix.NsecToTimespec(int64(max(p.deadline-calls.Uptime(), 0)))
		timeout = uintptr(unsafe.Pointer(&after))
	}
	if calls.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), timeout, 0, 8,
		0) == -int(unix.EINVAL) {
		// Another process has lowered RLIMIT_NOFILE, so ppoll(2) fails. Check for every kind of event in turn instead.
		calls.Rest(moment)
	}
}

// reap reaps all children that have exited, except the inner fini and the main child. This may be a child that this
// process had before it executed fini, or an orphan left by such a child. Once it is reaped, its pid may be reused, so
// reap also removes the pid from the list of inherited children.
//
//go:nosplit
func (p *process) reap() {
	for {
		pid, _ := calls.WaitID(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
		if pid == 0 || pid == p.inner || pid == int(p.Main) {
			return
		}
		calls.WaitID(unix.P_PID, pid, unix.WEXITED)
		if noted := p.findInherited(pid); noted != nil {
			*noted = 0
		}
	}
}

// hasChildren reports whether this process may have children.
//
//go:nosplit
func hasChildren() bool {
	_, errno := calls.WaitID(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	return errno != unix.ECHILD
}

// closeReports closes the report descriptors that receive has stored.
//
//go:nosplit
func (p *process) closeReports() {
	for i := range p.Reports {
		calls.Close(p.Reports[i])
		p.Reports[i] = -1
	}
}

// receive reads the next message from the socket, with any descriptors sent along, or notices the hang-up.
//
//go:nosplit
func (p *process) receive() bool {
	into := [2]uintptr{uintptr(unsafe.Pointer(&p.seen.Message)), unsafe.Sizeof(p.seen.Message)} // a struct iovec
	head := [7]uintptr{2: uintptr(unsafe.Pointer(&into)), 3: 1, 4: uintptr(unsafe.Pointer(&p.control)),
		5: unsafe.Sizeof(p.control)}
	n := calls.Call(unix.SYS_RECVMSG, uintptr(p.Socket), uintptr(unsafe.Pointer(&head)),
		unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC, 0)
	if n > 0 && head[5] > 16 { // a cmsghdr followed by descriptors
		p.closeReports()
		for i := range p.Reports {
			if p.control.length >= 16+4*uint64(i+1) {
				p.Reports[i] = int(p.control.descriptors[i])
			}
		}
	}
	if n == 0 || n == -int(unix.ECONNRESET) {
		p.seen.Kind = HungUp
		return true
	}
	return n == int(unsafe.Sizeof(p.seen.Message))
}

// readSignal reads the next pending signal. If the command shares the job of fini, the inner fini ignores signals sent
// by the tree itself, for example by "kill 0". By then the sender has often exited, so readSignal immediately looks up
// the sender's parent, which is known even for a zombie.
//
//go:nosplit
func (p *process) readSignal() bool {
	if calls.Call(unix.SYS_READ, uintptr(p.signalFD), uintptr(unsafe.Pointer(&p.signal)), unsafe.Sizeof(p.signal),
		0) <= 0 {
		return false
	}
	p.seen.Message = Message{Value: p.signal.Signo, Sender: FromKernel}
	if p.signal.Code <= 0 {
		p.seen.Sender = int32(p.signal.Pid)
	}
	if p.InJob && p.seen.Sender > 0 {
		p.seen.Parent = int32(proc.ParentNow(int(p.signal.Pid), &p.text, true))
	}
	return true
}

// do carries out acts. Those that end the sleep are carried out by its caller. So are LetGo and Relay, because they
// need more stack than the linker allows here.
//
//go:nosplit
func (p *process) do(act Act) {
	if act&Bound != 0 { // after a hang-up, only a tracer can delay the inner fini's exit
		p.deadline = calls.Uptime() + time.Second
	}
	if act&TellParentDied != 0 {
		p.say(ParentDied)
		calls.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Parent.Kept), 0, 0) // signal 0 if there is none
	}
	if act&Continue != 0 {
		calls.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGCONT), 0, 0) // no effect unless it is stopped
	}
	if act&(LetGo|BeStoppable) != 0 {
		stops := ^p.Takes()
		signalFD(p.signalFD, ^stops)
		calls.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&stops)), 0, 8)
	}
	if act&Suspend != 0 {
		calls.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Signal.Value), 0, 0)
	}
	if act&Kill != 0 {
		calls.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGKILL), 0, 0)
	}
}

// inherit prepares this process to start the Go runtime as the heir. If the tree fills the process table before the
// runtime has started its threads, the runtime aborts and all leftovers survive. So if the table is nearly full,
// inherit kills processes of the tree until there is room, for up to ten seconds.
//
// It also discards pending signals, because some would kill this process as soon as the runtime unblocks them. They are
// not needed any more, because the heir stops the whole tree anyway.
//
//go:nosplit
func (p *process) inherit() {
	room := 64 // the tree can hardly fork more often in the few milliseconds before the heir has its threads
	for round := 0; round < 1000 && !hasRoom(room); round++ {
		p.killChildren()
		calls.Rest(moment)
		room = 12 // enough for the threads of the runtime
	}
	signalFD(p.signalFD, ^uint64(childEnded))
	for p.readSignal() {
	}
	// If standard error is non-blocking, the runtime calls epoll_create1(2) and aborts if no descriptor is left. In
	// that case make standard error blocking until Known is called. See release for the other two streams.
	const some = 16
	spare := calls.Call(unix.SYS_FCNTL, 2, unix.F_DUPFD_CLOEXEC, some, 0)
	calls.Close(spare)
	if flags := calls.Call(unix.SYS_FCNTL, 2, unix.F_GETFL, 0, 0); spare < 0 && flags > 0 && flags&unix.O_NONBLOCK != 0 {
		p.stderrFlags = flags
		calls.Call(unix.SYS_FCNTL, 2, unix.F_SETFL, uintptr(flags&^unix.O_NONBLOCK), 0)
	}
}

// hasRoom reports whether the kernel lets this process create n more processes.
//
//go:nosplit
func hasRoom(n int) bool {
	made := 0
	for ; made < n; made++ {
		pid := calls.Call(unix.SYS_CLONE, 0, 0, 0, 0) // the child sends no signal when it exits: see __WCLONE in wait(2)
		if pid == 0 {
			exitBy(0)
		}
		if pid < 0 {
			break
		}
	}
	for range made {
		calls.Call(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WCLONE, 0)
	}
	return made == n
}

// killChildren kills the main child's process group, if it has its own, and all children of this process except the
// inherited ones (see noteInherited). It reaps children that have exited, except the main child, whose pid must keep
// naming the group. It reports whether it may have to be called again, because there may be more children than it has
// seen. A child that has just exited, for example, may have left orphans.
//
//go:nosplit
func (p *process) killChildren() (left bool) {
	main := int(p.Main)
	exited, errno := calls.WaitID(unix.P_PID, main, unix.WEXITED|unix.WNOWAIT)
	if main != 0 && errno == 0 && !p.InJob { // gVisor would take pid 0 as any child
		calls.Call(unix.SYS_KILL, uintptr(-main), uintptr(unix.SIGKILL), 0, 0)
	}
	at, end, err := p.readChildren()
	left = err < 0
	for pid := 0; at < end; at++ { // each pid is followed by a blank
		if pid, at = calls.Number(at); at >= end { // the text was cut off within this pid or after it
			return true
		}
		if pid != 0 && (pid == main && exited == main || p.findInherited(pid) != nil) {
			continue
		}
		left = true
		// Never pass pid 0 to kill(2), because that would signal this process's own group.
		if pid != 0 && (pid == main || calls.Call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0) != pid) {
			calls.Call(unix.SYS_KILL, uintptr(pid), uintptr(unix.SIGKILL), 0, 0)
		}
	}
	return left
}

// findInherited returns the entry of an inherited child in p.inherited, or nil if pid is not an inherited child.
//
//go:nosplit
func (p *process) findInherited(pid int) *int32 {
	for i := range p.inherited {
		if int(p.inherited[i]) == pid {
			return &p.inherited[i]
		}
	}
	return nil
}

// signalFD creates a descriptor that receives a set of signals, or changes the set if fd is not -1. See signalfd(2).
//
//go:nosplit
func signalFD(fd int, set uint64) int {
	return calls.Call(unix.SYS_SIGNALFD4, uintptr(fd), uintptr(unsafe.Pointer(&set)), 8,
		unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
}
