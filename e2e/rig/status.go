package rig

import (
	"bytes"
	"os/exec"
	"testing"
	"time"
)

// Ask runs fini to its end and returns its status, stdout and stderr.
func Ask(t testing.TB, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	Complete(t, cmd)
	return ShellStatus(cmd.ProcessState), out.String(), errs.String()
}

// Complete runs a command to its end, which has to come: how it ended is in its ProcessState.
func Complete(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for w := new(Wait); ; {
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
		if w.Over(Enough) {
			_ = cmd.Process.Kill()
			t.Fatalf("%q has not ended, or its output has no end", cmd.Args)
		}
	}
}
