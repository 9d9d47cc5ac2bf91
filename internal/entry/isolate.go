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
// it has mounted /proc. It drops them here, while it has one thread: later every thread would have to drop its own.

// prepareIsolation records the facts that an isolated inner fini can't find out, and returns the flags of clone(2).
//
//go:nosplit
func (p *process) prepareIsolation(line int) (flags uintptr) {
	p.parent.Proc = high(call(unix.SYS_OPENAT, atCwd, address("/proc\x00"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	p.uid, p.gid = call(unix.SYS_GETEUID, 0, 0, 0, 0), call(unix.SYS_GETEGID, 0, 0, 0, 0)
	// A process in a PID namespace can't signal a process outside. If the outer fini is stopped with its job, a message
	// from the inner fini continues it: the kernel sends the signal once sleep has set O_ASYNC. See F_SETSIG in fcntl(2).
	call(unix.SYS_FCNTL, uintptr(line), unix.F_SETSIG, uintptr(unix.SIGCONT), 0)
	call(unix.SYS_FCNTL, uintptr(line), unix.F_SETOWN, uintptr(p.Self), 0)
	var head [2]uint32
	var data [6]uint32
	head[0] = unix.LINUX_CAPABILITY_VERSION_3
	call(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data)), 0, 0)
	if p.user = data[0]&(1<<unix.CAP_SYS_ADMIN) == 0; !p.user {
		return unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	p.bounding = bounding()
	return unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUSER
}

// bounding are the capabilities in the bounding set. See PR_CAPBSET_READ in prctl(2).
//
//go:nosplit
func bounding() (set uint64) {
	for n := uintptr(0); n < 64; n++ {
		has := call(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, n, 0, 0)
		if has < 0 {
			break
		}
		set |= uint64(has) << n
	}
	return set
}

// isolateUser maps the user and the group of the user namespace, mounts /proc, and drops all capabilities. If the kernel
// refuses one of these, this process says which and exits.
//
//go:nosplit
func (p *process) isolateUser() {
	at, err := uint32(CallMap), p.mapIDs()
	if err >= 0 {
		at, err = CallMount, mountProc()
	}
	if err >= 0 {
		at, err = CallCapset, p.dropCapabilities()
	}
	if err < 0 {
		p.say(BePlain, at, uint32(-err), 0)
		exit(0)
	}
}

//go:nosplit
func (p *process) mapIDs() (err int) {
	// Without CAP_SETGID outside, a group can be mapped only if setgroups(2) is denied. Older kernels lack the file.
	p.writeFile("/proc/self/setgroups\x00", address("deny"), 4)
	if err = p.mapID("/proc/self/uid_map\x00", p.uid); err >= 0 {
		err = p.mapID("/proc/self/gid_map\x00", p.gid)
	}
	return err
}

// mapID maps an id to itself.
//
//go:nosplit
func (p *process) mapID(path string, id int) int {
	text := uintptr(unsafe.Pointer(&p.text))
	end := appendText(appendNumber(text, id), " ")
	end = appendText(appendNumber(end, id), " 1")
	return p.writeFile(path, text, end-text)
}

//go:nosplit
func (p *process) writeFile(path string, text, size uintptr) int {
	fd := call(unix.SYS_OPENAT, atCwd, address(path), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if fd < 0 {
		return fd
	}
	n := call(unix.SYS_WRITE, uintptr(fd), text, size, 0)
	closeFD(fd)
	return n
}

// mountProc mounts a new /proc with the flags of the present /proc. The kernel refuses the mount if a mount below /proc
// hides a part of /proc. A proc file system that is mounted elsewhere stays as it is.
//
//go:nosplit
func mountProc() int {
	var fs unix.Statfs_t
	if err := call(unix.SYS_STATFS, address("/proc\x00"), uintptr(unsafe.Pointer(&fs)), 0, 0); err < 0 {
		return err
	}
	flags := uintptr(fs.Flags) & (unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if fs.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	return call6(unix.SYS_MOUNT, address("proc\x00"), address("/proc\x00"), address("proc\x00"), flags, 0, 0)
}

// dropCapabilities drops all capabilities. It also drops from the bounding set each capability that fini's bounding set
// lacked before the fork. Without permitted and inheritable capabilities there are no ambient capabilities.
//
//go:nosplit
func (p *process) dropCapabilities() int {
	extra := bounding() &^ p.bounding
	for n := uintptr(0); n < 64; n++ {
		if extra>>n&1 != 0 {
			if err := call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n, 0, 0); err < 0 {
				return err
			}
		}
	}
	var head [2]uint32
	var none [6]uint32
	head[0] = unix.LINUX_CAPABILITY_VERSION_3
	return call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0, 0)
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
