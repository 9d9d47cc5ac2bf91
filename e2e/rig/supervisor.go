package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func init() {
	Modes["@supervisor"] = helperSupervisor
}

// helperSupervisor starts a process in a session of its own, says "supervisor" when that sleeps, and ends at the end of
// stdin, or by SIGTERM.
func helperSupervisor([]string) int {
	cmd := exec.Command("/bin/sh", "-c", "exec sleep 1000")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
	Poll(Patience, func() bool {
		child := StatOf(cmd.Process.Pid)
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

func GoCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return t.TempDir()
	}
	return strings.TrimSpace(string(out))
}
