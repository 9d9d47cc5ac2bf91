package programs

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// runAdopter inherits the orphans of a command that it runs, says "launcher PID STATUS" of the
// command's end and "adopted PID STATUS" of theirs, and ends when it has no child.
func runAdopter(args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	path, _ := exec.LookPath(args[0])
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, 3}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = unix.Close(3)
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
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
