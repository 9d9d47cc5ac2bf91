package reaper

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Fork is a pair that entry has made of one process: see sleeper.go.
type Fork struct {
	Outer, Inner int  // the pids
	IsInner      bool // this process is the inner one; else the outer one, which has been woken

	InnerFD          int // its pidfd, of the inner one
	Parent, ParentFD int // the outer one's parent process, and its pidfd

	Line Lifeline
	Word Word

	// what sleep lets the kernel write to: there is no room for it on the stack
	signalFD int
	polled   [4]pollFD
	signal   unix.SignalfdSiginfo
	info     siginfo
	told     [3]uint32
	pending  uint64
	reason   bool // to stop, or for the inner one to end: it can't act on that while it is stopped, which may be told later
	stopped  bool // see makeRoom
	probes   [128]int32
	children [4096]byte
	dir      [4096]byte // the working directory, with a 0 behind it
}

// pollFD is a unix.PollFd that waits for input.
type pollFD struct {
	fd              int32
	events, revents int16
}

// siginfo is as the kernel has it: see sigaction(2).
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status      int32
	_                     [25]int32
}

// forkedAtEntry is what entry has done.
var forkedAtEntry Fork

// ForkedAtEntry returns what entry has done: nil if this is no half of a pair that it has made.
func ForkedAtEntry() *Fork {
	if forkedAtEntry.Inner == 0 {
		return nil
	}
	return &forkedAtEntry
}

// standDown, in place of a pid, is what an inner one says that leaves all to the outer one.
const standDown = 1<<32 - 1

// StandDown ends this process, the inner one, which has done nothing yet: the outer one is woken, and begins
// anew as if there had been no fork.
func (f *Fork) StandDown() {
	_, _ = unix.Write(f.Word.Write, binary.NativeEndian.AppendUint32(nil, standDown))
	os.Exit(0)
}

// LeaveGroup gives the inner one a process group of its own. What was sent to the group until then has
// reached both, and counts for the outer one.
func (f *Fork) LeaveGroup() error {
	if err := unix.Setpgid(0, 0); err != nil {
		return err
	}
	all, now := ^uint64(0), unix.Timespec{}
	for call(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&all)), 0, uintptr(unsafe.Pointer(&now)), 8) > 0 {
	}
	return nil
}

// ReturnToDir goes to the working directory that the outer one has left in its sleep.
func (f *Fork) ReturnToDir() { call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(&f.dir)), 0, 0, 0) }

// Resume continues what makeRoom has stopped, when the woken outer one has all its threads.
func (f *Fork) Resume() {
	if f.stopped {
		f.signalChildren(unix.SIGCONT)
	}
}

// signalChildren sends a signal to the command's process group, if it leads one, and to the children that /proc lists, as
// far as there is room for the list; who has ended is reaped, but for the inner one, and the command, by whose pid the
// group is known.
//
//go:nosplit
func (f *Fork) signalChildren(sig unix.Signal) {
	main := int(f.told[0] &^ (unbound | inJob)) // 0 if there is none yet
	isChild := main != 0 && call(unix.SYS_WAITID, unix.P_PID, uintptr(main), 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT) == 0
	if isChild && f.told[0]&inJob == 0 {
		call(unix.SYS_KILL, uintptr(-main), uintptr(sig), 0, 0)
	}
	fd := call(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(unsafe.StringData("/proc/thread-self/children\x00"))), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	n := call(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&f.children)), unsafe.Sizeof(f.children), 0)
	call(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0)
	pid := 0
	for i := 0; i < n && i < len(f.children); i++ {
		if c := f.children[i]; c != ' ' {
			pid = 10*pid + int(c-'0')
			continue
		}
		if pid == main || pid != f.Inner && call(unix.SYS_WAIT4, uintptr(pid), 0, unix.WNOHANG|unix.WALL, 0) == 0 {
			call(unix.SYS_KILL, uintptr(pid), uintptr(sig), 0, 0)
		}
		pid = 0
	}
}

const atCwd = ^uintptr(99) // AT_FDCWD

// call is a system call: it returns what the kernel does, a negative errno if that refuses.
//
//go:nosplit
func call(number, a, b, c, d uintptr) int {
	r, _, errno := syscall.RawSyscall6(number, a, b, c, d, 0, 0)
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}

// call6 is one with more arguments.
//
//go:nosplit
func call6(number, a, b, c, d, e, f uintptr) int {
	r, _, errno := syscall.RawSyscall6(number, a, b, c, d, e, f)
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}
