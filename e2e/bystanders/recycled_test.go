package bystanders

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// In a PID namespace that has only a hundred pids to give, each is given out again within a
// fraction of a second. Bystanders that come and go get the pids of leftovers that fini has seen,
// and are not hit.
func TestRecycledPids(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	need.Root(t)
	need.That(t, pidMaxIsTheNamespaces(), "a kernel.pid_max for each PID namespace (Linux 6.14)")
	limit := fewPids()
	before, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	runs, bystanders := 0, 0
	for long := rig.DrawnFor(t, 2*time.Second); (runs < 3 || bystanders < 500) && !t.Failed(); long *= 4 {
		if long > 4*rig.Patience {
			t.Fatal("too few to mean something")
		}
		cmd := exec.Command("/proc/self/exe", append([]string{"@pid1"}, rig.Mode("pidReuse", limit, long.String(), rig.Fini)...)...)
		rig.AsPID1(cmd)
		l := rig.StartCmd(t, cmd)
		l.Wait() // for long, and the patience may be less
		l.MustEnd(0)
		for line := range strings.Lines(l.Out.Whole()) {
			_, _ = fmt.Sscanf(line, "runs %d", &runs)
			_, _ = fmt.Sscanf(line, "bystanders %d", &bystanders)
			if strings.HasPrefix(line, "hit:") || strings.HasPrefix(line, "status") {
				t.Errorf("%s", line)
			}
		}
		t.Logf("%d runs of fini beside %d bystanders, with pids below %s", runs, bystanders, limit)
	}
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); string(after) != string(before) {
		t.Errorf("the test's own pid_max is %s, was %s", after, before)
	}
}

// pidMaxIsTheNamespaces reports whether to write kernel.pid_max in a namespace spares the others.
func pidMaxIsTheNamespaces() bool {
	var name unix.Utsname
	_ = unix.Uname(&name)
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
}

// fewPids is about the least that the kernel takes for kernel.pid_max: eight for each possible processor, and 301.
func fewPids() string {
	var last int
	text, _ := os.ReadFile("/sys/devices/system/cpu/possible")
	_, _ = fmt.Sscanf(string(text), "0-%d", &last)
	return strconv.Itoa(max(400, 8*(last+1)+100))
}
