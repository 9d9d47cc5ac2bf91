package exhaustion

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// What was killed for memory is told from what was killed by somebody, and only where the kernel's count says
// so. $EAT is ended for memory.
func TestKilledForMemory(t *testing.T) {
	t.Parallel()
	const likely = "the kernel killed a process for memory in this cgroup (oom: likely)"
	for _, tt := range []struct {
		name     string
		flags    string
		script   string
		status   int
		says     string // "" for nothing of memory
		command  string // the report's verdict
		leftover string
	}{
		// There is room for fini all the same, and for what it does with a leftover.
		{"the command", "--linger=0", "setsid sleep 1000 & exec $EAT", 137, "the command was killed by SIGKILL; " + likely, "likely", ""},
		{"the shell's command", "", "$EAT; exit $?", 137, "the command exited with 137, as for SIGKILL; " + likely, "likely", ""},
		{"a leftover while it lingers", "--linger=10m", "(read go; exec $EAT) <$DIR/go & exec sh -c 'echo >$DIR/go'", 0, "was killed by SIGKILL; " + likely, "", ""},
		{"a leftover that was asked to end", "--linger=0 --orphans-grace=10m", "sh -c 'trap \"exec $EAT\" TERM; echo >$DIR/go; while :; do sleep 0.01; done' & read line <$DIR/go", 0,
			"was killed by SIGKILL; " + likely, "", "likely"},
		{"somebody else", "", "$EAT; exit 3", 3, "", "", ""},
		{"somebody else, and the command ends by another signal", "", "$EAT; kill -TERM $$", 143, "", "", ""},
		{"a plain kill -9", "", "kill -9 $$", 137, "", "", ""},
		{"a plain kill -9 of a leftover", "--linger=10m", "sleep 1000 & sh -c 'read go; kill -9 $0' $! <$DIR/go & exec sh -c 'echo >$DIR/go'", 0, "", "", ""},
		{"fini's own", "--timeout=100ms --grace=10ms", `trap "" TERM; sleep 1000; sleep 1000`, 124, "", "", ""},
		{"fini's own of a leftover, and somebody else", "--linger=0 --grace=10ms",
			`sh -c 'trap "" TERM; echo >$DIR/go; sleep 1000; sleep 1000' & read line <$DIR/go; $EAT; exit 0`, 0, "", "", ""},
	} {
		for _, p := range rig.Places {
			rig.Case(t, p == rig.Pair, tt.name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				if p.PID1 {
					rig.NeedPidNamespace(t)
				}
				var l *rig.Life
				var report string
				// The kernel takes a process for gone a moment before it has its memory back. If somebody wants some just then, it
				// kills another one, fini say, and what such a life shows is something else.
				for tries, kills := 0, 2; kills > 1 && tries < 5; tries++ {
					h := rig.NewMemoryCgroup(t, 48<<20)
					report = reports.Path(t)
					args := append(strings.Fields(tt.flags), "--report="+report, "--", "/bin/sh", "-c", "mkfifo $DIR/go; "+tt.script)
					cmd := h.Around(p, nil, args...)
					cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "EAT=tail /dev/zero")
					l = rig.StartCmd(t, cmd)
					_ = l.Status()
					kills = oomKills(h)
				}
				l.MustEnd(tt.status)
				said := l.Err.Whole()
				mustNotAbort(t, said)
				if strings.Contains(tt.script, "setsid") && !strings.Contains(said, "fini: stopping leftover ") {
					t.Errorf("says %q", said)
				}
				if count := strings.Count(said, "for memory"); count != min(len(tt.says), 1) || !strings.Contains(said, tt.says) {
					t.Errorf("says %q, want %q", said, tt.says)
				}
				r := reports.MustHave(t, report)
				verdict := func(oom *reports.OOM) string {
					if oom == nil {
						return ""
					}
					if !strings.Contains(oom.Reason, "oom_kill in /sys/fs/cgroup/") {
						t.Errorf("%+v", oom)
					}
					return oom.Verdict
				}
				leftover := ""
				for _, left := range r.Leftovers {
					leftover += verdict(left.OOM)
				}
				if command := verdict(r.Exit.OOM); command != tt.command || leftover != tt.leftover {
					t.Errorf("the command: %q, leftovers: %q, want %q and %q: %+v", command, leftover, tt.command, tt.leftover, r)
				}
			})
		}
	}
}

// oomKills is how many processes of the cgroup the kernel has killed for memory.
func oomKills(c *rig.Cgroup) (n int) {
	c.T.Helper()
	events, _ := os.ReadFile(filepath.Join(c.Dir, "memory.events"))
	control, _ := os.ReadFile(filepath.Join(c.Dir, "memory.oom_control"))
	_, rest, _ := strings.Cut(string(events)+string(control), "\noom_kill ")
	_, err := fmt.Sscan(rest, &n)
	rig.NoError(c.T, err)
	return n
}
