// Package pty opens a terminal, and starts commands on it.
package pty

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// Open opens a pty. A read of ours that is under way keeps nobody from closing it.
var Open = check.Terminal

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
