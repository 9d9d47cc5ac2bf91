package rig

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// OnTerminal runs a command as the leader of a session whose terminal is a pty, and
// returns what it writes there, line by line, and where to type.
func OnTerminal(t *testing.T, cmd *exec.Cmd) (l *Life, screen *Lines, keys *os.File) {
	t.Helper()
	theirs, ours := Terminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	l = StartCmd(t, cmd)
	_ = theirs.Close()
	return l, NewLines(t, Carriageless{ours}), ours
}

// Carriageless drops the carriage returns that a terminal adds.
type Carriageless struct{ R io.Reader }

func (c Carriageless) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	return copy(p, strings.ReplaceAll(string(p[:n]), "\r", "")), err
}
