package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// The main child may be stopped and end between two calls of wait4(2). What is then decided because it was
// stopped must not reach who has its pid next.
func TestNothingIsSentToAReapedPid(t *testing.T) {
	bystander := exec.Command("/bin/sh", "-c", "read line; exit 3")
	stdin, err := bystander.StdinPipe()
	if err == nil {
		err = bystander.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{role: &role{}, mainProcess: mainProcess{main: bystander.Process.Pid, reaped: true}}
	l.do(forward{syscall.SIGKILL})
	l.do(relay{received{sig: syscall.SIGKILL}})
	_ = stdin.Close()
	_ = bystander.Wait()
	if got := bystander.ProcessState.ExitCode(); got != 3 {
		t.Errorf("it ends with %d , want 3", got)
	}
}
