//go:build amd64 || arm64

package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

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
	// All signals wait that are not in this set, until the main child is started.
	wanted := childEnded | terminating&^p.Ignored
	if p.Parent.FD < 0 {
		p.Parent.TakeSlot(ParentSignal)
		wanted |= 1 << (ParentSignal - 1)
	}
	// Until the inner fini has a process group of its own, a signal for the outer fini's group reaches both processes.
	p.signalFD = signalFD(-1, wanted)
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
	ends := [2]int32{-1, -1}
	err = proc.Call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, sockets, 0, uintptr(unsafe.Pointer(&ends)))
	line, inner := int(ends[0]), int(ends[1])
	// The inner fini needs some more descriptors.
	spare := proc.Call(unix.SYS_FCNTL, uintptr(p.signalFD), unix.F_DUPFD_CLOEXEC, uintptr(inner)+4, 0)
	proc.Close(spare)
	if spare == -int(unix.EINVAL) { // the number is beyond the limit
		spare = -int(unix.EMFILE)
	}
	if err = min(p.signalFD, err, spare); err >= 0 {
		err = p.tryCalls(line)
	}
	if err >= 0 {
		err = proc.Call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	}
	p.inner, p.Line = err, line
	switch {
	case err == 0:
		p.Role, p.Line, inner = Inner, inner, line
		proc.Close(p.signalFD)
		// Until the inner fini catches signals, a stopped inner fini would stay stopped if the outer fini were killed. So
		// until then the kernel kills it with the outer fini, even before it can see the hang-up. See OutliveOuter.
		proc.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
		proc.Call(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(InnerName+"\x00"))), 0, 0)
	case err < 0:
		proc.Close(line)
		p.Line = -1
	}
	proc.Close(inner)
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
		proc.Call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polled)), uintptr(len(p.polled)), uintptr(unsafe.Pointer(&atOnce)), 0, 8, 0),
		proc.Call(unix.SYS_KILL, uintptr(p.Self), 0, 0, 0),
		proc.Call6(unix.SYS_SENDTO, uintptr(line), 0, 0, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0),
		proc.Call(unix.SYS_READ, uintptr(line), 0, 0, 0),
	)
	if n := proc.Call(unix.SYS_RECVMSG, uintptr(line), uintptr(unsafe.Pointer(&head)), unix.MSG_DONTWAIT, 0); n < 0 && n != -int(unix.EAGAIN) {
		return n
	}
	return min(refused, 0)
}

// say sends a message.
//
//go:nosplit
func (p *process) say(kind Kind, value uint32, sender int32) {
	p.message = Message{Kind: kind, Value: value, Sender: sender, Parent: int32(p.senderParent)}
	proc.Call6(unix.SYS_SENDTO, uintptr(p.Line), uintptr(unsafe.Pointer(&p.message)), unsafe.Sizeof(p.message), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
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
		pid := 0
		pid, at = proc.Number(at)
		p.earlier[i] = int32(pid)
		at++ // a blank follows each pid
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
