package entry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"golang.org/x/sys/unix"
)

// While fini runs a command it lets go of what both have inherited, so that readers see the end when the command ends. It
// keeps descriptors that only refer to its streams (O_PATH); and with -i, its standard input.
func TestInheritedStreamsAreClosed(t *testing.T) {
	mustCloseInherited(t, true, unix.O_RDONLY, unix.O_PATH)
	mustCloseInherited(t, false, unix.O_PATH, unix.O_PATH)
}

// Without /proc the streams can't be referred to, and the readers get their end all the same.
func TestInheritedStreamsAreClosedWithoutProc(t *testing.T) {
	self.WithoutRoot(t, func() { mustCloseInherited(t, false, unix.O_PATH, unix.O_PATH) })
}

const closed = -1

// mustCloseInherited calls CloseInherited, and wants these flags of descriptors 0 and 1 then. Each inherited descriptor
// is closed, and what is this process's own stays, however high.
func mustCloseInherited(t *testing.T, keepStdin bool, stdin, stdout int) {
	t.Helper()
	inR, inW := check.Pipe(t)
	outR, out := check.Socketpair(t)
	moreR, moreW := check.Pipe(t)
	var inherited []int
	for range 700 { // more than fit in one answer
		fd, err := unix.FcntlInt(moreW.Fd(), unix.F_DUPFD, 200)
		check.NoError(t, err)
		inherited = append(inherited, fd)
	}
	check.NoError(t, moreW.Close())
	own := inherited[350]
	unix.CloseOnExec(own)
	stderr := openAs(2)
	restore := []func(){self.PutAt(t, 0, inR), self.PutAt(t, 1, out)}
	check.NoError(t, errors.Join(inR.Close(), out.Close()))

	CloseInherited(keepStdin)

	are := [3]int{openAs(0), openAs(1), openAs(2)}
	_, err := inW.WriteString("x")
	ended := [2]bool{check.HungUp(outR), check.HungUp(moreR)}
	restore[0]() // for the result of the test
	restore[1]()
	check.Equal(t, "the flags of the standard streams", are, [3]int{stdin, stdout, stderr})
	check.Equal(t, "standard input has a reader", err == nil, keepStdin)
	check.Equal(t, "the readers of standard output and of another have their end", ended, [2]bool{true, false})
	for _, fd := range inherited {
		check.Equal(t, fmt.Sprintf("descriptor %d is open", fd), openAs(fd) != closed, fd == own)
	}
	check.NoError(t, unix.Close(own))
	check.Equal(t, "the reader of all of them has its end", check.HungUp(moreR), true)
}

// openAs are the flags of a descriptor, without the kernel's O_LARGEFILE.
func openAs(fd int) int {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return closed
	}
	return flags & (unix.O_ACCMODE | unix.O_PATH)
}
