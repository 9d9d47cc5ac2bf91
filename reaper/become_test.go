package reaper

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

func TestNamesPid(t *testing.T) {
	for variable, want := range map[string]bool{
		"LISTEN_PID=77": true, "WATCHDOG_PID=77": true, "SYSTEMD_EXEC_PID=77": true,
		"LISTEN_PID=7": false, "LISTEN_PID=777": false, "LISTEN_PID=": false, "MAINPID=77": false, "XLISTEN_PID=77": false,
	} {
		if got := NamesPid([]string{"A=b", variable, "C="}, 77); got != want {
			t.Errorf("NamesPid of %s: %t, want %t", variable, got, want)
		}
	}
}

func TestRename(t *testing.T) {
	own, err := pidfdInode(os.Getpid())
	need.That(t, err == nil, "pidfds")
	parent, err := pidfdInode(os.Getppid())
	check(t, err)
	need.That(t, own != parent, "Linux 6.9, where each process has an inode of its own")
	from, to := strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())
	env := []string{
		"LISTEN_PID=1", "A=", "LISTEN_PIDFDID=" + own, "LISTEN_PID=" + from, "B", "WATCHDOG_PID=" + from,
		"WATCHDOG_USEC=" + from, "SYSTEMD_EXEC_PID=" + from, "LISTEN_PIDFDID=1", "LISTEN_PID=" + from + "0",
	}
	want := slices.Clone(env)
	want[2], want[3], want[5], want[7] = "LISTEN_PIDFDID="+parent, "LISTEN_PID="+to, "WATCHDOG_PID="+to, "SYSTEMD_EXEC_PID="+to
	if got := rename(env, os.Getpid(), os.Getppid()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
