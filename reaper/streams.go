package reaper

import (
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LetGo closes this process's copies of what the command inherited, so that a
// reader gets EOF, and a writer EPIPE, when the command alone would have given
// it: standard input (unless keepStdin), standard output, and each descriptor
// from 3 on that is not close-on-exec. Standard error stays.
//
// Descriptors 0 and 1 stay in place as O_PATH references, which are neither a
// reader nor a writer of a pipe: a process of the container that opens
// /proc/1/fd/1 still reaches the container's standard output. See open(2).
func LetGo(keepStdin bool) error {
	if !keepStdin {
		release(0)
	}
	release(1)
	inherited, err := inheritable()
	if err != nil {
		inherited = withoutProc()
	}
	for _, fd := range inherited {
		_ = unix.Close(fd)
	}
	return err
}

// withoutProc is inheritable for the descriptors that programs use, where they can't be
// listed.
func withoutProc() (found []int) {
	for fd := 3; fd < 1024; fd++ {
		if isInheritable(fd) {
			found = append(found, fd)
		}
	}
	return found
}

func isInheritable(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// release turns fd into a reference that keeps no pipe open.
func release(fd int) {
	path, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	_ = unix.Dup3(path, fd, unix.O_CLOEXEC)
	_ = unix.Close(path)
}

// inheritable lists the descriptors from 3 on that a child would inherit: those
// without FD_CLOEXEC. The Go runtime's own all have it.
func inheritable() ([]int, error) {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot list own descriptors: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	var found []int
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return found, fmt.Errorf("cannot list own descriptors: %w", err)
		}
		if n <= 0 {
			return found, nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			fd, err := strconv.Atoi(name)
			if err == nil && fd >= 3 && isInheritable(fd) {
				found = append(found, fd)
			}
		}
	}
}

// SetName names this process as ps and top show it, where it was executed under another
// name than its own. See PR_SET_NAME in prctl(2).
func SetName(name string) {
	b, err := unix.BytePtrFromString(name)
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}

// Keep makes descriptors close-on-exec, so that the command does not inherit them.
func Keep(fds ...int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}
