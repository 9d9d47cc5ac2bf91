package programs

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// runAdopter runs a command and adopts its orphans. It writes "launcher PID STATUS" when the command ends and "adopted
// PID STATUS" when an orphan ends, and exits when it has no children.
func runAdopter(args []string) int {
	must(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	path, err := exec.LookPath(args[0])
	must(err)
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, 3}})
	must(err)
	_ = unix.Close(3)
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0
		}
		who, n := "adopted", status.ExitStatus()
		if status.Signaled() {
			n = 128 + int(status.Signal())
		}
		if got == pid {
			who = "launcher"
		}
		fmt.Println(who, got, n)
	}
}
