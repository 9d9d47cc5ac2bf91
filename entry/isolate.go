//go:build amd64 || arm64

package entry

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// An isolated inner fini is the init of a PID namespace: when it ends in any way, the kernel kills all other processes in
// the namespace. See pid_namespaces(7). It has a mount namespace too, for a /proc that shows these processes.
//
// If fini may not make these two namespaces, it makes them in a user namespace, which it owns. In the user namespace,
// fini's user and group are the only ids, and keep their numbers. See user_namespaces(7). There fini has capabilities until
// it has mounted /proc: see Isolate in package pair.

// prepareIsolation records the facts that an isolated inner fini can't find out, and returns the flags of clone(2).
//
//go:nosplit
func (p *process) prepareIsolation(line int) (flags uintptr) {
	p.proc = high(call(unix.SYS_OPENAT, atCwd, address("/proc\x00"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	// A process in a PID namespace can't signal a process outside. If the outer fini is stopped with its job, a message
	// from the inner fini continues it: the kernel sends the signal. See F_SETSIG in fcntl(2).
	call(unix.SYS_FCNTL, uintptr(line), unix.F_SETSIG, uintptr(unix.SIGCONT), 0)
	call(unix.SYS_FCNTL, uintptr(line), unix.F_SETOWN, uintptr(p.Self), 0)
	call(unix.SYS_FCNTL, uintptr(line), unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC, 0)
	var head [2]uint32
	var data [6]uint32
	head[0] = unix.LINUX_CAPABILITY_VERSION_3
	call(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data)), 0, 0)
	if p.user.Is = data[0]&(1<<unix.CAP_SYS_ADMIN) == 0; !p.user.Is {
		return unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	p.user.UID, p.user.GID = call(unix.SYS_GETEUID, 0, 0, 0, 0), call(unix.SYS_GETEGID, 0, 0, 0, 0)
	for n := uintptr(0); n < 64; n++ {
		if call(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, n, 0, 0) == 0 {
			p.user.Lacks |= 1 << n
		}
	}
	return unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUSER
}

// openBound opens the pidfd of a process of --bind for the next inner fini, and keeps it, or -errno if the kernel
// refuses.
//
//go:nosplit
func (p *process) openBound(pid uint32) {
	if i := uint(p.bounds); i < MaxBound {
		p.bound[i] = boundProcess{int32(pid), int32(high(call(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0, 0)))}
		p.bounds++
	}
}

// isInside reports whether a process is in the PID namespace of the inner fini, and so belongs to the tree.
//
//go:nosplit
func (p *process) isInside(pid int32) bool {
	text := uintptr(unsafe.Pointer(&p.text))
	ours, theirs := text+1024, text+2048 // namespace writes a path before these
	n := p.namespace(uintptr(p.inner), ours)
	if n <= 0 || n != p.namespace(uintptr(pid), theirs) {
		return false
	}
	for i := uintptr(0); i < uintptr(n); i++ {
		if byteAt(ours+i) != byteAt(theirs+i) {
			return false
		}
	}
	return true
}

// namespace reads the link that names the PID namespace of a process. See proc_pid_ns(5).
//
//go:nosplit
func (p *process) namespace(pid, to uintptr) int {
	text := uintptr(unsafe.Pointer(&p.text))
	appendText(appendNumber(appendText(text, "/proc/"), int(pid)), "/ns/pid\x00")
	return call(unix.SYS_READLINKAT, atCwd, text, to, 64)
}

//go:nosplit
func appendText(at uintptr, text string) uintptr {
	for i := uintptr(0); i < uintptr(len(text)); i++ {
		*(*byte)(unsafe.Add(nil, at+i)) = byteAt(address(text) + i)
	}
	return at + uintptr(len(text))
}

//go:nosplit
func appendNumber(at uintptr, n int) uintptr {
	size := uintptr(1)
	for rest := n / 10; rest > 0; rest /= 10 {
		size++
	}
	for i := size; i > 0; i-- {
		*(*byte)(unsafe.Add(nil, at+i-1)) = byte('0' + n%10)
		n /= 10
	}
	return at + size
}
