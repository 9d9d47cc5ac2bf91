package rig

import (
	"os"
	"os/exec"
	"testing"
)

// Bystander starts a process that lives until it is killed, and is a child of the test.
func Bystander(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	if len(argv) == 0 {
		argv = []string{"sleep", "1000"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// execve(2) lets who started it go on before it gives the process its name.
	Until(t, "its name", func() bool { return ProcStatus(cmd.Process.Pid, "Name") != ProcStatus(os.Getpid(), "Name") })
	return cmd
}
