package proc

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMemoryFiles(t *testing.T) {
	const one, two = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	oneFile, twoFile := "/memory.oom_control", "/memory.events"
	for what, c := range map[string]struct {
		text string
		want []string
	}{
		"version 2":               {"0::/user.slice/x.scope\n", []string{two + "/user.slice/x.scope" + twoFile, two + twoFile}},
		"in its namespace":        {"0::/\n", []string{two + twoFile, two + twoFile}},
		"version 1":               {"9:pids:/p\n4:memory:/docker/1\n1:cpu:/c\n", []string{one + "/docker/1" + oneFile, one + oneFile}},
		"both, memory in 1":       {"0::/two\n4:cpu,memory:/one\n", []string{one + "/one" + oneFile, one + oneFile}},
		"both, memory in 2":       {"4:cpu:/one\n0::/two\n", []string{two + "/two" + twoFile, two + twoFile}},
		"out of its namespace":    {"0::/../other\n", nil},
		"a name with a colon":     {"0::/a:b\n", []string{two + "/a:b" + twoFile, two + twoFile}},
		"a name that is memory's": {"4:name=memory:/x\n", nil},
		"nothing":                 {"", nil},
		"no cgroup":               {"0:\n\n:::\n0::relative\n", nil},
	} {
		rig.Equal(t, what, memoryFiles(c.text), c.want)
	}
}

func TestKills(t *testing.T) {
	file := t.TempDir() + "/memory.events"
	for text, want := range map[string]int{
		"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n":                7,
		"oom_kill_disable 0\nunder_oom 0\n":                            -1, // before Linux 4.13
		"oom_kill x\n":                                                 -1,
		"":                                                             -1,
		"oom_kill 3":                                                   3,
	} {
		rig.Put(t, file, text, 0o600)
		count, err := kills(file)
		if got := int(count); (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestMemory(t *testing.T) {
	m := CountMemory()
	need.That(t, m.File != "", "a memory cgroup")
	file := rig.Put(t, t.TempDir()+"/memory.events", "oom_kill 5\n", 0o600)
	for what, c := range map[string]struct {
		m    Memory
		want uint64
		err  string
	}{
		"since just now":      {m, 0, ""},
		"a count has fallen":  {Memory{m.File, m.Count + 1}, 0, ""},
		"5 since 3":           {Memory{file, 3}, 2, ""},
		"no cgroup":           {Memory{}, 0, "cgroup"},
		"a file that is gone": {Memory{File: file + "/none"}, 0, "none"},
	} {
		n, err := c.m.KilledSince()
		if n != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %v, want %d, %s", what, n, err, c.want, c.err)
		}
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
