// Package pty opens a terminal, and starts commands on it.
package pty

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// Open opens a pty. A read of ours that is under way keeps nobody from closing it.
func Open(t testing.TB) (theirs, ours *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	rig.NoError(t, err)
	ours = os.NewFile(uintptr(fd), "pty")
	t.Cleanup(func() { _ = ours.Close() })
	rig.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	rig.NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	rig.NoError(t, err)
	return theirs, ours
}

// Start runs a command as the leader of a session whose terminal is a pty, and
// returns what it writes there, line by line, and where to type.
func Start(t *testing.T, cmd *exec.Cmd) (l *rig.Life, screen *rig.Lines, keys *os.File) {
	t.Helper()
	theirs, ours := Open(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	l = rig.StartCmd(t, cmd)
	_ = theirs.Close()
	return l, rig.NewLines(t, Carriageless{ours}), ours
}

// Carriageless drops the carriage returns that a terminal adds.
type Carriageless struct{ R io.Reader }

func (c Carriageless) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	return copy(p, strings.ReplaceAll(string(p[:n]), "\r", "")), err
}
