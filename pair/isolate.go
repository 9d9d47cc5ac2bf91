package pair

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/entry"
)

// Isolate gives an isolated inner fini its own /proc. In a user namespace it also maps the user and the group, and drops
// all capabilities.
func Isolate() *RefusedError {
	_, user := entry.Isolated()
	if !user.Is {
		return mountProc(false)
	}
	// Without CAP_SETGID outside, a group can be mapped only if setgroups(2) is denied. Older kernels lack the file.
	_ = write("/proc/self/setgroups", "deny")
	if err := write("/proc/self/uid_map", fmt.Sprintf("%d %[1]d 1", user.UID)); err != nil {
		return refused(entry.CallMap, err)
	}
	if err := write("/proc/self/gid_map", fmt.Sprintf("%d %[1]d 1", user.GID)); err != nil {
		return refused(entry.CallMap, err)
	}
	if err := mountProc(true); err != nil {
		return err
	}
	return refused(entry.CallCapset, dropCapabilities(user.Lacks))
}

func write(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(text))
		_ = unix.Close(fd)
	}
	return err
}

// dropCapabilities drops all capabilities of all threads, and those that lack from the bounding set too: the first process
// of a user namespace has them all. Without permitted and inheritable capabilities there are no ambient capabilities.
func dropCapabilities(lack uint64) error {
	for n := range uintptr(64) {
		if lack>>n&1 == 0 {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n, 0); errno != 0 {
			return errno
		}
	}
	head, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
