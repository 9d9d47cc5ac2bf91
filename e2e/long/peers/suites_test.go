package peers

import (
	"os"
	"os/exec"
	"os/user"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// What the Go project tests of processes and signals, with every one of its test programs behind fini.
func TestSuitesOfGo(t *testing.T) {
	t.Parallel()
	goCommand := need.Program(t, "go")
	_, err := user.Current()
	need.That(t, err == nil, "a name for this user in /etc/passwd, which a test of os/exec looks for")
	cmd := exec.Command(goCommand, "test", "-count=1", "-short", "-exec", rig.Fini+" --", "os/exec", "os/signal", "syscall")
	cmd.Env = append(os.Environ(), "GO_TEST_TIMEOUT_SCALE=10") // a busy machine is slower than their deadlines
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
