package pdeath

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/self"
	"golang.org/x/sys/unix"
)

// Sessions prove an adoption, or they don't: a living parent is never taken for one that has adopted.
func TestAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		child, session, parent, parentSession int
		want                                  bool
	}{
		"of its parent's session":                   {20, 5, 10, 5, false},
		"it leads its session":                      {20, 20, 10, 5, false},
		"the parent has made a session since":       {20, 5, 10, 10, false},
		"the parent is of another session":          {20, 5, 10, 7, true},
		"of PID 1, whose session is older":          {20, 5, 1, 1, true},
		"of PID 1, which is of the session of boot": {20, 5, 1, 0, true},
		"of PID 1, in its session":                  {20, 1, 1, 1, false},
	} {
		rig.Equal(t, name, Adopted(c.child, c.session, c.parent, c.parentSession), c.want)
	}
}

// Standard input is watched if it has a far end. See socketpair(2), null(4).
func TestLookAtStdin(t *testing.T) {
	pipe, _ := rig.Pipe(t)
	stream, _ := rig.Socketpair(t)
	datagrams, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	rig.NoError(t, err)
	for name, c := range map[string]struct {
		file *os.File
		want Stdin
		says string
	}{
		"a pipe":              {pipe, Open, "<nil>"},
		"a reference":         {self.Open(t, fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_PATH), Unwatched, "a file has no far end; want a pipe, a socket or a terminal"},
		"a stream socket":     {stream, Open, "<nil>"},
		"a datagram socket":   {os.NewFile(uintptr(datagrams[0]), ""), Unwatched, "a datagram socket has no end"},
		"/dev/null":           {self.Open(t, "/dev/null", os.O_RDWR), Ended, "<nil>"},
		"/dev/zero":           {self.Open(t, "/dev/zero", os.O_RDWR), Unwatched, "a device has no end"},
		"a terminal's master": {self.Open(t, "/dev/ptmx", os.O_RDWR|unix.O_NOCTTY), Open, "<nil>"},
		"a file":              {self.Open(t, t.TempDir()+"/file", os.O_RDWR|os.O_CREATE), Unwatched, "a file has no far end; want a pipe, a socket or a terminal"},
	} {
		restore := self.PutAt(t, 0, c.file)
		got, err := LookAtStdin()
		restore()
		rig.Equal(t, name, got, c.want)
		rig.Equal(t, name, fmt.Sprint(err), c.says)
	}
}

// A process that has ended can't be watched any more, whether it was reaped or not.
func TestCanWatch(t *testing.T) {
	cmd := rig.Bystander(t, "sleep", "1000")
	pidfd := func() (int, error) { return unix.PidfdOpen(cmd.Process.Pid, 0) }
	fd, err := pidfd()
	need.That(t, err != unix.ENOSYS, "pidfd_open(2) (kernel)")
	rig.Equal(t, "while it lives", CanWatch(fd, err), nil)
	rig.NoError(t, cmd.Process.Kill())
	self.AwaitEnd(t, cmd.Process.Pid)
	rig.Equal(t, "of a zombie", CanWatch(pidfd()), ErrGone)
	_ = cmd.Wait()
	rig.Equal(t, "of nobody", CanWatch(pidfd()), ErrGone)
}
