package check

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// Bystander starts a child of the test that runs until it is killed.
func Bystander(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	if len(argv) == 0 {
		argv = []string{"sleep", "1000"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// execve(2) returns control to the parent before the process has its new name.
	Until(t, "its name", func() bool { return procfs.Status(cmd.Process.Pid, "Name") != procfs.Status(os.Getpid(), "Name") })
	return cmd
}

// Succeed runs a command, fails the test if the command fails, and returns its output from both streams.
func Succeed(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", cmd.Args, err, out)
	}
	return string(out)
}

// Run runs a program, fails the test if the program fails, and returns its standard output.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANPAGER=cat", "MANOPT=")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s%s", name, args, err, out, &stderr)
	}
	return string(out)
}

// Complete runs a command until it ends. Its ProcessState says how.
func Complete(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if !Closed(ended) {
		_ = cmd.Process.Kill()
		t.Fatalf("%q has not ended, or its output has no end", cmd.Args)
	}
}
