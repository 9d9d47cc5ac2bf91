package programs

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// runSupervisor starts a process in a session of its own, says "supervisor" when that sleeps, and ends at the end of
// stdin, or by SIGTERM.
func runSupervisor([]string) int {
	cmd := exec.Command("/bin/sh", "-c", "exec sleep 1000")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
	awaitFact(func() bool {
		child := procfs.StatOf(cmd.Process.Pid)
		return child.Name == "sleep" && child.State() == 'S'
	})
	fmt.Println("supervisor", os.Getpid())
	var b [1]byte
	for {
		if n, err := syscall.Read(0, b[:]); n <= 0 && err != syscall.EINTR {
			return 0
		}
	}
}
