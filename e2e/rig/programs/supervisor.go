package programs

import (
	"fmt"
	"os"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// runSupervisor starts a process in a session of its own, says "supervisor" when that sleeps, and ends at the end of
// stdin, or by SIGTERM. A shell would not be an owner.
func runSupervisor([]string) int {
	cmd := leftover("/bin/sh", "-c", "exec sleep 1000")
	must(cmd.Start())
	for child := (procfs.Stat{}); child.Name != "sleep" || child.State() != 'S'; child = procfs.StatOf(cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("supervisor", os.Getpid())
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}
