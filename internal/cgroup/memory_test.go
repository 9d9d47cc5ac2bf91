package cgroup

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMemoryFiles(t *testing.T) {
	const one, two = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	oneFile, twoFile := "/memory.oom_control", "/memory.events"
	for what, c := range map[string][]string{ // the text, then the files
		"version 2":               {"0::/user.slice/x.scope\n", two + "/user.slice/x.scope" + twoFile, two + twoFile},
		"in its namespace":        {"0::/\n", two + twoFile, two + twoFile},
		"version 1":               {"9:pids:/p\n4:memory:/docker/1\n1:cpu:/c\n", one + "/docker/1" + oneFile, one + oneFile},
		"both, memory in 1":       {"0::/two\n4:cpu,memory:/one\n", one + "/one" + oneFile, one + oneFile},
		"both, memory in 2":       {"4:cpu:/one\n0::/two\n", two + "/two" + twoFile, two + twoFile},
		"out of its namespace":    {"0::/../other\n"},
		"a name with a colon":     {"0::/a:b\n", two + "/a:b" + twoFile, two + twoFile},
		"a name that is memory's": {"4:name=memory:/x\n"},
		"nothing":                 {""},
		"no cgroup":               {"0:\n\n:::\n0::relative\n"},
	} {
		check.MustRecord(t, what, memoryFiles(c[0]), c[1:]...)
	}
}

func TestMemory(t *testing.T) {
	counted := func(text string) string { return check.Put(t, t.TempDir()+"/memory.events", text, 0o600) }
	for what, c := range map[string]struct {
		m    Memory
		want uint64
		err  string
	}{
		"version 2":           {Memory{File: counted("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")}, 2, ""},
		"version 1":           {Memory{File: counted("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")}, 7, ""},
		"before Linux 4.13":   {Memory{File: counted("oom_kill_disable 0\nunder_oom 0\n")}, 0, "no count"},
		"no number":           {Memory{File: counted("oom_kill x\n")}, 0, `"x"`},
		"nothing":             {Memory{File: counted("")}, 0, "no count"},
		"no newline":          {Memory{File: counted("oom_kill 3")}, 3, ""},
		"5 since 3":           {Memory{counted("oom_kill 5\n"), 3}, 2, ""},
		"a count has fallen":  {Memory{counted("oom_kill 5\n"), 6}, 0, ""},
		"no cgroup":           {Memory{}, 0, "cgroup"},
		"a file that is gone": {Memory{File: t.TempDir() + "/none"}, 0, "none"},
	} {
		n, err := c.m.KilledSince()
		if n != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %v, want %d, %s", what, n, err, c.want, c.err)
		}
	}
	m := CountMemory()
	need.That(t, m.File != "", "a memory cgroup")
	if n, err := m.KilledSince(); n != 0 || err != nil {
		t.Errorf("since just now: %d, %v", n, err)
	}
}

func FuzzMemoryFiles(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	f.Add(string(own))
	f.Add("0::/../x\n4:memory:/..\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range memoryFiles(text) {
			if !strings.HasPrefix(file, "/sys/fs/cgroup") || strings.HasPrefix(file, "/sys/fs/cgroup/..") || strings.Contains(file, "/memory/../") {
				t.Errorf("%q: %s", text, file)
			}
		}
	})
}
