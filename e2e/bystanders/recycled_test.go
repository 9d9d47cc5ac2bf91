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

// In a PID namespace where pids come again within milliseconds, who has the pid of the one that ended is
// no life for the command, and is not hit; and while that one lives, ends of others are none of fini's.
func TestBindAmongRecycledPids(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	script := `
echo 400 >/proc/sys/kernel/ns_last_pid 2>/dev/null
echo 450 >/proc/sys/kernel/pid_max || exit 77
ready=$(mktemp)
for round in $(seq $1); do
	sleep 1000 & client=$!
	"$0" -q --grace=5s --bind=$client -- sh -c 'echo ready; exec sleep 1000' >$ready & fini=$!
	while ! test -s $ready; do :; done
	i=0; while test $i -lt $2; do (:); i=$((i+1)); done
	kill -0 $fini || { echo "ended too early"; exit 1; }
	kill -9 $client; wait $client 2>/dev/null
	until test "$last" = $client; do sleep 1000 & last=$!; all="$all $last"; test ${#all} -lt 4000 || break; test "$last" = $client || { kill -9 $last; wait $last 2>/dev/null; }; done
	wait $fini; echo "status $?"
	test "$last" != $client || { kill -0 $last && echo "the next with its pid lives"; kill -9 $last; wait $last 2>/dev/null; }
	: >$ready; all= last=
done
rm $ready
echo done`
	rounds, others := 10, 500
	if !rig.All() {
		rounds, others = 2, 100
	}
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c", script, rig.Fini, strconv.Itoa(rounds), strconv.Itoa(others))
	rig.AsPID1(cmd)
	l := rig.StartCmd(t, cmd)
	again := 0
	for ended := false; !ended; {
		line, ok := l.Out.Next()
		switch {
		case !ok:
			need.That(t, l.Status() != 77, "kernel.pid_max of a PID namespace (Linux 6.14)")
			t.Fatalf("EOF; stderr: %s", l.Err.Text())
		case line == "done":
			ended = true
		case line == "the next with its pid lives":
			again++
		case line != "status 143":
			t.Fatalf("%q; stderr: %s", line, l.Err.Text())
		}
	}
	t.Logf("%d pids of %d came again", again, rounds)
	if again == 0 {
		t.Error("no pid came again: this says nothing")
	}
	l.MustEnd(0)
}

// In a PID namespace that has only a hundred pids to give, each is given out again within a
// fraction of a second. Bystanders that come and go get the pids of leftovers that fini has seen,
// and are not hit.
func TestRecycledPids(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	need.Root(t)
	need.That(t, pidMaxIsTheNamespaces(), "a kernel.pid_max for each PID namespace (Linux 6.14)")
	const limit = "400"
	before, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	for long := rig.DrawnFor(t, 2*time.Second); ; long *= 4 {
		runs, bystanders := reusePids(t, limit, long)
		t.Logf("%d runs of fini beside %d bystanders, with pids below %s", runs, bystanders, limit)
		if t.Failed() || runs >= 3 && bystanders >= 500 {
			break
		}
		if long > 4*rig.Patience {
			t.Fatal("too few to mean something")
		}
	}
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); string(after) != string(before) {
		t.Errorf("the test's own pid_max is %s, was %s", after, before)
	}
}

// reusePids does so for some time, and returns how many runs of fini and how many bystanders there were.
func reusePids(t *testing.T, limit string, long time.Duration) (runs, bystanders int) {
	t.Helper()
	argv := append([]string{rig.Mode("")[0], "@pid1"}, rig.Mode("pidReuse", limit, long.String(), rig.Fini)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	rig.AsPID1(cmd)
	l := rig.StartCmd(t, cmd)
	ended := make(chan struct{})
	go func() { l.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(long + rig.Patience):
		t.Fatalf("has not ended; so far: %s %s", l.Out.Text(), l.Err.Text())
	}
	said := l.Out.Whole()
	l.MustEnd(0)
	for line := range strings.Lines(said) {
		_, _ = fmt.Sscanf(line, "runs %d", &runs)
		_, _ = fmt.Sscanf(line, "bystanders %d", &bystanders)
		if strings.HasPrefix(line, "hit:") || strings.HasPrefix(line, "status") {
			t.Errorf("%s", line)
		}
	}
	return runs, bystanders
}

// pidMaxIsTheNamespaces reports whether to write kernel.pid_max in a namespace spares the others.
func pidMaxIsTheNamespaces() bool {
	var name unix.Utsname
	_ = unix.Uname(&name)
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
}
