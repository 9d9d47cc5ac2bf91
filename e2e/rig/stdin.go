package rig

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var StdinKinds = []struct {
	Name string
	Make func(t testing.TB) (theirs, ours *os.File)
}{
	{"pipe", func(t testing.TB) (*os.File, *os.File) { return Pipe(t) }},
	{"socketpair", func(t testing.TB) (*os.File, *os.File) { o, th := Socketpair(t); return th, o }},
}

// StartWithStdin runs fini with the given end of a pipe or socketpair as its stdin.
func StartWithStdin(t testing.TB, p Place, stdin *os.File, args ...string) *Life {
	t.Helper()
	cmd := p.Command(args...)
	cmd.Stdin = stdin
	l := StartCmd(t, cmd)
	_ = stdin.Close()
	return l
}

// Terminal opens a pty.
func Terminal(t testing.TB) (theirs, ours *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}
