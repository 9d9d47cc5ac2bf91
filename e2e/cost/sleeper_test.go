package cost

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
)

// The outer fini of a pair sleeps, before it has a runtime, whatever makes the pair: see package entry.
func TestOuterSleeps(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry")
	awake := func(pid int) bool { return procfs.Status(pid, "Threads") != "1" }
	for _, tt := range []struct {
		name  string
		quick bool
		flags string
		env   string
		shell string // executes fini; `exec "$@"` if it is empty
	}{
		{"report", true, "--report=FILE", "", ""},
		{"bind", false, "--bind=1", "", ""},
		{"both", false, "--report=FILE --bind=1", "", ""},
		{"FINI_BIND", true, "", "FINI_BIND=1", ""},
		{"a wrong guess", false, "--timeout 1000 --no-shield --shield", "", ""},
		{"closed stream", false, "", "", `exec "$@" 2>&-`},
		{"no SIGCHLD", false, "", "", `exec env --ignore-signal=CHLD "$@"`},
		{"a child", true, "", "", `sleep 1000 >/dev/null 2>&1 </dev/null 3>&- 4>&- & while [ -e /proc/$!/fd/3 ]; do :; done; exec "$@"`},
	} {
		rig.Case(t, tt.quick, tt.name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(strings.Replace(tt.flags, "FILE", t.TempDir()+"/report", 1))
			shell := tt.shell
			if shell == "" {
				shell = `exec "$@"`
			}
			cmd := rig.Pair.Executed([]string{"/bin/sh", "-c", shell, "sh"}, append(words, quiet...)...)
			cmd.Env = append(os.Environ(), tt.env)
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			if tt.name == "a child" { // it is not of the tree, and a child of fini's process
				pids := procfs.ChildrenOf(t, l.PID())
				defer func() { rig.MustKill(t, pids[0], syscall.SIGKILL) }()
				if len(pids) != 2 {
					t.Errorf("children %v", pids)
				}
			} else if l.Caught(); l.Worker() == l.PID() {
				t.Errorf("the worker is %d", l.Worker())
			}
			if most := max(40, 10*os.Getpagesize()>>10); awake(l.PID()) || ownMemory(t, l.PID()) > most {
				t.Errorf("%s threads, and %d kB, want at most %d", procfs.Status(l.PID(), "Threads"), ownMemory(t, l.PID()), most)
			}
			_ = l.Stdin.Close()
			l.MustEnd(0)
		})
	}
	// What a pair relays to a command that records it, up to SIGTERM.
	for _, tt := range []struct {
		name   string
		sends  func(t *testing.T, l *rig.Life)
		status int
	}{
		{"every signal", func(t *testing.T, l *rig.Life) {
			for sig := syscall.Signal(1); sig <= 64; sig++ {
				if programs.Forwardable(sig) && sig != syscall.SIGTERM {
					rig.MustKill(t, l.PID(), sig)
					l.Out.Want(fmt.Sprintf("signal %d", sig))
				}
			}
			if awake(l.PID()) {
				t.Error("it is awake")
			}
			rig.MustKill(t, l.PID(), syscall.SIGTERM)
		}, 7},
		{"a stopped inner one", func(t *testing.T, l *rig.Life) {
			rig.MustKill(t, l.Worker(), syscall.SIGSTOP)
			rig.Until(t, "it is stopped", func() bool { return procfs.StatOf(l.Worker()).State() == 'T' })
			if awake(l.PID()) {
				t.Error("the outer one is awake")
			}
			rig.MustKill(t, l.PID(), syscall.SIGTERM)
		}, 7},
		// What came before the runtime could catch it is not lost, and does not end it.
		{"a killed inner one, while it is stopped", func(t *testing.T, l *rig.Life) {
			inner := l.Worker()
			for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGPROF} {
				rig.MustKill(t, l.PID(), sig)
			}
			rig.MustKill(t, inner, syscall.SIGKILL)
			rig.MustKill(t, l.PID(), syscall.SIGCONT)
		}, 128 + 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, rig.Pair, append([]string{"--"}, rig.Mode("signals", "15")...)...)
			l.Out.Want("ready")
			l.Caught()
			tt.sends(t, l)
			l.Out.Want("signal 15")
			l.MustEnd(tt.status)
		})
	}
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
		// A SIGTERM is pending, and blocked.
		cmd := rig.Pair.Executed([]string{need.Program(t, "python3"), "-c", `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])`}, "/bin/sh", "-c", "echo started; sleep 1000")
		cmd.Env = append(os.Environ(), "FINI_SHIELD=0")
		if out, err := cmd.CombinedOutput(); err == nil || err.Error() != "signal: terminated" {
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
