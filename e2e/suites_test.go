package e2e

import (
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// What the Go project tests of processes and signals, with every one of its test programs behind fini.
func TestSuitesOfGo(t *testing.T) {
	t.Parallel()
	goCommand := need.Program(t, "go")
	cmd := exec.Command(goCommand, "test", "-count=1", "-short", "-exec", finiPath+" --", "os/exec", "os/signal", "syscall")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
