package rig

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { Modes["@agent"] = helperAgent }

// helperAgent is a daemon that is meant to stay: it ignores SIGTERM, has a child of another name,
// says "agent PID" and "child PID" on descriptor 4 and stays.
func helperAgent([]string) int {
	signal.Ignore(syscall.SIGTERM)
	unix.CloseOnExec(4)
	child := exec.Command("/bin/sleep", "1000")
	child.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
	if err := child.Start(); err != nil {
		return 1
	}
	to := os.NewFile(4, "ready")
	_, _ = fmt.Fprintf(to, "agent %d\nchild %d\n", os.Getpid(), child.Process.Pid)
	_ = to.Close()
	return forever()
}

// Linked is this test binary under another name.
func Linked(t testing.TB, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if os.Link(self, path) == nil {
		return path
	}
	binary, err := os.ReadFile(self)
	if err == nil {
		err = WriteProgram(path, binary, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// MustStay asserts that these processes live, and that of the tree only they do.
func (l *Life) MustStay(pids []int) {
	l.T.Helper()
	for _, pid := range pids {
		if state := ProcStatus(pid, "State"); state == "" || strings.HasPrefix(state, "Z") {
			l.T.Errorf("%d is gone (%q); stderr: %s", pid, state, l.Err.Text())
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	Until(l.T, "the end of all: more than those has stayed", func() bool { return HungUp(l.Witness) })
}
