package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

func init() {
	moreHelpers["@eat"] = helperEat
	moreHelpers["@enter"] = helperEnter
}

// helperEnter enters the cgroup that a file is of and becomes a command.
func helperEnter(args []string) int {
	err := os.WriteFile(args[0], []byte("0"), 0)
	if err == nil {
		err = syscall.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@enter:", err)
	return 98
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

var memoryGroups atomic.Int64

// memoryGroup makes a memory cgroup with a limit of 96 MB, below that of this process, and returns the
// file that a process enters it by.
func memoryGroup(t *testing.T) (procs string) {
	t.Helper()
	need.That(t, os.Geteuid() == 0, "root")
	root, limit := "/sys/fs/cgroup", "memory.max"
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if strings.Contains(","+fields[1]+",", ",memory,") {
			root, limit = filepath.Join(root, "memory", fields[2]), "memory.limit_in_bytes"
		}
	}
	dir := filepath.Join(root, fmt.Sprintf("fini-e2e-%d-%d", os.Getpid(), memoryGroups.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		need.That(t, false, fmt.Sprintf("a memory cgroup (%v)", err))
	}
	t.Cleanup(func() {
		until(t, "the cgroup's end: it is in use", func() bool { return os.Remove(dir) == nil })
	})
	if err := os.WriteFile(filepath.Join(dir, limit), []byte("96M"), 0); err != nil {
		need.That(t, false, fmt.Sprintf("a memory cgroup with a limit (%v)", err))
	}
	for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} {
		if _, err := os.Stat(filepath.Join(dir, swap)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, swap), []byte("96M"), 0)
		}
	}
	return filepath.Join(dir, "cgroup.procs")
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
				procs := memoryGroup(t)
				if p.pid1 {
					needPidNamespace(t)
				}
				report := reportPath(t)
				args := append(strings.Fields(tt.flags), "--report="+report, "--", "/bin/sh", "-c", "mkfifo $DIR/go; "+tt.script)
				inner := p.command(args...)
				argv := mode("enter", append([]string{procs}, inner.Args...)...)
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.SysProcAttr = inner.SysProcAttr
				cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "EAT="+strings.Join(mode("eat"), " "))
				l := startCmd(t, cmd)
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
