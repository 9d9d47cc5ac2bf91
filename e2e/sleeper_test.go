package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// waysToPair are the surroundings and flags in which fini is a pair, and the outer fini sleeps, before it has a runtime.
var waysToPair = map[string]struct {
	flags []string
	env   string
	shell string // executes fini
}{
	"report":        {[]string{"--report=FILE"}, "", runIt},
	"bind":          {[]string{"--bind=1"}, "", runIt},
	"both":          {[]string{"--report=FILE", "--bind=1"}, "", runIt},
	"FINI_BIND":     {nil, "FINI_BIND=1", runIt},
	"a wrong guess": {[]string{"--timeout", "1000", "--isolate=try"}, "", runIt},
	"closed stream": {nil, "", runIt + " 2>&-"},
	"no SIGCHLD":    {nil, "", "trap '' CHLD; " + runIt},
	"a child":       {nil, "", "sleep 1000 >/dev/null 2>&1 </dev/null 3>&- 4>&- & " + runIt},
	"isolate":       {[]string{"--isolate=try"}, "", runIt},
	"and bind":      {[]string{"--isolate=try", "--bind=1"}, "", runIt},
	"FINI_ISOLATE":  {nil, "FINI_ISOLATE=try", runIt},
}

const runIt = "exec \"$@\""

// pairBy is a pair with the flags and in the surroundings of one of waysToPair.
func pairBy(t *testing.T, name string, command ...string) *exec.Cmd {
	t.Helper()
	way := waysToPair[name]
	args := []string{"-c", way.shell, "sh", finiPath}
	for _, flag := range way.flags {
		args = append(args, strings.Replace(flag, "FILE", t.TempDir()+"/report", 1))
	}
	cmd := exec.Command("/bin/sh", append(args, command...)...)
	cmd.Env = append(os.Environ(), way.env)
	return cmd
}

// The outer fini of a pair sleeps, before it has a runtime, whatever makes the pair: see package entry.
func TestOuterSleeps(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry")
	awake := func(pid int) bool { return procStatus(pid, "Threads") != "1" }
	for name := range waysToPair {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startCmd(t, pairBy(t, name, quiet...))
			l.Out.want("ready")
			if name == "a child" { // it is not of the tree, and a child of fini's process
				pids := childrenOf(t, l.pid())
				defer func() { mustKill(t, pids[0], syscall.SIGKILL) }()
				if len(pids) != 2 {
					t.Errorf("children %v", pids)
				}
			} else {
				l.caught()
				if l.worker() == l.pid() {
					t.Errorf("the worker is %d", l.worker())
				}
			}
			if most := 40; awake(l.pid()) || ownMemory(t, l.pid()) > most {
				t.Errorf("%s threads, and %d kB, want at most %d", procStatus(l.pid(), "Threads"), ownMemory(t, l.pid()), most)
			}
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
	}
	t.Run("every signal", func(t *testing.T) {
		t.Parallel()
		l := start(t, pair, append([]string{"--"}, mode("signals", "15")...)...)
		l.Out.want("ready")
		l.caught()
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if !forwardable(sig) || sig == syscall.SIGTERM {
				continue
			}
			mustKill(t, l.pid(), sig)
			l.Out.want(fmt.Sprintf("signal %d", sig))
		}
		if awake(l.pid()) {
			t.Error("it is awake")
		}
		mustKill(t, l.pid(), syscall.SIGTERM)
		l.Out.want("signal 15")
		l.mustEnd(7)
	})
	t.Run("a stopped inner one", func(t *testing.T) {
		t.Parallel()
		l := start(t, pair, append([]string{"--"}, mode("signals", "15")...)...)
		l.Out.want("ready")
		l.caught()
		mustKill(t, l.worker(), syscall.SIGSTOP)
		until(t, "it is stopped", func() bool { return statOf(l.worker()).state() == 'T' })
		if awake(l.pid()) {
			t.Error("the outer one is awake")
		}
		mustKill(t, l.pid(), syscall.SIGTERM)
		l.Out.want("signal 15")
		l.mustEnd(7)
	})
	t.Run("a killed inner one", func(t *testing.T) {
		t.Parallel()
		l := start(t, pair, append([]string{"--"}, mode("signals", "15")...)...)
		l.Out.want("ready")
		l.caught()
		mustKill(t, l.worker(), syscall.SIGKILL)
		l.Out.want("signal 15")
		l.mustEnd(128 + 9)
		if text := l.Err.whole(); text != "" && !strings.HasPrefix(text, "fini: stopping the command: its inner fini was killed\n") {
			t.Errorf("says %q", text)
		}
	})
	// What came before the runtime could catch it is not lost, and does not end it.
	t.Run("a killed inner one, while it is stopped", func(t *testing.T) {
		t.Parallel()
		l := start(t, pair, append([]string{"--"}, mode("signals", "15")...)...)
		l.Out.want("ready")
		l.caught()
		inner := l.worker()
		mustKill(t, l.pid(), syscall.SIGSTOP)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGPROF} {
			mustKill(t, l.pid(), sig)
		}
		mustKill(t, inner, syscall.SIGKILL)
		mustKill(t, l.pid(), syscall.SIGCONT)
		l.Out.want("signal 15")
		l.mustEnd(128 + 9)
	})
	t.Run("a killed inner one, and who is left", func(t *testing.T) {
		t.Parallel()
		l := start(t, pair, "--", "/bin/sh", "-c", `trap "" TERM; echo ready; kill -KILL $PPID; exec sleep 1000`)
		l.Out.want("ready")
		l.mustEnd(128 + 9)
		if text := l.Err.whole(); !strings.Contains(text, "(sleep 1000), which holds stdout and stderr\n") {
			t.Errorf("says %q", text)
		}
	})
	t.Run("an inner one that stands down", func(t *testing.T) {
		t.Parallel()
		cmd := pair.command("/bin/sh", "-c", "echo started; sleep 1000")
		cmd.Env = append(os.Environ(), "FINI_SHIELD=0")
		if out, err := terminated(t, cmd); err == nil || err.Error() != "signal: terminated" {
			t.Errorf("%v, and says %q", err, out)
		}
	})
	t.Run("in the PID namespace of others", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		out, err := exec.Command(need.Program(t, "unshare"), "--pid", finiPath, "true").CombinedOutput()
		if text := string(out); err == nil || !strings.HasPrefix(text, "fini: children are in another PID namespace") || strings.Count(text, "\n") != 1 {
			t.Errorf("%v, and says %q", err, text)
		}
	})
}

// A pair is made by forks: fini is executed once, and the command.
func TestPairExecutesOnce(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry")
	strace := need.Program(t, "strace")
	for name := range waysToPair {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "strace")
			cmd := pairBy(t, name, "/bin/true")
			argv := append([]string{strace, "-f", "-qq", "-o", log, "-e", "trace=execve"}, cmd.Args...)
			argv[7] = cmd.Path
			env := cmd.Env
			cmd = exec.Command(argv[0], argv[1:]...)
			cmd.Env = env
			if name == "a child" { // which strace waits for
				cmd.Args[9] = strings.Replace(cmd.Args[9], "1000", "0.1", 1)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			text := readFile(t, log)
			for _, path := range []string{finiPath, "/bin/true"} {
				if n := strings.Count(text, "execve(\""+path+"\""); n != 1 {
					t.Errorf("%s is executed %d times:\n%s", path, n, text)
				}
			}
		})
	}
}

// terminated runs a command for which a SIGTERM is pending, and blocked.
func terminated(t *testing.T, cmd *exec.Cmd) (out []byte, err error) {
	t.Helper()
	cmd.Path = need.Program(t, "python3")
	cmd.Args = append([]string{cmd.Path, "-c", `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])`}, cmd.Args...)
	return cmd.CombinedOutput()
}

// job starts a command as a job at its terminal and ends with its status, or 128 and the number of the signal. It
// says so on descriptor 3 when the job is about to execute the command.
const job = `import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.write(3, b"x")
    os.execv(sys.argv[1], sys.argv[1:])
os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
`

// A key that is typed while a job begins is not lost, whatever the job has got to by then.
func TestKeyWhileAJobBegins(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	for i := range quickOrFull(40, 600) {
		tty, keys := terminal(t)
		ready, says, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-I", "-S", "-c", job, finiPath, "sleep", "1000")
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tty, tty, tty, []*os.File{says}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = ready.Read(make([]byte, 1))
		for end := time.Now().Add(time.Duration(i%40) * 100 * time.Microsecond); time.Now().Before(end); {
		}
		_, _ = keys.Write([]byte{3})
		late := time.AfterFunc(patience, func() { _ = keys.Close() }) // hangs up
		err = cmd.Wait()
		late.Stop()
		if code := cmd.ProcessState.ExitCode(); code != int(syscall.SIGINT) {
			t.Errorf("Ctrl-C after %d µs: %v", i%40*100, err)
		}
		for _, f := range []*os.File{keys, tty, ready, says} {
			_ = f.Close()
		}
	}
}

// A key that is typed as soon as the command is there is not lost, although the outer fini, which is suspended until then,
// does not know yet that the command is there. It may reach the command twice.
func TestKeyAsSoonAsTheCommandIsThere(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry of its own")
	python := need.Program(t, "python3")
	for range quickOrFull(9, 60) {
		tty, keys := terminal(t)
		modes, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
		if err == nil {
			modes.Lflag &^= unix.ECHO // it might come into a line of the command's
			err = unix.IoctlSetTermios(int(keys.Fd()), unix.TCSETS, modes)
		}
		if err != nil {
			t.Fatal(err)
		}
		ready, says, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, append([]string{"-I", "-S", "-c", job, finiPath}, mode("signals", "15")...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tty, tty, tty, []*os.File{says}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = ready.Read(make([]byte, 1))
		outer, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); len(childrenOf(t, outer)) == 0; { // it is too short a moment to sleep
			if time.Now().After(end) {
				t.Fatal("fini starts no second one")
			}
		}
		mustKill(t, outer, syscall.SIGSTOP)
		screen := newLines(t, keys)
		screen.want("ready")
		_, _ = keys.Write([]byte{3})
		screen.want("signal 2")
		mustKill(t, outer, syscall.SIGCONT)
		mustKill(t, outer, syscall.SIGUSR1)
		screen.want("signal 10")
		mustKill(t, outer, syscall.SIGTERM)
		_ = cmd.Wait()
		if n := strings.Count(screen.text(), "signal 2\r\n"); n != 1 && n != 2 {
			t.Errorf("Ctrl-C reaches the command %d times: %q", n, screen.text())
		}
		for _, f := range []*os.File{keys, tty, ready, says} {
			_ = f.Close()
		}
	}
}
