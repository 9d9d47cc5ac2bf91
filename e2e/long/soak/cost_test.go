package soak

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// storm is a shell that makes orphans as fast as it can, each by a child that ends first, when
// it is told to.
const storm = `echo ready; read go; i=0; while [ $i -lt 3000 ]; do (: &); i=$((i+1)); done; echo made; read end`

// Orphans share wake-ups: fini makes a look, rests and looks again, while tini wakes for each.
func TestGuardSwitchesPerOrphan(t *testing.T) {
	rig.Serial(t, "it compares how often two processes are put on a processor")
	tini := need.Program(t, "tini-static")
	// It is 0.2 to 0.4, and more on a busy machine; the obvious way, a SIGCHLD for each, is at 7.
	const orphans, most = 3000, 1.0
	reap := func(t *testing.T, cmd *exec.Cmd) float64 {
		l := rig.StartCmd(t, cmd)
		l.Out.Want("ready")
		pids := []int{l.PID()}
		rig.Settled(t, pids)
		before := rig.Switches(t, pids)
		rig.Write(t, l, "go\n")
		l.Out.Want("made")
		rig.Until(t, "all orphans are reaped", func() bool { return len(rig.ChildrenOf(t, l.PID())) == 1 })
		after := rig.Switches(t, pids)
		rig.Write(t, l, "end\n")
		l.MustEnd(0)
		return float64(after-before) / orphans
	}
	// A machine that is busy lets orphans gather before tini runs, and so share its wake-ups too.
	var ratios []float64
	for end := time.Now().Add(2 * rig.Patience); time.Now().Before(end); {
		fini := reap(t, rig.Alone.Command("--", "/bin/sh", "-c", storm))
		other := reap(t, exec.Command(tini, "-s", "--", "/bin/sh", "-c", storm))
		ratios = append(ratios, fini/other)
		t.Logf("context switches for each orphan: fini %.2f, tini-static %.2f, ratio %.2f", fini, other, fini/other)
		if fini/other <= most {
			return
		}
	}
	t.Errorf("fini switches %.2f times as often for each orphan as tini-static, want at most %.1f", ratios, most)
}

// Start, memory and end beside others that make a PID namespace, in one run.
func TestIsolationCost(t *testing.T) {
	rounds, leftovers := rig.QuickOrFull(5, 60), rig.QuickOrFull(100, 1000)
	starters := []struct {
		name string
		argv []string
	}{
		{"fini", []string{rig.Fini}},
		{"fini --isolate", []string{rig.Fini, "--isolate"}},
		{"bwrap", []string{"bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent"}},
		{"unshare", []string{"unshare", "-fp", "--kill-child", "--mount-proc"}},
	}
	median := map[string]time.Duration{}
	var names []string
	took := map[string][]time.Duration{}
	for range rounds { // turn and turn about: the machine is busy with other things too
		for _, s := range starters {
			if _, err := exec.LookPath(s.argv[0]); err != nil {
				continue
			}
			begin := time.Now()
			if out, err := exec.Command(s.argv[0], append(s.argv[1:], "/bin/true")...).CombinedOutput(); err != nil {
				if len(took[s.name]) == 0 {
					t.Logf("%s: %v: %s", s.name, err, out)
				}
				continue
			}
			took[s.name] = append(took[s.name], time.Since(begin))
		}
	}
	for name, all := range took {
		slices.Sort(all)
		median[name] = all[len(all)/2]
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line := fmt.Sprintf("%-15s start of true %v", name, median[name].Round(10*time.Microsecond))
		if bwrap := median["bwrap"]; bwrap > 0 {
			line += fmt.Sprintf(", %.2f of bwrap's", float64(median[name])/float64(bwrap))
		}
		t.Log(line)
	}
	for _, s := range starters {
		if median[s.name] == 0 {
			continue
		}
		many := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done; echo made; read x`, leftovers)
		argv := slices.Concat(s.argv, []string{"sh", "-c", many})
		if s.argv[0] == rig.Fini {
			argv = slices.Concat(s.argv, []string{"-q", "--linger=0", "--", "sh", "-c", many})
		}
		l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
		l.Out.Want("made")
		memory := 0
		for _, pid := range append(rig.ChildrenOf(t, l.PID()), l.PID()) {
			if name := rig.ProcStatus(pid, "Name"); name == "sh" {
				continue
			}
			kb, _, _ := strings.Cut(rig.ProcStatus(pid, "RssAnon"), " ")
			n, _ := strconv.Atoi(kb)
			memory += n
		}
		begin := time.Now()
		_ = l.Stdin.Close()
		l.Wait()
		t.Logf("%-15s end with %d leftovers %v, %d KB of its own memory", s.name, leftovers, time.Since(begin).Round(time.Millisecond), memory)
	}
}
