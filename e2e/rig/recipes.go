package rig

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A recipeDir is a directory in which a recipe is run, with stand-ins on PATH, and fini.
type recipeDir struct {
	t      *testing.T
	Dir    string
	Cgroup *Cgroup
	Env    []string
}

func NewRecipeDir(t *testing.T, standIns map[string]string) *recipeDir {
	t.Helper()
	k := &recipeDir{t: t, Dir: t.TempDir(), Cgroup: NewCgroup(t)}
	for name, script := range standIns {
		k.File("bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
	}
	k.Env = append(os.Environ(), "FINI_GRACE=20s", // on a busy machine 5 s may be too little; and who lost its SIGTERM in a fork is killed then
		"PATH="+filepath.Join(k.Dir, "bin")+":"+filepath.Dir(Fini)+":"+os.Getenv("PATH"))
	return k
}

func (k *recipeDir) File(name, text string, mode os.FileMode) string {
	k.t.Helper()
	return Put(k.t, filepath.Join(k.Dir, name), text, mode)
}

// Put writes a file, and makes its folder if there is none. It returns the name.
func Put(t testing.TB, name, text string, mode os.FileMode) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = WriteProgram(name, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// WriteProgram is os.WriteFile for a program. No test beside this one forks meanwhile: until that test's child executes
// something, the child has the file open too, and a file that is open for writing is not executed. See ETXTBSY in execve(2).
func WriteProgram(path string, text []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, mode)
}

func (k *recipeDir) Start(argv ...string) *Life {
	k.t.Helper()
	cmd := CommandOf(k.Cgroup.Wrap(argv...))
	cmd.Dir, cmd.Env = k.Dir, k.Env
	return StartCmd(k.t, cmd)
}

// MustBeEmpty waits for the end of all that was started.
func (k *recipeDir) MustBeEmpty() {
	k.t.Helper()
	Until(k.t, "nothing runs any more", func() bool { return len(k.Cgroup.Alive()) == 0 })
}

// MustLeaveNothing asserts that all ends with what was started, and returns what it wrote.
func (k *recipeDir) MustLeaveNothing(l *Life, status int) string {
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
