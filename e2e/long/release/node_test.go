package release

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// A kind of Node runs fini in its place, or has it as its child.
type nodeKind struct {
	Name string
	Stay bool
	Env  []string // with which `node` is this one
}

// nodeKinds are both, whatever the Node of this machine is.
func nodeKinds(t *testing.T) []nodeKind {
	t.Helper()
	node := need.Program(t, "node")
	without := preload(t, "delete process.execve")
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	folder, err := filepath.Abs("testdata/node/node_modules/node-linux-" + arch + "/bin")
	rig.NoError(t, err)
	_, err = os.Stat(filepath.Join(folder, "node"))
	need.That(t, err == nil, "a Node with process.execve (npm ci --prefix e2e/testdata/node)")
	return []nodeKind{
		{"child", true, []string{"PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"), without}},
		{"execve", false, []string{"PATH=" + folder + ":" + os.Getenv("PATH")}},
	}
}

// preload is a variable by which Node runs a script before its own.
func preload(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "preload.cjs")
	rig.NoError(t, os.WriteFile(name, []byte(script), 0o644))
	return "NODE_OPTIONS=--require=" + name
}

// Variables is the environment for a host.
func (k nodeKind) Variables(t *testing.T) clients.Variables {
	env := clients.Offline(t)
	for _, line := range k.Env {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

// zombiesIn counts them. Version 1 of cgroups lists them, and so does version 2, but for threads.
func zombiesIn(c *rig.Cgroup) (n int) {
	text, _ := os.ReadFile(filepath.Join(c.Dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(text)) {
		if procfs.ReadStat("/proc/"+pid+"/stat").State() == 'Z' {
			n++
		}
	}
	return n
}
