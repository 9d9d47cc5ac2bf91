package rig

import (
	"bytes"
	"os/exec"
	"testing"
)

// Ask runs fini to its end and returns its status, stdout and stderr.
func Ask(t testing.TB, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return ShellStatus(cmd.ProcessState), out.String(), errs.String()
}
