package cost

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/programs"
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
	"a wrong guess": {[]string{"--timeout", "1000", "--no-shield", "--shield"}, "", runIt},
	"closed stream": {nil, "", runIt + " 2>&-"},
	"no SIGCHLD":    {nil, "", "exec env --ignore-signal=CHLD \"$@\""},
	"a child":       {nil, "", "sleep 1000 >/dev/null 2>&1 </dev/null 3>&- 4>&- & while [ -e /proc/$!/fd/3 ]; do :; done; " + runIt},
}

// waysInMakeTest are by a flag, by a child, and by a variable.
var waysInMakeTest = []string{"report", "a child", "FINI_BIND"}

const runIt = "exec \"$@\""

// pairBy is a pair with the flags and in the surroundings of one of waysToPair.
func pairBy(t *testing.T, name string, command ...string) *exec.Cmd {
	t.Helper()
	way := waysToPair[name]
	args := []string{"-c", way.shell, "sh", rig.Fini}
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
	awake := func(pid int) bool { return procfs.Status(pid, "Threads") != "1" }
	for name := range waysToPair {
		rig.Case(t, slices.Contains(waysInMakeTest, name), name, func(t *testing.T) {
			t.Parallel()
			l := rig.StartCmd(t, pairBy(t, name, quiet...))
			l.Out.Want("ready")
			if name == "a child" { // it is not of the tree, and a child of fini's process
				pids := procfs.ChildrenOf(t, l.PID())
				defer func() { rig.MustKill(t, pids[0], syscall.SIGKILL) }()
				if len(pids) != 2 {
					t.Errorf("children %v", pids)
				}
			} else {
				l.Caught()
				if l.Worker() == l.PID() {
					t.Errorf("the worker is %d", l.Worker())
				}
			}
			if most := max(40, 10*os.Getpagesize()>>10); awake(l.PID()) || ownMemory(t, l.PID()) > most {
				t.Errorf("%s threads, and %d kB, want at most %d", procfs.Status(l.PID(), "Threads"), ownMemory(t, l.PID()), most)
			}
			_ = l.Stdin.Close()
			l.MustEnd(0)
		})
	}
	t.Run("every signal", func(t *testing.T) {
		t.Parallel()
		l := recorder(t)
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if !programs.Forwardable(sig) || sig == syscall.SIGTERM {
				continue
			}
			rig.MustKill(t, l.PID(), sig)
			l.Out.Want(fmt.Sprintf("signal %d", sig))
		}
		if awake(l.PID()) {
			t.Error("it is awake")
		}
		rig.MustKill(t, l.PID(), syscall.SIGTERM)
		l.Out.Want("signal 15")
		l.MustEnd(7)
	})
	t.Run("a stopped inner one", func(t *testing.T) {
		t.Parallel()
		l := recorder(t)
		rig.MustKill(t, l.Worker(), syscall.SIGSTOP)
		rig.Until(t, "it is stopped", func() bool { return procfs.StatOf(l.Worker()).State() == 'T' })
		if awake(l.PID()) {
			t.Error("the outer one is awake")
		}
		rig.MustKill(t, l.PID(), syscall.SIGTERM)
		l.Out.Want("signal 15")
		l.MustEnd(7)
	})
	// What came before the runtime could catch it is not lost, and does not end it.
	t.Run("a killed inner one, while it is stopped", func(t *testing.T) {
		t.Parallel()
		l := recorder(t)
		inner := l.Worker()
		rig.MustKill(t, l.PID(), syscall.SIGSTOP)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGPROF} {
			rig.MustKill(t, l.PID(), sig)
		}
		rig.MustKill(t, inner, syscall.SIGKILL)
		rig.MustKill(t, l.PID(), syscall.SIGCONT)
		l.Out.Want("signal 15")
		l.MustEnd(128 + 9)
	})
	t.Run("a killed inner one, and who is left", func(t *testing.T) {
		t.Parallel()
		l := rig.Start(t, rig.Pair, "--grace=100ms", "--", "/bin/sh", "-c", `trap "" TERM; echo ready; kill -KILL $PPID; read endless`)
		l.Out.Want("ready")
		l.MustEnd(128 + 9)
		if text := l.Err.Whole(); !strings.Contains(text, "read endless), which holds stdout and stderr\n") {
			t.Errorf("says %q", text)
		}
	})
	t.Run("an inner one that stands down", func(t *testing.T) {
		t.Parallel()
		cmd := rig.Pair.Command("/bin/sh", "-c", "echo started; sleep 1000")
		cmd.Env = append(os.Environ(), "FINI_SHIELD=0")
		if out, err := terminated(t, cmd); err == nil || err.Error() != "signal: terminated" {
			t.Errorf("%v, and says %q", err, out)
		}
	})
	t.Run("in the PID namespace of others", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		out, err := exec.Command(need.Program(t, "unshare"), "--pid", rig.Fini, "true").CombinedOutput()
		if text := string(out); err == nil || !strings.HasPrefix(text, "fini: children of fini are in another PID namespace") || strings.Count(text, "\n") != 1 {
			t.Errorf("%v, and says %q", err, text)
		}
	})
}

// recorder is a pair whose command records signals, up to SIGTERM.
func recorder(t *testing.T) *rig.Life {
	t.Helper()
	l := rig.Start(t, rig.Pair, append([]string{"--"}, rig.Mode("signals", "15")...)...)
	l.Out.Want("ready")
	l.Caught()
	return l
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
