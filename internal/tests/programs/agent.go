package programs

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// runAgent is a daemon that is meant to keep running. It ignores SIGTERM, starts a child with another name, and writes
// "agent PID" and "child PID" to descriptor 4.
func runAgent([]string) int {
	signal.Ignore(syscall.SIGTERM)
	unix.CloseOnExec(4)
	child := exec.Command("/bin/sleep", "1000")
	child.ExtraFiles = []*os.File{witness()}
	must(child.Start())
	to := os.NewFile(4, "ready")
	_, _ = fmt.Fprintf(to, "agent %d\nchild %d\n", os.Getpid(), child.Process.Pid)
	_ = to.Close()
	return forever()
}
