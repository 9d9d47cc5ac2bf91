// Package self has what a unit test does to the process in which it runs, and to that one's children.
package self

import (
	"errors"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// PutAt makes a file a descriptor of this process, or closes that for nil, until restore is called.
func PutAt(t testing.TB, fd int, file *os.File) (restore func()) {
	t.Helper()
	saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	check.NoError(t, err)
	if file == nil {
		check.NoError(t, unix.Close(fd))
	} else {
		check.NoError(t, unix.Dup3(int(file.Fd()), fd, 0))
	}
	return func() { check.NoError(t, errors.Join(unix.Dup3(saved, fd, 0), unix.Close(saved))) }
}

// WithoutRoot runs something with an empty root directory.
func WithoutRoot(t testing.TB, do func()) {
	t.Helper()
	need.That(t, os.Getuid() == 0, "root, to change the root directory")
	dir, err := os.Open("/")
	check.NoError(t, err)
	defer func() { // or nobody could remove the directory
		check.NoError(t, errors.Join(dir.Chdir(), unix.Chroot("."), dir.Close()))
	}()
	check.NoError(t, unix.Chroot(t.TempDir()))
	do()
}

// Open opens a file until the test ends.
func Open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, flags, 0o600)
	check.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
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
			check.NoError(t, err)
		}
	}
}
