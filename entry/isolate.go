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
	p.parent.Proc = high(call(unix.SYS_OPENAT, atCwd, address("/proc\x00"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
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

// openBound opens the pidfd of a process of --bind for the next inner fini, which can't open it: see Bound.
//
//go:nosplit
func (p *process) openBound(pid uint32) {
	if i := uint(p.bounds); i < MaxBound {
		p.bound[i] = int32(high(call(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0, 0)))
		p.bounds++
	}
}
