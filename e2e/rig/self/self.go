// Package self has what a unit test does to the process in which it runs, and to that one's children.
package self

import (
	"errors"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// PutAt makes an open file a descriptor of this process, or closes that for -1, until restore is called.
func PutAt(t testing.TB, fd, file int) (restore func()) {
	t.Helper()
	saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	rig.NoError(t, err)
	if file < 0 {
		rig.NoError(t, unix.Close(fd))
	} else {
		rig.NoError(t, unix.Dup3(file, fd, 0))
	}
	return func() { rig.NoError(t, errors.Join(unix.Dup3(saved, fd, 0), unix.Close(saved))) }
}

// WithoutRoot runs something with an empty root directory.
func WithoutRoot(t testing.TB, do func()) {
	t.Helper()
	need.That(t, os.Getuid() == 0, "root, to change the root directory")
	dir, err := os.Open("/")
	rig.NoError(t, err)
	defer func() { // or nobody could remove the directory
		rig.NoError(t, errors.Join(dir.Chdir(), unix.Chroot("."), dir.Close()))
	}()
	rig.NoError(t, unix.Chroot(t.TempDir()))
	do()
}

// OpenDir opens a directory until the test ends.
func OpenDir(t testing.TB, dir string) (fd int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	rig.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// AwaitEnd waits until a child, or any child for a pid of 0, has ended, and does not reap it.
func AwaitEnd(t testing.TB, pid int) {
	t.Helper()
	kind := unix.P_PID
	if pid == 0 {
		kind = unix.P_ALL
	}
	for err := error(unix.EINTR); err != nil; {
		if err = unix.Waitid(kind, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			rig.NoError(t, err)
		}
	}
}
