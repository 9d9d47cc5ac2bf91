package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestCandidates(t *testing.T) {
	for what, c := range map[string]struct{ file, env, want string }{
		"PATH among others":  {"x", "XPATH=/no PATHX=/no PATH=/a A=PATH=/no", "/a/x"},
		"PATH twice":         {"x", "PATH=/a PATH=/no", "/a/x"},
		"relative entries":   {"x", "PATH=a:.:../b", "a/x ./x ../b/x"},
		"entry with a slash": {"x", "PATH=/a/", "/a//x"},
		"no PATH":            {"x", "HOME=/", "/bin/x /usr/bin/x"},
		"name with a colon":  {"x:y", "PATH=/a", "/a/x:y"},
	} {
		check.Equal(t, what, candidates(c.file, strings.Fields(c.env)), strings.Fields(c.want))
	}
}

// A script that tells which one it is and its arguments.
func script(firstLine, name string) string {
	return firstLine + "\nprintf '%s' " + name + ` > "$OUT"; printf ' [%s]' "$@" >> "$OUT"; exit 3` + "\n"
}

// wait4 waits for this very child, and returns its exit status.
func wait4(t *testing.T, child Child) int {
	t.Helper()
	var status unix.WaitStatus
	_, err := unix.Wait4(child.Pid, &status, 0, nil)
	check.NoError(t, err)
	calls.Close(child.FD)
	return status.ExitStatus()
}

// statusOf runs a command, and returns the status that fini would exit with. A failed start leaves no zombie and no
// descriptor behind.
func statusOf(t *testing.T, c Command) (int, error) {
	t.Helper()
	c.Terminal = -1
	before := procfs.CountFDs(t, os.Getpid())
	child, err := Spawn(c)
	if err == nil {
		return wait4(t, child), nil
	}
	_, none := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	check.Equal(t, "wait4 without a child", none, unix.ECHILD)
	check.Equal(t, "the number of descriptors", procfs.CountFDs(t, os.Getpid()), before)
	failed := err.(*SpawnError)
	check.Equal(t, "what the error is about", failed.Name, c.Args[0])
	return failed.Status, err
}

// envStatus is what env(1) makes of the same, which calls the C library's execvp.
func envStatus(t *testing.T, c Command) (int, error) {
	t.Helper()
	cmd := exec.Command(need.Program(t, "env"), c.Args...)
	cmd.Env = c.Env
	check.Complete(t, cmd)
	return cmd.ProcessState.ExitCode(), nil
}

func TestSpawnLooksUpAsExecvp(t *testing.T) {
	type files = map[string]string
	type end struct {
		status int
		ran    string // what the command says of itself
	}
	good, other, noExec := script("#!/bin/sh", "good"), script("#!/bin/sh", "other"), "0644 "+script("#!/bin/sh", "noexec")
	bare, noShell := script("", "bare"), script("#!/nonexistent/interpreter", "noshell")
	runs, notFound, notExecutable := end{3, "good [1]"}, end{127, ""}, end{126, ""}
	unlikeEnv := map[string]string{ // why env(1) gives another status for the same errno
		"garbage":             "it lets the shell try, and shells differ",
		"missing interpreter": "it reports ENOENT, and can't tell which file was meant",
	}
	for what, c := range map[string]struct {
		files   files  // executable, unless a text begins with "0644 "; one that begins with "-> " is a symbolic link
		path    string // PATH, where D stands for the directory
		command string // its words, with | between
		want    end
	}{
		"absolute":            {files{"x": good}, "", "D/x|1", runs},
		"relative":            {files{"a/x": good}, "", "a/x|1", runs},
		"through a link":      {files{"y": good, "x": "-> y"}, "D", "x|1", runs},
		"first of two":        {files{"a/x": good, "b/x": other}, "D/a:D/b", "x|1", runs},
		"second entry":        {files{"b/x": good}, "D/a:D/b", "x|1", runs},
		"leading empty":       {files{"x": good}, ":D/b", "x|1", runs},
		"trailing empty":      {files{"x": good}, "D/b:", "x|1", runs},
		"empty in the middle": {files{"x": good}, "D/a::D/b", "x|1", runs},
		"empty PATH":          {files{"x": good}, "", "x|1", runs},
		"no arguments":        {files{"x": good}, "D", "x", end{3, "good []"}},
		"arguments as given":  {files{"x": good}, "D", "x||a b|-c|--|$HOME|\n", end{3, "good [] [a b] [-c] [--] [$HOME] [\n]"}},

		"after one without permission": {files{"a/x": noExec, "b/x": good}, "D/a:D/b", "x|1", runs},
		"after a directory":            {files{"a/x/y": "", "b/x": good}, "D/a:D/b", "x|1", runs},
		"after a file for a directory": {files{"a": "0644 ", "b/x": good}, "D/a:D/b", "x|1", runs},
		"after a dangling link":        {files{"a/x": "-> gone", "b/x": good}, "D/a:D/b", "x|1", runs},
		"after a missing interpreter":  {files{"a/x": noShell, "b/x": good}, "D/a:D/b", "x|1", runs},
		"after an entry past PATH_MAX": {files{"b/x": good}, "/" + strings.Repeat("x", 5000) + ":D/b", "x|1", runs},

		"script without #!":                           {files{"x": bare}, "D", "x|1|a b|-e", end{3, "bare [1] [a b] [-e]"}},
		"script without #!, in the working directory": {files{"x": bare}, ":/bin", "x|1", end{3, "bare [1]"}},
		"empty executable":                            {files{"x": ""}, "D", "x", end{0, ""}},
		"garbage":                                     {files{"x": "\x00\x01\x02\xff\xfe garbage \x00\n\x7f"}, "D", "x", notExecutable},

		"not found":                {nil, "D", "x", notFound},
		"not found, absolute":      {nil, "", "D/x", notFound},
		"dangling link":            {files{"x": "-> gone"}, "D", "x", notFound},
		"file for a directory":     {files{"a": "0644 "}, "", "D/a/x", notExecutable},
		"file with a slash":        {files{"a": good}, "", "D/a/", notExecutable},
		"empty name":               {nil, "D", "", notFound},
		"no permission":            {files{"x": noExec}, "D", "x", notExecutable},
		"no permission, then none": {files{"a/x": noExec}, "D/a:D/b", "x", notExecutable},
		"directory":                {files{"x/y": ""}, "D", "x", notExecutable},
		"links in a circle":        {files{"x": "-> y", "y": "-> x"}, "D", "x", notExecutable},
		"a name past NAME_MAX":     {nil, "D", strings.Repeat("x", 300), notExecutable},
		"missing interpreter":      {files{"x": noShell}, "D", "x", notExecutable},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(dir, name)
				check.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				if target, isLink := strings.CutPrefix(text, "-> "); isLink {
					check.NoError(t, os.Symlink(target, path))
				} else if text, isPlain := strings.CutPrefix(text, "0644 "); isPlain {
					check.Put(t, path, text, 0o644)
				} else {
					check.Put(t, path, text, 0o755)
				}
			}
			t.Chdir(dir)
			inDir := strings.NewReplacer("D", dir).Replace
			args := strings.Split(inDir(c.command), "|")
			run := func(statusOf func(*testing.T, Command) (int, error)) (end, error) {
				out := filepath.Join(t.TempDir(), "out")
				status, err := statusOf(t, Command{Args: args, Env: []string{"HOME=/", "PATH=" + inDir(c.path), "OUT=" + out}})
				text, _ := os.ReadFile(out)
				return end{status, string(text)}, err
			}
			got, err := run(statusOf)
			check.Equal(t, "its end", got, c.want)
			if err != nil && !strings.Contains(err.Error(), quoted(args[0])) {
				t.Errorf("the error does not name the command: %v", err)
			}
			if args[0] == "" { // an assignment or nothing to env, never a command
				return
			}
			like, _ := run(envStatus)
			if unlikeEnv[what] != "" {
				like.status = got.status
			}
			check.Equal(t, "its end under env(1)", like, got)
		})
	}
}

func TestSpawnErrorReads(t *testing.T) {
	for name, want := range map[string]string{"/a/x-1.2_3": "/a/x-1.2_3", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`} {
		check.Equal(t, "the error", (&SpawnError{name, NotFound, errors.New("why")}).Error(), "cannot run "+want+": why")
	}
}

// The command has its name as it was given, and leads a process group.
func TestSpawnedCommand(t *testing.T) {
	dir := t.TempDir()
	check.NoError(t, os.Symlink("/bin/sh", filepath.Join(dir, "tool")))
	const script = `read -r pid _ _ _ group _ </proc/$$/stat; test "$0 $group" = "tool $$" && exit 42`
	child, err := Spawn(Command{Args: []string{"tool", "-c", script}, Env: []string{"PATH=" + dir}, Terminal: -1})
	check.NoError(t, err)
	if child.FD >= 0 {
		check.NoError(t, unix.PidfdSendSignal(child.FD, 0, nil, 0))
		flags, err := unix.FcntlInt(uintptr(child.FD), unix.F_GETFD, 0)
		check.NoError(t, err)
		check.Equal(t, "the flags of the child's pidfd", flags, unix.FD_CLOEXEC)
	}
	check.Equal(t, "the status", wait4(t, child), 42)
}

// Where the kernel has nothing to give, the command was neither missing nor unfit.
func TestSpawnWithoutDescriptors(t *testing.T) {
	var before unix.Rlimit
	check.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	check.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	_, err := Spawn(Command{Args: []string{"/bin/sh", "-c", "exit 0"}, Terminal: -1})
	check.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	check.Equal(t, "the error", err, &SpawnError{"/bin/sh", NoProcess, unix.EMFILE})
}

// A group that has ended can't be joined. The child then stays in this process's group, and loses nothing else.
func TestSpawnIntoAGroupThatHasEnded(t *testing.T) {
	const none = 1<<22 - 1 // PID_MAX_LIMIT in proc_sys_kernel(5) is one more
	child, err := Spawn(Command{Args: []string{"/bin/true"}, PGID: none, Deathsig: unix.SIGTERM, Terminal: -1})
	check.NoError(t, err)
	check.Equal(t, "it has no parent death signal", child.Ungrouped, false)
	wait4(t, child)
}

// The child starts with the signals blocked that were blocked when fini started, whatever this thread blocks; and this
// thread blocks the same signals as before.
func TestSpawnKeepsBlockedSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blocked := func(how int, set uint64) uint64 {
		var sigs, before unix.Sigset_t
		*(*uint64)(unsafe.Pointer(&sigs)) = set
		check.NoError(t, unix.PthreadSigmask(how, &sigs, &before))
		return *(*uint64)(unsafe.Pointer(&before))
	}
	const usr1, others = 1 << (unix.SIGUSR1 - 1), 1<<(unix.SIGTERM-1) | 1<<(40-1)
	before := blocked(unix.SIG_SETMASK, usr1)
	defer func() { blocked(unix.SIG_SETMASK, before) }()
	for want, given := range map[uint64]*uint64{usr1: nil, 0: new(uint64), others: new(uint64(others))} {
		script := fmt.Sprintf(`while read -r key value; do test "$key $value" = "SigBlk: %016x" && exit 42; done </proc/$$/status`, want)
		got, _ := statusOf(t, Command{Args: []string{"/bin/sh", "-c", script}, Blocked: given})
		check.Equal(t, "the status of the child", got, 42)
		check.Equal(t, "what this thread blocks after the start", blocked(unix.SIG_BLOCK, 0), uint64(usr1))
	}
}
