package reaper

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"golang.org/x/sys/unix"
)

func TestCandidates(t *testing.T) {
	for what, c := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"PATH among others":   {"x", []string{"XPATH=/no", "PATHX=/no", "PATH=/a", "A=PATH=/no"}, []string{"/a/x"}},
		"PATH twice":          {"x", []string{"PATH=/a", "PATH=/no"}, []string{"/a/x"}},
		"relative entries":    {"x", []string{"PATH=a:.:../b"}, []string{"a/x", "./x", "../b/x"}},
		"entry with a slash":  {"x", []string{"PATH=/a/"}, []string{"/a//x"}},
		"no PATH":             {"x", []string{"HOME=/"}, []string{"/bin/x", "/usr/bin/x"}},
		"empty entries alone": {"x", []string{"PATH=:"}, []string{"x", "x"}},
		"slash at the end":    {"x/", []string{"PATH=/a"}, []string{"x/"}},
		"name with a colon":   {"x:y", []string{"PATH=/a"}, []string{"/a/x:y"}},
		"empty name":          {"", []string{"PATH=/a"}, nil},
	} {
		if got := candidates(c.file, c.env); !slices.Equal(got, c.want) {
			t.Errorf("%s: candidates(%q, %q) = %q, want %q", what, c.file, c.env, got, c.want)
		}
	}
}

// lay lays out files for a lookup. A name that ends in "/" is a directory, a text
// that begins with "-> " a symbolic link.
func lay(t *testing.T, dir string, files map[string]laid) {
	t.Helper()
	for name, e := range files {
		path := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(e.text, "-> "); ok {
			check(t, os.Symlink(target, path))
		} else if strings.HasSuffix(name, "/") {
			check(t, os.MkdirAll(path, 0o755))
		} else {
			check(t, os.WriteFile(path, []byte(e.text), e.mode))
		}
	}
}

type laid struct {
	text string
	mode os.FileMode
}

// A script that tells which one it is and its arguments.
func script(interpreter, name string) laid {
	return laid{interpreter + "\nprintf '%s' " + name + ` > "$OUT"; printf ' [%s]' "$@" >> "$OUT"; exit 3` + "\n", 0o755}
}

const shebang = "#!/bin/sh"

// wait4 waits for this very child, and returns its status as a shell gives it.
func wait4(t *testing.T, child Child) int {
	t.Helper()
	if child.FD >= 0 {
		defer func() { _ = unix.Close(child.FD) }()
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(child.Pid, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			t.Fatal(err)
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// statusOf runs a command in env and returns the status that fini would exit with.
func statusOf(t *testing.T, args, env []string) (int, error) {
	t.Helper()
	child, err := Spawn(Command{Args: args, Env: env, Terminal: -1})
	if err == nil {
		return wait4(t, child), nil
	}
	var failed *SpawnError
	if !errors.As(err, &failed) {
		t.Fatalf("the error is a %T, want a *SpawnError: %v", err, err)
	}
	if failed.Name != args[0] {
		t.Errorf("the error is about %q, want %q", failed.Name, args[0])
	}
	return failed.Status, err
}

// envStatus is what env(1) makes of the same, which calls the C library's execvp.
func envStatus(t *testing.T, args, env []string) int {
	t.Helper()
	path := "/usr/bin/env"
	_, err := os.Stat(path)
	need.That(t, err == nil, path)
	cmd := exec.Command(path, args...)
	cmd.Env = env
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestSpawnLooksUpAsExecvp(t *testing.T) {
	garbage := laid{"\x00\x01\x02\xff\xfe garbage \x00\n\x7f", 0o755}
	noExec := script(shebang, "noexec")
	noExec.mode = 0o644
	noShell := script("#!/nonexistent/interpreter", "noshell")
	good := script(shebang, "good")
	for what, c := range map[string]struct {
		files map[string]laid
		path  string // PATH, where D stands for the directory
		args  []string
		ran   string // what the command says of itself
		want  int

		// Why env(1) gives another status for the same errno, where it does.
		unlikeEnv string
	}{
		"absolute":            {map[string]laid{"x": good}, "", []string{"D/x", "1"}, "good [1]", 3, ""},
		"relative":            {map[string]laid{"a/x": good}, "", []string{"a/x", "1"}, "good [1]", 3, ""},
		"through a link":      {map[string]laid{"y": good, "x": {"-> y", 0}}, "D", []string{"x", "1"}, "good [1]", 3, ""},
		"first of two":        {map[string]laid{"a/x": good, "b/x": script(shebang, "other")}, "D/a:D/b", []string{"x"}, "good []", 3, ""},
		"second entry":        {map[string]laid{"b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"leading empty":       {map[string]laid{"x": good}, ":D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"trailing empty":      {map[string]laid{"x": good}, "D/b:", []string{"x", "1"}, "good [1]", 3, ""},
		"empty in the middle": {map[string]laid{"x": good}, "D/a::D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"empty PATH":          {map[string]laid{"x": good}, "", []string{"x", "1"}, "good [1]", 3, ""},
		"arguments as given": {map[string]laid{"x": good}, "D", []string{"x", "", "a b", "-c", "--", "$HOME", "\n"},
			"good [] [a b] [-c] [--] [$HOME] [\n]", 3, ""},
		"after one without permission": {map[string]laid{"a/x": noExec, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a directory":            {map[string]laid{"a/x/": {}, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a file for a directory": {map[string]laid{"a": {"", 0o644}, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a dangling link":        {map[string]laid{"a/x": {"-> gone", 0}, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after a missing interpreter":  {map[string]laid{"a/x": noShell, "b/x": good}, "D/a:D/b", []string{"x", "1"}, "good [1]", 3, ""},
		"after an entry past PATH_MAX": {map[string]laid{"b/x": good}, "/" + strings.Repeat("x", 5000) + ":D/b", []string{"x", "1"}, "good [1]", 3, ""},

		"script without #!": {map[string]laid{"x": script("", "bare")}, "D", []string{"x", "1", "a b", "-e"}, "bare [1] [a b] [-e]", 3, ""},
		"script without #!, in the working directory": {
			map[string]laid{"x": script("", "bare")}, ":/bin", []string{"x", "1"}, "bare [1]", 3, ""},
		"empty executable": {map[string]laid{"x": {"", 0o755}}, "D", []string{"x"}, "", 0, ""},
		"garbage": {map[string]laid{"x": garbage}, "D", []string{"x"}, "", 126,
			"it lets the shell try, and shells differ"},

		"not found":                {nil, "D", []string{"x"}, "", 127, ""},
		"not found, absolute":      {nil, "", []string{"D/x"}, "", 127, ""},
		"dangling link":            {map[string]laid{"x": {"-> gone", 0}}, "D", []string{"x"}, "", 127, ""},
		"no permission":            {map[string]laid{"x": noExec}, "D", []string{"x"}, "", 126, ""},
		"no permission, then none": {map[string]laid{"a/x": noExec}, "D/a:D/b", []string{"x"}, "", 126, ""},
		"directory":                {map[string]laid{"x/": {}}, "D", []string{"x"}, "", 126, ""},
		"links in a circle":        {map[string]laid{"x": {"-> y", 0}, "y": {"-> x", 0}}, "D", []string{"x"}, "", 126, ""},
		"a name past NAME_MAX":     {nil, "D", []string{strings.Repeat("x", 300)}, "", 126, ""},
		"empty name":               {nil, "D", []string{""}, "", 127, ""},
		"missing interpreter": {map[string]laid{"x": noShell}, "D", []string{"x"}, "", 126,
			"it reports ENOENT, and can't tell which file was meant"},
		"file for a directory": {map[string]laid{"a": {"", 0o644}}, "", []string{"D/a/x"}, "", 127,
			"it counts ENOTDIR as found"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, dir, c.files)
			t.Chdir(dir)
			var args []string
			for _, arg := range c.args {
				args = append(args, strings.Replace(arg, "D/", dir+"/", 1))
			}
			run := func(status func(args, env []string) (int, error)) (int, string, error) {
				out := filepath.Join(t.TempDir(), "out")
				path := strings.NewReplacer("D/", dir+"/", "D", dir).Replace(c.path)
				got, err := status(args, []string{"HOME=/", "PATH=" + path, "OUT=" + out})
				text, readErr := os.ReadFile(out)
				if readErr != nil && !os.IsNotExist(readErr) {
					t.Fatal(readErr)
				}
				return got, string(text), err
			}
			status, ran, err := run(func(args, env []string) (int, error) { return statusOf(t, args, env) })
			if c.want >= 0 && status != c.want || ran != c.ran {
				t.Errorf("status %d, ran %q, %v; want status %d, %q", status, ran, err, c.want, c.ran)
			}
			if err != nil && !strings.Contains(err.Error(), quoted(args[0])) {
				t.Errorf("the error does not name the command: %v", err)
			}
			// An empty name is an assignment or nothing to env, never a command.
			if args[0] == "" {
				return
			}
			envGot, envRan, _ := run(func(args, env []string) (int, error) { return envStatus(t, args, env), nil })
			if c.unlikeEnv == "" && envGot != status || envRan != ran {
				t.Errorf("status %d, ran %q; under env(1) status %d, %q", status, ran, envGot, envRan)
			}
		})
	}
}

func TestSpawnErrorReads(t *testing.T) {
	for what, c := range map[string]struct {
		err  *SpawnError
		want string
	}{
		"path":   {&SpawnError{"/a/x-1.2_3", NotFound, errors.New("why")}, "cannot run /a/x-1.2_3: why"},
		"empty":  {&SpawnError{"", NotFound, errors.New("why")}, `cannot run "": why`},
		"spaces": {&SpawnError{"a b", NotFound, errors.New("why")}, `cannot run "a b": why`},
		"quotes": {&SpawnError{`a"b`, NotFound, errors.New("why")}, `cannot run "a\"b": why`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
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
		if err := unix.PidfdSendSignal(child.FD, 0, nil, 0); err != nil {
			t.Errorf("the child's pidfd: %v", err)
		}
		if flags, err := unix.FcntlInt(uintptr(child.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the child's pidfd has flags %#x, %v; want close-on-exec", flags, err)
		}
	}
	if status := wait4(t, child); status != 42 {
		t.Errorf("status %d, want 42", status)
	}
}

// Where the kernel has nothing to give, the command was neither missing nor unfit.
func TestSpawnWithoutDescriptors(t *testing.T) {
	alone(t, func(t *testing.T) {
		var before unix.Rlimit
		check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
		check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
		status, err := statusOf(t, []string{"/bin/sh", "-c", "exit 0"}, nil)
		check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
		if status != 125 || err.(*SpawnError).Err != unix.EMFILE {
			t.Errorf("status %d, %v; want 125 and EMFILE", status, err)
		}
	})
}

// A failed start leaves no zombie and no descriptor behind.
func TestFailedSpawnLeavesNothing(t *testing.T) {
	alone(t, func(t *testing.T) {
		dir := t.TempDir()
		lay(t, dir, map[string]laid{"noexec": {"", 0o644}, "noshell": script("#!/nonexistent/interpreter", "")})
		before := procfs.CountFDs(t, os.Getpid())
		for _, name := range []string{"none", "noexec", "noshell"} {
			for range 10 {
				if _, err := Spawn(Command{Args: []string{filepath.Join(dir, name)}, Terminal: -1}); err == nil {
					t.Fatalf("%s was started", name)
				}
			}
		}
		if after := procfs.CountFDs(t, os.Getpid()); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
			t.Errorf("wait4 = %d, %v; want no child", pid, err)
		}
	})
}
