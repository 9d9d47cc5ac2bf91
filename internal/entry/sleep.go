//go:build amd64 || arm64

package entry

import (
	"syscall"
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
	for signalled := false; ; {
		p.poll()
		// The meaning of a signal depends on the messages before it. So the loop reads the signal first and handles it last.
		// If the signal has to wait, all later signals wait too.
		signalled = signalled || p.readSignal()
		p.reap() // after SIGCHLD was read: another exit sends another one
		started := false
		for !p.hungUp() && p.receive() {
			act := p.Step(Seen{What: Said, Message: p.message})
			p.do(act)
			if act&LetGo != 0 {
				started, p.deadline = true, 0
			}
		}
		if started {
			reaper.CloseInherited(false)
			// So that its file system may be unmounted, it also leaves the working directory.
			proc.Call(unix.SYS_GETCWD, uintptr(unsafe.Pointer(&p.dir)), unsafe.Sizeof(p.dir), 0, 0)
			proc.Call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(unsafe.StringData("/\x00"))), 0, 0, 0)
			// The SIGINT of a Ctrl-C may have come before the main child was there to get it too. So the loop relays it
			// like a signal from a process, and the main child may get it twice.
			signalFD(p.signalFD, ^uint64(0))
			for signalled = signalled || p.readSignal(); signalled && p.canSay(); signalled = p.readSignal() {
				p.do(p.takeSignal(false))
			}
			p.beStoppable()
		}
		if p.Starting && !p.hungUp() && p.deadline != 0 && proc.Uptime() >= p.deadline {
			p.do(p.Step(Seen{What: Waited}))
		}
		if p.polled[2].Fd >= 0 && p.Parent.Died() {
			p.polled[2].Fd = -1
			p.do(p.Step(Seen{What: ParentEnded}))
		}
		waits := p.Main == 0 && p.Starting && !p.hungUp() // even a signal that was read
		full := signalled && !waits && !p.canSay()
		if signalled && !waits && !full {
			p.do(p.takeSignal(true))
			signalled = false
		}
		p.polled[0].Fd, p.polled[1].Events = int32(p.signalFD), unix.POLLIN
		if signalled {
			p.polled[0].Fd = -1
		}
		if full {
			p.polled[1].Events |= unix.POLLOUT
			proc.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGCONT), 0, 0) // it reads nothing while it is stopped
		}
		if !p.hungUp() {
			continue
		}
		reaped, status, _ := proc.Wait(p.inner, 0)
		seen := Seen{What: Ended, Status: uint32(status), Children: hasChildren()}
		switch {
		case reaped == p.inner:
		case proc.Uptime() < p.deadline:
			continue
		default:
			seen.What, seen.Status = TimeUp, uint32(unix.SIGKILL)
		}
		if p.Step(seen)&Exit != 0 {
			exitBy(syscall.WaitStatus(p.Status))
		}
		if !p.BeAlone {
			p.Role = Heir
		}
		return
	}
}

// poll waits for an event. A stop and continuation of this process interrupts the wait. See ppoll(2).
//
//go:nosplit
func (p *process) poll() {
	after, timeout := unix.Timespec{}, uintptr(0)
	if p.deadline != 0 {
		after = unix.NsecToTimespec(int64(max(p.deadline-proc.Uptime(), 0)))
		timeout = uintptr(unsafe.Pointer(&after))
	}
	err := proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), timeout, 0, 8, 0)
	if err == -int(unix.EINVAL) {
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

// receive takes a message from the line, with a descriptor if there is one, and records the hang-up.
//
//go:nosplit
func (p *process) receive() bool {
	into := [2]uintptr{uintptr(unsafe.Pointer(&p.message)), unsafe.Sizeof(p.message)} // struct iovec
	head := [7]uintptr{2: uintptr(unsafe.Pointer(&into)), 3: 1, 4: uintptr(unsafe.Pointer(&p.control)), 5: unsafe.Sizeof(p.control)}
	n := proc.Call(unix.SYS_RECVMSG, uintptr(p.Line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC, 0)
	if n == 0 || n == -int(unix.ECONNRESET) {
		p.polled[1].Fd = -1
		p.do(p.Step(Seen{What: HungUp}))
	}
	if n > 0 && head[5] >= 20 { // a cmsghdr, and one descriptor
		proc.Close(p.Report)
		p.Report = int(int32(p.control[2]))
	}
	return n == int(unsafe.Sizeof(p.message))
}

//go:nosplit
func (p *process) hungUp() bool { return p.polled[1].Fd < 0 }

// canSay reports whether the line takes a message now. If signals come faster than the inner fini reads messages, the
// line is full: then signals have to stay pending, because a message that doesn't fit is lost.
//
//go:nosplit
func (p *process) canSay() bool {
	line, atOnce := unix.PollFd{Fd: int32(p.Line), Events: unix.POLLOUT}, unix.Timespec{}
	return proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&line)), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0) != 0
}

// readSignal reads a signal. In a job the inner fini drops a signal whose sender belongs to the tree. But such a sender,
// as in (kill 0), has often exited by then. So readSignal at once asks for its parent, which a zombie still has.
//
//go:nosplit
func (p *process) readSignal() bool {
	if proc.Call(unix.SYS_READ, uintptr(p.signalFD), uintptr(unsafe.Pointer(&p.signal)), unsafe.Sizeof(p.signal), 0) <= 0 {
		return false
	}
	p.senderParent = 0
	if p.Job&InJob != 0 && p.signal.Code <= 0 && p.signal.Pid != 0 {
		p.senderParent = proc.ParentNow(int(p.signal.Pid), &p.text, true)
	}
	return true
}

// takeSignal returns the acts for the signal that was read. If asKernel is false, a signal of the kernel, such as the SIGINT
// of Ctrl-C, counts as sent by a process, because the main child may not have got it.
//
//go:nosplit
func (p *process) takeSignal(asKernel bool) Act {
	if p.signal.Signo == ParentSignal && p.Parent.FD < 0 && (p.Parent.Pid != 0 || p.signal.Pid == 0) {
		if p.Parent.Died() { // else only a thread of the parent process has exited
			return p.Step(Seen{What: ParentEnded})
		}
		return 0
	}
	sender := int32(0)
	if p.signal.Code <= 0 {
		sender = int32(p.signal.Pid)
	} else if asKernel {
		sender = Kernel
	}
	act := p.Step(Seen{What: Signalled, Signal: p.signal.Signo, Sender: int(sender)})
	if act&Relay != 0 {
		p.say(Signal, p.signal.Signo, sender)
	}
	return act
}

// do carries out the acts that do not end the sleep, except LetGo and Relay: sleep carries them out, because the linker
// grants no stack for them here.
//
//go:nosplit
func (p *process) do(act Act) {
	if act&(Hold|AwaitEnd) != 0 { // after the line has hung up, only a tracer delays the end of a process
		p.deadline = proc.Uptime() + time.Second
	}
	if act&Listen != 0 {
		p.deadline = 0
	}
	if act&TellParent != 0 && p.Parent.FD < 0 {
		p.say(ParentDied, 0, 0)
		proc.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.Parent.Kept), 0, 0) // 0, if there is none, is no signal
	}
	if act&Continue != 0 {
		proc.Call(unix.SYS_KILL, uintptr(p.inner), uintptr(unix.SIGCONT), 0, 0) // if it is not stopped, it passes over the signal
	}
	if act&ContinueJob != 0 {
		// The SIGTSTP may still be on its way to other members of the group, and SIGCONT must not overtake it. A signal
		// for a group is sent under a lock that setpgid(2) waits for, whatever its arguments are.
		const nobody = 1 << 30 // no pid is that large
		proc.Call(unix.SYS_SETPGID, nobody, nobody, 0, 0)
		proc.Call(unix.SYS_KILL, 0, uintptr(unix.SIGCONT), 0, 0)
	}
	if act&Suspend != 0 {
		p.beStoppable()
		proc.Call(unix.SYS_KILL, uintptr(p.Self), uintptr(p.signal.Signo), 0, 0)
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
	const threads = 12 // that the runtime makes, and some more
	room := 64         // the tree can hardly fork that often in the few milliseconds until the heir has its threads
	for round := 0; round < 1000 && !hasRoom(room); round++ {
		p.killChildren()
		proc.Rest(moment)
		room = threads
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

// childEnded is the set that holds only SIGCHLD.
const childEnded = 1 << (unix.SIGCHLD - 1)

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
		proc.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&stops)), 0, 8)
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
	if main != 0 && errno == 0 && p.Job&InJob == 0 { // in gVisor pid 0 is any child
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
		if left = true; pid == 0 { // kill(2) would take it for this process's group
			continue
		}
		if pid == main || proc.Call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0) != pid {
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
