//go:build amd64 || arm64

package reaper

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A pair is one process until entry forks. The child goes on to the Go runtime and is the inner fini; the
// parent is the outer one, and sleeps before it has a runtime, in sleep: in nearly every life all it has to
// do is to pass signals on and to end as the inner one does. Whatever else happens wakes it: it goes on to
// the runtime then, as if it had been there all the time.
//
// What runs before the runtime has no stack that grows, no heap and no thread of the runtime's: these
// functions are nosplit, keep all in local variables and in forkedAtEntry, and call nothing but the kernel.

// entry calls them.
var _, _ = fork, sleep

// notForPairs are flags at which fini is no pair, or one of another kind.
const notForPairs = "--no-shield\x00--isolate\x00--pause\x00--inner\x00--report\x00--bind\x00"

// fork is called by entry, with the words of the command line. It makes a pair of this process, if nothing
// speaks for another kind of pair, or for none.
//
//go:nosplit
func fork(argv *[1 << 20]*byte) {
	f := &forkedAtEntry
	pid, parent := call(unix.SYS_GETPID, 0, 0, 0, 0), call(unix.SYS_GETPPID, 0, 0, 0, 0)
	if pid == 1 || parent == 0 || atEntry.closed != 0 || atEntry.ignored&(1<<(unix.SIGCHLD-1)) != 0 || !mayPair(argv) {
		return
	}
	// A child from before the exec is watched by who can tell it from others.
	if call(unix.SYS_WAITID, unix.P_ALL, 0, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL) != -int(unix.ECHILD) {
		return
	}
	if call(unix.SYS_CLOSE_RANGE, 1<<32-1, 1<<32-1, 0, 0) != 0 {
		return // it could not let go
	}
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	line, word, inner, innerFD := [2]int32{-1, -1}, [2]int32{-1, -1}, -1, int32(-1)
	f.Outer, f.Parent = pid, parent
	f.ParentFD = call(unix.SYS_PIDFD_OPEN, uintptr(parent), 0, 0, 0)
	// Until the inner one is in a process group of its own, a signal for this one's reaches both.
	f.signalFD = signalFD(-1, childEnded)
	if f.ParentFD >= 0 && f.signalFD >= 0 &&
		call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, kind, 0, uintptr(unsafe.Pointer(&line))) == 0 &&
		call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, kind, 0, uintptr(unsafe.Pointer(&word))) == 0 &&
		call(unix.SYS_GETPPID, 0, 0, 0, 0) == parent && call(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0) == 0 {
		// The inner one needs some more.
		spare := call(unix.SYS_FCNTL, uintptr(f.signalFD), unix.F_DUPFD_CLOEXEC, uintptr(word[1])+4, 0)
		closeFD(spare)
		begin := byte(1) // nothing has to come before the command: see Lifeline.Begin
		call(unix.SYS_WRITE, uintptr(line[1]), uintptr(unsafe.Pointer(&begin)), 1, 0)
		if spare >= 0 {
			inner = call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_PIDFD, 0, uintptr(unsafe.Pointer(&innerFD)), 0)
		}
	}
	f.Line, f.Word = Lifeline{int(line[0]), int(line[1])}, Word{Read: int(word[0]), Write: int(word[1])}
	if inner == 0 {
		closeFD(f.signalFD)
		// Until it catches signals, nobody could continue it if one stopped it: it ends with the outer one.
		if call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0) != 0 {
			f.standDown()
		}
		switch call(unix.SYS_GETPPID, 0, 0, 0, 0) {
		case pid:
		case 0:
			const says = "fini: children are in another PID namespace, in which fini has to be too: use unshare --fork\n"
			call(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(unsafe.StringData(says))), uintptr(len(says)), 0)
			exit(125)
		default:
			exit(1)
		}
		f.Inner, f.IsInner = call(unix.SYS_GETPID, 0, 0, 0, 0), true
		closeFD(f.Line.Write)
		closeFD(f.Word.Read)
		return
	}
	closeFD(f.Line.Read)
	closeFD(f.Word.Write)
	if f.Inner, f.InnerFD = max(inner, 0), int(innerFD); inner < 0 {
		f.undo()
	}
}

// undo closes what the outer one has.
//
//go:nosplit
func (f *Fork) undo() {
	f.Inner = 0
	closeFD(f.signalFD)
	closeFD(f.Line.Write)
	closeFD(f.Word.Read)
	closeFD(f.ParentFD)
	closeFD(f.InnerFD)
}

// mayPair looks for notForPairs in the flags. One that it does not see costs a fork.
//
//go:nosplit
func mayPair(argv *[1 << 20]*byte) bool {
	for i := 1; argv[i] != nil && *argv[i] == '-'; i++ {
		matches, n := true, 0
		for k := range len(notForPairs) {
			c := notForPairs[k]
			switch {
			case c != 0 && matches:
				matches = *(*byte)(unsafe.Add(unsafe.Pointer(argv[i]), n)) == c
				n++
			case c == 0 && matches:
				return false
			case c == 0:
				matches, n = true, 0
			}
		}
	}
	return true
}

// sleep is called by entry after fork. It is the outer fini's life until that is woken, and nothing to others.
//
//go:nosplit
func sleep() {
	f := &forkedAtEntry
	if f.Inner == 0 || f.IsInner {
		return
	}
	f.polled[0], f.polled[1] = pollFD{fd: int32(f.signalFD), events: unix.POLLIN}, pollFD{fd: int32(f.InnerFD), events: unix.POLLIN}
	f.polled[2], f.polled[3] = pollFD{fd: int32(f.Word.Read), events: unix.POLLIN}, pollFD{fd: int32(f.ParentFD), events: unix.POLLIN}
	started := false
	for {
		// It is interrupted by what stops and continues this process.
		call6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&f.polled)), uintptr(len(f.polled)), 0, 0, 8, 0)
		n := call6(unix.SYS_RECVFROM, uintptr(f.Word.Read), uintptr(unsafe.Pointer(&f.told)), unsafe.Sizeof(f.told), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		if f.polled[2].revents != 0 {
			f.polled[2] = pollFD{fd: -1}
		}
		if n >= 4 && !started && f.told[0] != standDown {
			started = true
			f.letGo()
			f.takeAll(f.told[0]&inJob != 0)
		}
		if f.polled[1].revents != 0 {
			f.over(n)
			return
		}
		if f.polled[3].revents != 0 {
			f.polled[3], f.reason = pollFD{fd: -1}, true
		}
		if f.polled[0].revents != 0 && f.receive() {
			f.relay()
		}
		if f.reason {
			f.letGoOn()
		}
	}
}

// drain takes what signals there are: the runtime would end this process by some, and all is stopped now, whatever
// else asks for that.
//
//go:nosplit
func (f *Fork) drain() {
	signalFD(f.signalFD, ^uint64(childEnded))
	for f.receive() {
	}
	closeFD(f.signalFD)
}

// receive takes a signal, if there is one.
//
//go:nosplit
func (f *Fork) receive() bool {
	return call(unix.SYS_READ, uintptr(f.signalFD), uintptr(unsafe.Pointer(&f.signal)), unsafe.Sizeof(f.signal), 0) > 0
}

// letGoOn continues the inner one, if it is stopped.
//
//go:nosplit
func (f *Fork) letGoOn() {
	f.info.pid = 0
	call6(unix.SYS_WAITID, unix.P_PID, uintptr(f.Inner), uintptr(unsafe.Pointer(&f.info)), unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if f.info.pid != 0 {
		call(unix.SYS_KILL, uintptr(f.Inner), uintptr(unix.SIGCONT), 0, 0)
	}
}

// takeAll makes this process receive all signals but, in a job, those that stop it with the job. What has come until
// now may have come before the command was there to have it too, as it has the terminal's keys: the inner one is told
// that it is early.
//
//go:nosplit
func (f *Fork) takeAll(inJob bool) {
	all := ^uint64(0)
	if inJob {
		stops := uint64(1)<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
		all &^= stops
		call(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&f.pending)), 8, 0, 0)
		for sig := uint32(unix.SIGTSTP); sig <= uint32(unix.SIGTTOU); sig++ {
			if f.pending>>(sig-1)&1 != 0 {
				f.signal = unix.SignalfdSiginfo{Signo: sig, Code: relayedEarly}
				f.relay()
			}
		}
		call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&stops)), 0, 8)
	}
	signalFD(f.signalFD, all)
	for f.receive() {
		if f.signal.Code > 0 {
			f.signal.Code = relayedEarly
		}
		f.relay()
	}
}

// over ends this process, as the inner one has ended, of whose word n bytes have come. It returns if there is
// more to do.
//
//go:nosplit
func (f *Fork) over(n int) {
	f.info.pid = 0 // it stays so if a tracer keeps the inner one
	call6(unix.SYS_WAITID, unix.P_PID, uintptr(f.Inner), uintptr(unsafe.Pointer(&f.info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	const exited = 1 // CLD_EXITED
	plain := f.info.pid != 0 && f.info.code == exited
	switch {
	case n == 4 && f.told[0] == standDown:
		f.reap()
		f.undo()
		return
	case n < 4 && plain: // it has started nothing
		f.reap()
		exit(int(f.info.status))
	case n >= 8 && f.told[1]&stays == 0:
		f.reap()
		f.end(f.told[1])
	}
	f.makeRoom()
	f.drain()
}

// end ends the outer fini as the command has ended, by exit(2) or the same signal, without a core dump.
//
//go:nosplit
func (f *Fork) end(status uint32) {
	sig := uintptr(status & 0x7f)
	if sig == 0 {
		exit(int(status>>8) & 0xff)
	}
	byDefault, set, noCore := [4]uint64{}, uint64(1)<<(sig-1), unix.Rlimit{}
	call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0)
	call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&noCore)), 0)
	call(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8)
	call(unix.SYS_KILL, uintptr(f.Outer), sig, 0, 0)
	call(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&set)), 0, 8)
	exit(128 + int(sig))
}

// makeRoom is for an outer one that has to do the work of an inner one which was killed. If the tree fills the
// process table before it has its threads, the runtime aborts, and leaves all that runs. So where that is not far from
// full, the command's process group and the children, which may fork on SIGTERM, are stopped until it has them: see
// Resume. If there is no room for a second they are killed, until there is, or ten seconds are over.
//
//go:nosplit
func (f *Fork) makeRoom() {
	if f.hasRoom(len(f.probes)) {
		return // to fill this, the tree would have to fork as often in a few milliseconds
	}
	f.stopped = true
	for round := 0; round < 1000; round++ {
		f.signalChildren(unix.SIGSTOP)
		if f.hasRoom(threads) {
			return
		}
		sig := unix.SIGCONT
		if round > 100 {
			sig = unix.SIGKILL
		}
		f.signalChildren(sig)
		moment := unix.Timespec{Nsec: 10e6}
		call6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&moment)), 0, 8, 0)
	}
}

// threads are as many as the runtime makes, and some more.
const threads = 12

// hasRoom tries whether there may be n processes more.
//
//go:nosplit
func (f *Fork) hasRoom(n int) bool {
	has := true
	for i := range n {
		f.probes[i] = int32(call(unix.SYS_CLONE, 0, 0, 0, 0)) // without a signal at its end
		if f.probes[i] == 0 {
			exit(0)
		}
	}
	for _, pid := range f.probes[:n] {
		if pid < 0 {
			has = false
		} else {
			call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WALL, 0)
		}
	}
	return has
}

// childEnded is the set of SIGCHLD alone.
const childEnded = 1 << (unix.SIGCHLD - 1)

// reap reaps the inner one, which the process above this one would inherit.
//
//go:nosplit
func (f *Fork) reap() { call(unix.SYS_WAIT4, uintptr(f.Inner), 0, unix.WNOHANG, 0) }

// standDown is StandDown.
//
//go:nosplit
func (f *Fork) standDown() {
	f.told[0] = standDown
	call(unix.SYS_WRITE, uintptr(f.Word.Write), uintptr(unsafe.Pointer(&f.told)), 4, 0)
	exit(0)
}

// The codes of relayed signals, as in package signals.
const relayed, relayedKernel, relayedEarly = -1 << 24, -101, -102

// relay is signals.Relay, but for SIGCHLD.
//
//go:nosplit
func (f *Fork) relay() {
	const asks = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGTERM-1)
	if f.signal.Signo == uint32(unix.SIGCHLD) {
		return
	}
	f.reason = f.reason || (asks&^atEntry.ignored)>>(f.signal.Signo-1)&1 != 0
	kernel := f.signal.Code > 0
	f.info = siginfo{signo: int32(f.signal.Signo), code: relayedKernel}
	switch {
	case f.signal.Code == relayedEarly:
		f.info.code = relayedEarly
	case !kernel:
		f.info.code, f.info.pid = relayed-int32(f.signal.Pid), int32(f.signal.Pid)
	}
	err := call(unix.SYS_RT_SIGQUEUEINFO, uintptr(f.Inner), uintptr(f.signal.Signo), uintptr(unsafe.Pointer(&f.info)), 0)
	if err != 0 && err != -int(unix.ESRCH) && !kernel {
		call(unix.SYS_KILL, uintptr(f.Inner), uintptr(f.signal.Signo), 0, 0)
	}
}

// letGo is what CloseInherited and chdir(2) do.
//
//go:nosplit
func (f *Fork) letGo() {
	f.release(0, "/proc/self/fd/0\x00")
	f.release(1, "/proc/self/fd/1\x00")
	last := max(f.ParentFD, f.signalFD, f.Word.Read, f.Line.Write, f.InnerFD)
	for fd := 3; fd < last; fd++ {
		if fd != f.ParentFD && fd != f.signalFD && fd != f.Word.Read && fd != f.Line.Write && fd != f.InnerFD {
			closeFD(fd)
		}
	}
	call(unix.SYS_GETCWD, uintptr(unsafe.Pointer(&f.dir)), unsafe.Sizeof(f.dir), 0, 0)
	root := [2]byte{'/'}
	call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(&root)), 0, 0, 0)
	call(unix.SYS_CLOSE_RANGE, uintptr(last+1), 1<<32-1, 0, 0)
}

// release is as in streams.go; where that can't be, something else is in the place of fd.
//
//go:nosplit
func (f *Fork) release(fd uintptr, link string) {
	path := call(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(unsafe.StringData(link))), unix.O_PATH|unix.O_CLOEXEC, 0)
	if path < 0 {
		call(unix.SYS_DUP3, uintptr(f.ParentFD), fd, unix.O_CLOEXEC, 0)
		return
	}
	call(unix.SYS_DUP3, uintptr(path), fd, unix.O_CLOEXEC, 0)
	closeFD(path)
}

// signalFD makes a descriptor by which the signals of a set are received, or changes its set. See signalfd(2).
//
//go:nosplit
func signalFD(fd int, set uint64) int {
	return call(unix.SYS_SIGNALFD4, uintptr(fd), uintptr(unsafe.Pointer(&set)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
}

//go:nosplit
func closeFD(fd int) { call(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0) }

//go:nosplit
func exit(status int) {
	for {
		call(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0, 0)
	}
}
