package orphans

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// With the /proc of the very same namespace, all numbers are what they are.
func TestOutside(t *testing.T) {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(proc) }()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	session, _ := unix.Getsid(0)
	for name, o := range map[string]*Outside{"nil": nil, "another": NewOutside(proc)} {
		if got := o.Pid(pid); got != pid {
			t.Errorf("%s: pid %d, want %d", name, got, pid)
		}
		if got := o.Name(os.Getpid()); got != Name(os.Getpid()) || got == "" {
			t.Errorf("%s: this process is called %q", name, got)
		}
		if got := o.Session(); got != session {
			t.Errorf("%s: session %d, want %d", name, got, session)
		}
		if got := o.Process(Process{Pid: pid, Parent: 1, Group: 2, Session: 3}); got.Pid != pid {
			t.Errorf("%s: %+v", name, got)
		}
	}

	// A pid that was asked for is known when its process has been reaped; others are left as they are.
	o := NewOutside(proc)
	o.known[pid] = 4711
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := o.Pid(pid); got != 4711 {
		t.Errorf("of a process that was reaped: %d", got)
	}
	if got := NewOutside(proc).Pid(pid); got != pid {
		t.Errorf("of one that was never asked for: %d", got)
	}
	if got := o.Name(1 << 30); got != "" {
		t.Errorf("nobody is called %q", got)
	}
}
