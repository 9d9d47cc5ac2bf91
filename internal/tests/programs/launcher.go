package programs

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// runLauncher leads a session and starts a command with its own streams and the witness. It closes the witness, writes
// "fini PID", and waits for the command.
func runLauncher(args []string) int {
	_, _ = unix.Setsid() // see launch; it may lead one already
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{witness()}
	must(cmd.Start())
	_ = witness().Close()
	fmt.Println("fini", cmd.Process.Pid)
	_ = cmd.Wait()
	return procfs.ShellStatus(cmd.ProcessState)
}
