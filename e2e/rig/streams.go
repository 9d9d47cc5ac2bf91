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
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}
