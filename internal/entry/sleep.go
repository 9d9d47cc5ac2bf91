//go:build amd64 || arm64

package entry

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/reaper"
)

// sleep is the outer fini's main loop. It returns if this process is to start the runtime. Mostly it does not return,
// because the outer fini exits as the main child did.
//
//go:nosplit
func (p *process) sleep() {
	for act := Act(0); act&StartRuntime == 0; {
		p.look(p.Next())
		act = p.Step(&p.seen)
		if act&LetGo != 0 {
			reaper.CloseInherited(false)
			// So that its file system may be unmounted, it also leaves the working directory.
			proc.Call(unix.SYS_GETCWD, uintptr(unsafe.Pointer(&p.dir)), unsafe.Sizeof(p.dir), 0, 0)
			proc.Call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(unsafe.StringData("/\x00"))), 0, 0, 0)
		}
		if act&Relay != 0 {
			p.say(Signal)
			if p.Asked == 0 && p.Signal.Value == uint32(unix.SIGTERM) {
				p.Asked = proc.Uptime()
			}
		}
		p.do(act)
		if act&Exit != 0 {
			exitBy(p.Status)
		}
	}
}

// look looks for one kind of event.
//
//go:nosplit
func (p *process) look(what What) {
	e, found := &p.seen, true
	switch e.What = what; what {
	case Nothing:
		p.poll()
	case Caught:
		found = p.readSignal()
		p.reap() // after SIGCHLD was read: another exit sends another one
	case Said:
		found = p.receive()
	case Waited:
		found = proc.Uptime() >= p.deadline
	case ParentEnded:
		found = p.Parent.Died()
	case Room:
		// If signals come faster than the inner fini reads messages, the line is full: then signals have to stay pending,
		// because a message that doesn't fit is lost.
		atOnce := unix.Timespec{}
		p.polled[3] = unix.PollFd{Fd: int32(p.Line), Events: unix.POLLOUT}
		found = proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled[3])), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0) != 0
		e.ParentDied = p.Signal.Value == ParentSignal && p.Parent.Died()
	case Ended:
		reaped, status, _ := proc.Wait(p.inner, 0)
		if e.Value, e.Children = uint32(status), hasChildren(); reaped != p.inner {
			e.Value, found = uint32(unix.SIGKILL), proc.Uptime() >= p.deadline
		}
	}
	if !found {
		e.What = Nothing
	}
}

// poll waits for an event. A stop and continuation of this process interrupts the wait. See ppoll(2).
//
//go:nosplit
func (p *process) poll() {
	for i, what := range [...]What{Caught, Said, ParentEnded, Room} {
		if p.Heeds(what) != (p.polled[i].Fd >= 0) {
			p.polled[i].Fd = ^p.polled[i].Fd // it is passed over while it is negative
		}
	}
	after, timeout := unix.Timespec{}, uintptr(0)
	if p.IsBounded() {
		after = unix.NsecToTimespec(int64(max(p.deadline-proc.Uptime(), 0)))
		timeout = uintptr(unsafe.Pointer(&after))
	}
	if proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), timeout, 0, 8, 0) == -int(unix.EINVAL) {
		// Another process has lowered the limit of descriptors since (RLIMIT_NOFILE), perhaps to 0. The loop looks at
		// everything without waiting.
		proc.Rest(moment)
	}
}

// reap reaps each child that has exited, except the inner fini and the main child. Such a child was there before this
// process became fini, or is an orphan of one that was. Another process may get its pid, so the pid no longer counts as
// an earlier child's.
//
//go:nosplit
func (p *process) reap() {
	for {
		pid, _, _ := proc.WaitID(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
		if pid == 0 || pid == p.inner || pid == int(p.Main) {
			return
		}
		proc.WaitID(unix.P_PID, pid, unix.WEXITED)
		if noted := p.findEarlier(pid); noted != nil {
			*noted = 0
		}
	}
}

// hasChildren reports whether this process may have any children.
//
//go:nosplit
func hasChildren() bool {
	_, _, errno := proc.WaitID(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	return errno != unix.ECHILD
}

// closeReports closes the descriptors that receive has taken.
//
//go:nosplit
func (p *process) closeReports() {
	for i := range p.Reports {
		proc.Close(p.Reports[i])
		p.Reports[i] = -1
	}
}

// receive takes a message from the line, with descriptors if there are any, or the hang-up.
//
//go:nosplit
func (p *process) receive() bool {
	into := [2]uintptr{uintptr(unsafe.Pointer(&p.seen.Message)), unsafe.Sizeof(p.seen.Message)} // struct iovec
	head := [7]uintptr{2: uintptr(unsafe.Pointer(&into)), 3: 1, 4: uintptr(unsafe.Pointer(&p.control)), 5: unsafe.Sizeof(p.control)}
	n := proc.Call(unix.SYS_RECVMSG, uintptr(p.Line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC, 0)
	if n > 0 && head[5] > 16 { // a cmsghdr, and descriptors
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

// readSignal reads a signal. In a job the inner fini drops a signal whose sender belongs to the tree. But such a sender,
// as in (kill 0), has often exited by then. So readSignal at once asks for its parent, which a zombie still has.
//
//go:nosplit
func (p *process) readSignal() bool {
	if proc.Call(unix.SYS_READ, uintptr(p.signalFD), uintptr(unsafe.Pointer(&p.signal)), unsafe.Sizeof(p.signal), 0) <= 0 {
		return false
	}
	p.seen.Message = Message{Value: p.signal.Signo, Sender: Kernel}
	if p.signal.Code <= 0 {
		p.seen.Sender = int32(p.signal.Pid)
	}
	if p.Job != 0 && p.seen.Sender > 0 {
		p.seen.Parent = int32(proc.ParentNow(int(p.signal.Pid), &p.text, true))
	}
	return true
}

// do carries out the acts that do not end the sleep, except LetGo and Relay: sleep carries them out, because the linker
// grants no stack for them here.
//
//go:nosplit
func (p *process) do(act Act) {
	if act&Bound != 0 { // after the line has hung up, only a tracer delays the end of a process
		p.deadline = proc.Uptime() + time.Second
	}
	if act&TellParent != 0 {
		p.say(ParentDied)
		proc.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Parent.Kept), 0, 0) // 0, if there is none, is no signal
	}
	if act&Continue != 0 {
		proc.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGCONT), 0, 0) // if it is not stopped, it passes over the signal
	}
	if act&(LetGo|BeStoppable) != 0 {
		stops := ^p.Takes()
		signalFD(p.signalFD, ^stops)
		proc.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&stops)), 0, 8)
	}
	if act&Suspend != 0 {
		proc.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Signal.Value), 0, 0)
	}
	if act&Kill != 0 {
		proc.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGKILL), 0, 0)
	}
}

// inherit prepares for the runtime. If the tree fills the process table before the heir has its threads, the runtime aborts,
// and all leftovers survive. So if the table is nearly full, inherit kills the tree's processes until there is room, for
// about ten seconds at most.
//
// Some of the pending signals would kill this process once the runtime starts. inherit
// discards them, because the heir now stops the whole tree, whatever the signals ask for.
//
//go:nosplit
func (p *process) inherit() {
	room := 64 // the tree can hardly fork that often in the few milliseconds until the heir has its threads
	for round := 0; round < 1000 && !hasRoom(room); round++ {
		p.killChildren()
		proc.Rest(moment)
		room = 12 // for the threads that the runtime makes, and some more
	}
	signalFD(p.signalFD, ^uint64(childEnded))
	for p.readSignal() {
	}
	// If standard error is non-blocking, the runtime sets up epoll(7), and aborts if there are too few descriptors. So the
	// flag is off for a moment then: see Known. The other streams are blocking: see release.
	const some = 16
	spare := proc.Call(unix.SYS_FCNTL, 2, unix.F_DUPFD_CLOEXEC, some, 0)
	proc.Close(spare)
	if flags := proc.Call(unix.SYS_FCNTL, 2, unix.F_GETFL, 0, 0); spare < 0 && flags > 0 && flags&unix.O_NONBLOCK != 0 {
		p.stderrFlags = flags
		proc.Call(unix.SYS_FCNTL, 2, unix.F_SETFL, uintptr(flags&^unix.O_NONBLOCK), 0)
	}
}

// hasRoom tests whether the kernel allows n more processes.
//
//go:nosplit
func hasRoom(n int) bool {
	made := 0
	for ; made < n; made++ {
		pid := proc.Call(unix.SYS_CLONE, 0, 0, 0, 0) // a clone that sends no signal when it ends: see __WCLONE in wait(2)
		if pid == 0 {
			exitBy(0)
		}
		if pid < 0 {
			break
		}
	}
	for range made {
		proc.Call(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WCLONE, 0)
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
	exited, _, errno := proc.WaitID(unix.P_PID, main, unix.WEXITED|unix.WNOWAIT)
	if main != 0 && errno == 0 && p.Job == 0 { // in gVisor pid 0 is any child
		proc.Call(unix.SYS_KILL, uintptr(-main), uintptr(unix.SIGKILL), 0, 0)
	}
	at, end, err := p.readChildren()
	left = err < 0
	for pid := 0; at < end; at++ { // a blank follows each pid
		if pid, at = proc.Number(at); at >= end { // the room ends within a pid, or behind it
			return true
		}
		if pid != 0 && (pid == main && exited == main || p.findEarlier(pid) != nil) {
			continue
		}
		left = true
		// kill(2) would take 0 for this process's group.
		if pid != 0 && (pid == main || proc.Call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0) != pid) {
			proc.Call(unix.SYS_KILL, uintptr(pid), uintptr(unix.SIGKILL), 0, 0)
		}
	}
	return left
}

// findEarlier returns where an earlier child is noted, nil if the pid is of no such child.
//
//go:nosplit
func (p *process) findEarlier(pid int) *int32 {
	for i := range p.earlier {
		if int(p.earlier[i]) == pid {
			return &p.earlier[i]
		}
	}
	return nil
}

// signalFD makes a descriptor that receives the signals of a set, or changes the set of a descriptor. See signalfd(2).
//
//go:nosplit
func signalFD(fd int, set uint64) int {
	return proc.Call(unix.SYS_SIGNALFD4, uintptr(fd), uintptr(unsafe.Pointer(&set)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
}
