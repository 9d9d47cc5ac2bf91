// Package self changes the process that a unit test runs in, or waits for its children.
package self

import (
	"errors"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// PutAt makes file the descriptor fd of this process until restore is called. If file is nil, it closes fd.
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

// WithoutRoot runs a function with an empty root directory.
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

// Open opens a file, and closes it when the test ends.
func Open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, flags, 0o600)
	check.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// AwaitEnd waits until the child pid has ended, but does not reap it. If pid is 0, it waits for any child.
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
