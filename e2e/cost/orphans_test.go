package cost

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// storm is a shell that makes orphans as fast as it can, each by a child that ends first, when
// it is told to.
const storm = `echo ready; read go; i=0; while [ $i -lt 1000 ]; do (: &); i=$((i+1)); done; echo made; read end`

// fini reaps at once, as tini does. On a machine that leaves no processor idle it costs more, because each wake-up there
// may wake the Go runtime's monitor too, up to a hundred times in a second.
func TestGuardCostPerOrphan(t *testing.T) {
	rig.Long(t)
	rig.Serial(t, "it compares what two processes cost")
	tini := need.Program(t, "tini-static")
	const orphans, rounds = 1000, 3
	reap := func(t *testing.T, cmd *exec.Cmd) (switches, cpu float64) {
		l := rig.StartCmd(t, cmd)
		l.Out.Want("ready")
		pids := []int{l.PID()}
		rest.Settled(t, pids)
		before, ran := rest.Switches(t, pids), cpuTime(t, l.PID())
		rig.Write(t, l, "go\n")
		l.Out.Want("made")
		rig.Until(t, "all orphans are reaped", func() bool { return len(procfs.ChildrenOf(t, l.PID())) == 1 })
		switches, cpu = float64(rest.Switches(t, pids)-before), cpuTime(t, l.PID())-ran
		rig.Write(t, l, "end\n")
		l.MustEnd(0)
		return switches / orphans, cpu / orphans
	}
	rest.Typically(t, "at most 2.5 times the context switches of tini-static, and 3 times its CPU; 8 and 8 times on a busy machine", func() (bool, string) {
		var switches, cpus []float64
		idle, all := processors(t)
		for range rounds {
			own, cpu := reap(t, rig.Alone.Command("--", "/bin/sh", "-c", storm))
			others, theirs := reap(t, exec.Command(tini, "-s", "--", "/bin/sh", "-c", storm))
			t.Logf("for each orphan, fini and tini-static: context switches %.2f and %.2f, CPU %.1f and %.1f µs", own, others, cpu/1000, theirs/1000)
			switches, cpus = append(switches, own/others), append(cpus, cpu/theirs)
		}
		mostSwitches, mostCPU := 2.5, 3.0
		if i, a := processors(t); (i-idle)*3 < a-all { // less than a third is idle: where only this test runs, it is half
			mostSwitches, mostCPU = 8, 8
		}
		slices.Sort(switches)
		slices.Sort(cpus)
		return switches[rounds/2] <= mostSwitches && cpus[rounds/2] <= mostCPU,
			fmt.Sprintf("%.2f and %.2f times, limits %v and %v", switches[rounds/2], cpus[rounds/2], mostSwitches, mostCPU)
	})
}

// processors returns how long the processors were idle since boot, and how long there were any, in ticks. See proc_stat(5).
func processors(t *testing.T) (idle, all int) {
	t.Helper()
	line, _, _ := strings.Cut(rig.ReadFile(t, "/proc/stat"), "\n")
	for i, field := range strings.Fields(line)[1:9] { // user, nice, system, idle, iowait and so on; guests count as users too
		n, err := strconv.Atoi(field)
		rig.NoError(t, err)
		if all += n; i == 3 {
			idle = n
		}
	}
	return idle, all
}

// cpuTime is how many nanoseconds the threads of a process have run.
func cpuTime(t *testing.T, pid int) (sum float64) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		var ran float64
		if _, err := fmt.Sscan(rig.ReadFile(t, file), &ran); err != nil {
			t.Fatal(err)
		}
		sum += ran
	}
	return sum
}
