package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

func init() {
	moreHelpers["@eat"] = helperEat
}

// helperEat takes memory until it is killed for it.
func helperEat([]string) int {
	var all [][]byte
	for range 1 << 20 {
		part := make([]byte, 1<<20)
		for i := 0; i < len(part); i += 4096 {
			part[i] = 1
		}
		all = append(all, part)
	}
	return len(all)
}

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
		{"the command", "", "exec $EAT", 137, "the command was ended by SIGKILL; " + likely, "likely", ""},
		{"the shell's command", "", "$EAT; exit $?", 137, "the command exited with 137, as for SIGKILL; " + likely, "likely", ""},
		{"a leftover while it lingers", "--linger=20s", "(read go; exec $EAT) <$DIR/go & exec sh -c 'echo >$DIR/go'", 0, "was ended by SIGKILL; " + likely, "", ""},
		{"a leftover that was asked to end", "--linger=0 --grace=20s", "sh -c 'trap \"exec $EAT\" TERM; echo >$DIR/go; while :; do sleep 0.01; done' & read line <$DIR/go", 0,
			"was ended by SIGKILL; " + likely, "", "likely"},
		{"somebody else", "", "$EAT; exit 3", 3, "", "", ""},
		{"somebody else, and the command ends by another signal", "", "$EAT; kill -TERM $$", 143, "", "", ""},
		{"a plain kill -9", "", "kill -9 $$", 137, "", "", ""},
		{"a plain kill -9 of a leftover", "--linger=20s", "sleep 1000 & sh -c 'read go; kill -9 $0' $! <$DIR/go & exec sh -c 'echo >$DIR/go'", 0, "", "", ""},
		{"fini's own", "--timeout=100ms --grace=10ms", `trap "" TERM; sleep 1000; sleep 1000`, 124, "", "", ""},
		{"fini's own of a leftover, and somebody else", "--linger=0 --grace=10ms",
			`sh -c 'trap "" TERM; echo >$DIR/go; sleep 1000; sleep 1000' & read line <$DIR/go; $EAT; exit 0`, 0, "", "", ""},
	} {
		for _, p := range places {
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if p.pid1 {
					needPidNamespace(t)
				}
				var report string
				_, l := oneVictim(func() (*cgroup, *life) {
					h := newMemoryCgroup(t, 96<<20)
					report = reportPath(t)
					args := append(strings.Fields(tt.flags), "--report="+report, "--", "/bin/sh", "-c", "mkfifo $DIR/go; "+tt.script)
					cmd := h.around(p, nil, args...)
					cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "EAT="+strings.Join(mode("eat"), " "))
					return h, startCmd(t, cmd)
				})
				l.mustEnd(tt.status)
				said := l.Err.whole()
				if count := strings.Count(said, "for memory"); count != min(len(tt.says), 1) || !strings.Contains(said, tt.says) {
					t.Errorf("says %q, want %q", said, tt.says)
				}
				r := mustHaveReport(t, report)
				mustBeVerdict(t, "command", r.Exit.OOM, tt.command)
				verdict := ""
				for _, left := range r.Leftovers {
					if left.OOM != nil {
						verdict += left.OOM.Verdict
					}
				}
				if verdict != tt.leftover {
					t.Errorf("leftovers: %q, want %q: %+v", verdict, tt.leftover, r.Leftovers)
				}
			})
		}
	}
}

func mustBeVerdict(t *testing.T, whose string, got *oomReported, want string) {
	t.Helper()
	switch {
	case want == "" && got != nil:
		t.Errorf("%s: %+v, want none", whose, *got)
	case want != "" && (got == nil || got.Verdict != want || !strings.Contains(got.Reason, "oom_kill in /sys/fs/cgroup/")):
		t.Errorf("%s: %+v, want %s", whose, got, want)
	}
}

// PID 1 of a real container says it too: its cgroup may be mounted under another path than it has.
func TestContainerKilledForMemory(t *testing.T) {
	t.Parallel()
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	busybox := need.Program(t, "busybox")
	need.That(t, isStatic(busybox), "a static busybox (busybox-static)")
	image := buildExample(t, busybox)
	for _, namespace := range []string{"host", "private"} {
		_, _, stderr := ask(t, dockerCommand(t, "run", "--rm", "--memory=32m", "--cgroupns="+namespace, "--entrypoint=/fini", image.whole,
			"--", "tail", "/dev/zero"))
		if !strings.Contains(stderr, "fini: the command was ended by SIGKILL; the kernel killed a process for memory") {
			t.Errorf("--cgroupns=%s: %q", namespace, stderr)
		}
	}
}
