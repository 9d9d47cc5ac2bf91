package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	Modes["@supervisor"] = helperSupervisor
	Modes["@closed"] = helperClosed
}

// helperClosed is a process into which nobody without privileges may look.
func helperClosed([]string) int {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	fmt.Println("closed")
	return forever()
}

// helperSupervisor starts a process in a session of its own, says "supervisor" and ends at the end of stdin, or by
// SIGTERM.
func helperSupervisor([]string) int {
	cmd := exec.Command("/bin/sh", "-c", "exec sleep 1000")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
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
