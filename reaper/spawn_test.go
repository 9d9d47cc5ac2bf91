package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"golang.org/x/sys/unix"
)

func TestCandidates(t *testing.T) {
	for what, c := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"PATH among others":  {"x", []string{"XPATH=/no", "PATHX=/no", "PATH=/a", "A=PATH=/no"}, []string{"/a/x"}},
		"PATH twice":         {"x", []string{"PATH=/a", "PATH=/no"}, []string{"/a/x"}},
		"relative entries":   {"x", []string{"PATH=a:.:../b"}, []string{"a/x", "./x", "../b/x"}},
		"entry with a slash": {"x", []string{"PATH=/a/"}, []string{"/a//x"}},
		"no PATH":            {"x", []string{"HOME=/"}, []string{"/bin/x", "/usr/bin/x"}},
		"name with a colon":  {"x:y", []string{"PATH=/a"}, []string{"/a/x:y"}},
	} {
		rig.Equal(t, what, candidates(c.file, c.env), c.want)
	}
}

// lay lays out files for a lookup, which can be executed. A text that begins with "-> " is a symbolic link, and one that
// begins with "0644 " a file that can't be executed.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		target, isLink := strings.CutPrefix(text, "-> ")
		rest, isPlain := strings.CutPrefix(text, "0644 ")
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case isLink:
			check(t, os.Symlink(target, path))
		case isPlain:
			rig.Put(t, path, rest, 0o644)
		default:
			rig.Put(t, path, text, 0o755)
		}
	}
}

// A script that tells which one it is and its arguments.
func script(interpreter, name string) string {
	return interpreter + "\nprintf '%s' " + name + ` > "$OUT"; printf ' [%s]' "$@" >> "$OUT"; exit 3` + "\n"
}

const shebang = "#!/bin/sh"

// wait4 waits for this very child, and returns its status as a shell gives it.
func wait4(t *testing.T, child Child) int {
	t.Helper()
	defer proc.Close(child.FD)
	p, err := os.FindProcess(child.Pid)
	check(t, err)
	state, err := p.Wait()
	check(t, err)
	return procfs.ShellStatus(state)
}

// statusOf runs a command, and returns the status that fini would exit with.
func statusOf(t *testing.T, c Command) (int, error) {
	t.Helper()
	c.Terminal = -1
	child, err := Spawn(c)
	if err == nil {
		return wait4(t, child), nil
	}
	failed := err.(*SpawnError)
	rig.Equal(t, "what the error is about", failed.Name, c.Args[0])
	return failed.Status, err
}

// envStatus is what env(1) makes of the same, which calls the C library's execvp.
func envStatus(t *testing.T, c Command) (int, error) {
	t.Helper()
	cmd := exec.Command(need.Program(t, "env"), c.Args...)
	cmd.Env = c.Env
	rig.Complete(t, cmd)
	return cmd.ProcessState.ExitCode(), nil
}

func TestSpawnLooksUpAsExecvp(t *testing.T) {
	type files = map[string]string
	noExec, noShell, good := "0644 "+script(shebang, "noexec"), script("#!/nonexistent/interpreter", "noshell"), script(shebang, "good")
	for what, c := range map[string]struct {
		files files
		path  string // PATH, where D stands for the directory
		args  []string
		ran   string // what the command says of itself
		want  int

		// Why env(1) gives another status for the same errno, where it does.
		unlikeEnv string
	}{
		"absolute":            {files{"x": good}, "", []string{"D/x", "1"}, "good [1]", 3, ""},
		"relative":            {files{"a/x": good}, "", []string{"a/x", "1"}, "good [1]", 3, ""},
		"through a link":      {files{"y": good, "x": "-> y"}, "D", []string{"x", "1"}, "good [1]", 3, ""},
		"first of two":        {files{"a/x": good, "b/x": script(shebang, "other")}, "D/a:D/b", []string{"x"}, "good []", 3, ""},
		"second entry":        {files{"b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"leading empty":       {files{"x": good}, ":D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"trailing empty":      {files{"x": good}, "D/b:", []string{"x", "1"}, "good [1]", 3, ""},
		"empty in the middle": {files{"x": good}, "D/a::D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"empty PATH":          {files{"x": good}, "", []string{"x", "1"}, "good [1]", 3, ""},
		"arguments as given": {files{"x": good}, "D", []string{"x", "", "a b", "-c", "--", "$HOME", "\n"},
			"good [] [a b] [-c] [--] [$HOME] [\n]", 3, ""},
		"after one without permission": {files{"a/x": noExec, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a directory":            {files{"a/x/y": "", "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a file for a directory": {files{"a": "0644 ", "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a dangling link":        {files{"a/x": "-> gone", "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a missing interpreter":  {files{"a/x": noShell, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after an entry past PATH_MAX": {files{"b/x": good}, "/" + strings.Repeat("x", 5000) + ":D/b", []string{"x", "1"}, "good [1]", 3, ""},

		"script without #!": {files{"x": script("", "bare")}, "D", []string{"x", "1", "a b", "-e"}, "bare [1] [a b] [-e]", 3, ""},
		"script without #!, in the working directory": {
			files{"x": script("", "bare")}, ":/bin", []string{"x", "1"}, "bare [1]", 3, ""},
		"empty executable": {files{"x": ""}, "D", []string{"x"}, "", 0, ""},
		"garbage": {files{"x": "\x00\x01\x02\xff\xfe garbage \x00\n\x7f"}, "D", []string{"x"}, "", 126,
			"it lets the shell try, and shells differ"},

		"not found":                {nil, "D", []string{"x"}, "", 127, ""},
		"not found, absolute":      {nil, "", []string{"D/x"}, "", 127, ""},
		"dangling link":            {files{"x": "-> gone"}, "D", []string{"x"}, "", 127, ""},
		"no permission":            {files{"x": noExec}, "D", []string{"x"}, "", 126, ""},
		"no permission, then none": {files{"a/x": noExec}, "D/a:D/b", []string{"x"}, "", 126, ""},
		"directory":                {files{"x/y": ""}, "D", []string{"x"}, "", 126, ""},
		"links in a circle":        {files{"x": "-> y", "y": "-> x"}, "D", []string{"x"}, "", 126, ""},
		"a name past NAME_MAX":     {nil, "D", []string{strings.Repeat("x", 300)}, "", 126, ""},
		"empty name":               {nil, "D", []string{""}, "", 127, ""},
		"missing interpreter": {files{"x": noShell}, "D", []string{"x"}, "", 126,
			"it reports ENOENT, and can't tell which file was meant"},
		"file for a directory": {files{"a": "0644 "}, "", []string{"D/a/x"}, "", 127,
			"it counts ENOTDIR as found"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, dir, c.files)
			t.Chdir(dir)
			args := slices.Clone(c.args)
			args[0] = strings.Replace(args[0], "D/", dir+"/", 1)
			run := func(status func(*testing.T, Command) (int, error)) (int, string, error) {
				out := filepath.Join(t.TempDir(), "out")
				path := strings.NewReplacer("D/", dir+"/", "D", dir).Replace(c.path)
				got, err := status(t, Command{Args: args, Env: []string{"HOME=/", "PATH=" + path, "OUT=" + out}})
				text, _ := os.ReadFile(out)
				return got, string(text), err
			}
			status, ran, err := run(statusOf)
			if status != c.want || ran != c.ran {
				t.Errorf("status %d, ran %q, %v; want status %d, %q", status, ran, err, c.want, c.ran)
			}
			if err != nil && !strings.Contains(err.Error(), quoted(args[0])) {
				t.Errorf("the error does not name the command: %v", err)
			}
			// An empty name is an assignment or nothing to env, never a command.
			if args[0] == "" {
				return
			}
			envGot, envRan, _ := run(envStatus)
			if c.unlikeEnv == "" && envGot != status || envRan != ran {
				t.Errorf("status %d, ran %q; under env(1) status %d, %q", status, ran, envGot, envRan)
			}
		})
	}
}

func TestSpawnErrorReads(t *testing.T) {
	for name, want := range map[string]string{"/a/x-1.2_3": "/a/x-1.2_3", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`} {
		rig.Equal(t, "the error", (&SpawnError{name, NotFound, errors.New("why")}).Error(), "cannot run "+want+": why")
	}
}

// The command has its name as it was given, and leads a process group.
func TestSpawnedCommand(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Symlink("/bin/sh", filepath.Join(dir, "tool")))
	const script = `read -r pid _ _ _ group _ </proc/$$/stat; test "$0 $group" = "tool $$" && exit 42`
	child, err := Spawn(Command{Args: []string{"tool", "-c", script}, Env: []string{"PATH=" + dir}, Terminal: -1})
	check(t, err)
	if child.FD >= 0 {
		check(t, unix.PidfdSendSignal(child.FD, 0, nil, 0))
		if flags, err := unix.FcntlInt(uintptr(child.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the child's pidfd has flags %#x, %v; want close-on-exec", flags, err)
		}
	}
	rig.Equal(t, "the status", wait4(t, child), 42)
}

// Where the kernel has nothing to give, the command was neither missing nor unfit.
func TestSpawnWithoutDescriptors(t *testing.T) {
	var before unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	_, err := statusOf(t, Command{Args: []string{"/bin/sh", "-c", "exit 0"}})
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	rig.Equal(t, "the error", err, &SpawnError{"/bin/sh", NoProcess, unix.EMFILE})
}

// A failed start leaves no zombie and no descriptor behind.
func TestFailedSpawnLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{"noexec": "0644 ", "noshell": script("#!/nonexistent/interpreter", "")})
	before := procfs.CountFDs(t, os.Getpid())
	for _, name := range []string{"none", "noexec", "noshell"} {
		for range 10 {
			if _, err := Spawn(Command{Args: []string{filepath.Join(dir, name)}, Terminal: -1}); err == nil {
				t.Fatalf("%s was started", name)
			}
		}
	}
	rig.Equal(t, "the number of descriptors", procfs.CountFDs(t, os.Getpid()), before)
	_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	rig.Equal(t, "wait4 without a child", err, unix.ECHILD)
}

// A group that has ended can't be joined. The child then stays in this process's group, and loses nothing else.
func TestSpawnIntoAGroupThatHasEnded(t *testing.T) {
	const none = 1<<22 - 1 // PID_MAX_LIMIT in proc_sys_kernel(5) is one more
	child, err := Spawn(Command{Args: []string{"/bin/true"}, Group: none, Deathsig: unix.SIGTERM, Terminal: -1})
	if err != nil || child.Ungrouped {
		t.Errorf("Spawn = %+v, %v; want a child that has its parent death signal", child, err)
	}
	wait4(t, child)
}

// A standard stream that was closed when fini started is closed in the child too, and only that one.
func TestSpawnKeepsClosedStreams(t *testing.T) {
	const script = `n=0; for fd in 0 1 2; do n=$((n * 2)); test -e /proc/$$/fd/$fd && n=$((n + 1)); done; exit $n`
	for closed, want := range map[[3]bool]int{
		{}:                   0b111,
		{true}:               0b011,
		{false, true}:        0b101,
		{false, false, true}: 0b110,
		{true, true, true}:   0b000,
	} {
		got, _ := statusOf(t, Command{Args: []string{"/bin/sh", "-c", script}, Closed: closed})
		rig.Equal(t, fmt.Sprint("streams closed: ", closed), got, want)
	}
}

// The child starts with the signals blocked that were blocked when fini started, whatever this thread blocks; and this
// thread blocks the same signals as before.
func TestSpawnKeepsBlockedSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blocked := func(how int, set uint64) uint64 {
		var sigs, before unix.Sigset_t
		*(*uint64)(unsafe.Pointer(&sigs)) = set
		check(t, unix.PthreadSigmask(how, &sigs, &before))
		return *(*uint64)(unsafe.Pointer(&before))
	}
	const usr1, others = 1 << (unix.SIGUSR1 - 1), 1<<(unix.SIGTERM-1) | 1<<(40-1)
	before := blocked(unix.SIG_SETMASK, usr1)
	defer func() { blocked(unix.SIG_SETMASK, before) }()
	for _, c := range []struct {
		blocked *uint64
		want    uint64
	}{{nil, usr1}, {new(uint64), 0}, {&[]uint64{others}[0], others}} {
		script := fmt.Sprintf(`while read -r key value; do test "$key $value" = "SigBlk: %016x" && exit 42; done </proc/$$/status`, c.want)
		got, _ := statusOf(t, Command{Args: []string{"/bin/sh", "-c", script}, Blocked: c.blocked})
		rig.Equal(t, "the status of the child", got, 42)
		rig.Equal(t, "what this thread blocks after the start", blocked(unix.SIG_BLOCK, 0), uint64(usr1))
	}
}
