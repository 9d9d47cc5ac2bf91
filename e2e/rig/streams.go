package rig

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func Write(t testing.TB, l *Life, text string) {
	t.Helper()
	if _, err := l.Stdin.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Socketpair is what Node and uvloop give a child as a pipe.
func Socketpair(t testing.TB) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	NoError(t, err)
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

func Pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// Device opens a device for writing.
func Device(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// FillPipe writes to a pipe until it takes no more.
func FillPipe(t testing.TB, w *os.File) {
	t.Helper()
	fd := int(w.Fd())
	NoError(t, unix.SetNonblock(fd, true))
	for err := error(nil); err == nil; {
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	NoError(t, unix.SetNonblock(fd, false))
}
