// Package recipes runs what the pages tell users to run: the blocks of a page, in a directory with stand-ins for
// the programs that they call.
package recipes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A recipeDir is a directory in which a recipe is run, with stand-ins on PATH, and fini.
type Dir struct {
	t      *testing.T
	Dir    string
	Cgroup *rig.Cgroup
	Env    []string
}

func NewDir(t *testing.T, standIns map[string]string) *Dir {
	t.Helper()
	k := &Dir{t: t, Dir: t.TempDir(), Cgroup: rig.NewCgroup(t)}
	for name, script := range standIns {
		k.File("bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
	}
	k.Env = append(os.Environ(), "GOCACHE="+GoCache(t), "FINI_GRACE=20s", "FINI_ORPHANS_GRACE=20s", // on a busy machine 5 s may be too little; and who lost its SIGTERM in a fork is killed then
		"PATH="+filepath.Join(k.Dir, "bin")+":"+filepath.Dir(rig.Fini)+":"+os.Getenv("PATH"))
	return k
}

func (k *Dir) File(name, text string, mode os.FileMode) string {
	k.t.Helper()
	return rig.Put(k.t, filepath.Join(k.Dir, name), text, mode)
}

func (k *Dir) Start(argv ...string) *rig.Life {
	k.t.Helper()
	cmd := rig.CommandOf(k.Cgroup.Wrap(argv...))
	cmd.Dir, cmd.Env = k.Dir, k.Env
	return rig.StartCmd(k.t, cmd)
}

// MustBeEmpty waits for the end of all that was started.
func (k *Dir) MustBeEmpty() {
	k.t.Helper()
	rig.Until(k.t, "nothing runs any more", func() bool { return len(k.Cgroup.Alive()) == 0 })
}

// MustLeaveNothing asserts that all ends with what was started, and returns what it wrote.
func (k *Dir) MustLeaveNothing(l *rig.Life, status int) string {
	k.t.Helper()
	out := l.Out.Whole() // to EOF
	if got := l.Status(); got != status {
		k.t.Errorf("status %d, want %d; stdout %s; stderr %s", got, status, out, l.Err.Text())
	}
	if left := k.Cgroup.Names(); len(left) > 0 {
		k.t.Errorf("still running: %q; stderr: %s", left, l.Err.Text())
	}
	return out
}

// A leaky script ends at once, and leaves a process behind that holds its output.
const Leaky = "setsid sleep 1000 & echo done"
