package reaper

import (
	"errors"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

func TestCloseInherited(t *testing.T) {
	mustCloseInherited(t, true, unix.O_RDONLY, unix.O_PATH)
	mustCloseInherited(t, false, unix.O_PATH, unix.O_PATH)
}

// Without /proc the streams can't be referred to, and the readers get their end all the same.
func TestCloseInheritedWithoutProc(t *testing.T) {
	need.That(t, os.Getuid() == 0, "root, to change the root directory")
	dir, err := os.Open("/")
	check(t, err)
	defer func() { // or nobody could remove the directory
		check(t, errors.Join(dir.Chdir(), unix.Chroot("."), dir.Close()))
	}()
	check(t, unix.Chroot(t.TempDir()))
	mustCloseInherited(t, false, unix.O_PATH, unix.O_PATH)
}

const closed = -1

// mustCloseInherited calls CloseInherited, and wants these flags of descriptors 0 and 1 then. Each inherited descriptor
// is closed, and what is this process's own stays, however high.
func mustCloseInherited(t *testing.T, keepStdin bool, stdin, stdout int) {
	t.Helper()
	inR, inW := rig.Pipe(t)
	outR, out := rig.Socketpair(t)
	moreR, moreW := rig.Pipe(t)
	var inherited []int
	for range 700 { // more than fit in one answer
		fd, err := unix.FcntlInt(moreW.Fd(), unix.F_DUPFD, 200)
		check(t, err)
		inherited = append(inherited, fd)
	}
	check(t, moreW.Close())
	own := inherited[350]
	unix.CloseOnExec(own)
	var saved [2]int // for the result of the test
	for fd, file := range []*os.File{inR, out} {
		var err error
		saved[fd], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		check(t, err)
		check(t, unix.Dup3(int(file.Fd()), fd, 0))
		check(t, file.Close())
	}

	CloseInherited(keepStdin)

	is := [3]int{openAs(0), openAs(1), openAs(2)}
	_, err := inW.WriteString("x")
	outEnded, isKept := rig.HungUp(outR), !rig.HungUp(moreR)
	for fd := range saved {
		check(t, unix.Dup3(saved[fd], fd, 0))
		check(t, unix.Close(saved[fd]))
	}
	if is[0] != stdin || is[1] != stdout || is[2] == closed || is[2]&unix.O_PATH != 0 {
		t.Errorf("standard streams are open with the flags %#o, want %#o, %#o and the third", is, stdin, stdout)
	}
	if (err == nil) != keepStdin || !outEnded || !isKept {
		t.Errorf("write to standard input: %v; the reader of standard output has its end: %t, of another: %t", err, outEnded, !isKept)
	}
	for _, fd := range inherited {
		if isOpen := openAs(fd) != closed; isOpen != (fd == own) {
			t.Errorf("descriptor %d: open: %t", fd, isOpen)
		}
	}
	check(t, unix.Close(own))
	if !rig.HungUp(moreR) {
		t.Error("the reader of all of them has no end")
	}
}

// openAs are the flags of a descriptor, without the kernel's O_LARGEFILE.
func openAs(fd int) int {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return closed
	}
	return flags & (unix.O_ACCMODE | unix.O_PATH)
}
