package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// The outer fini of a pair has no runtime until something wakes it: see reaper/sleeper.go. What it does
// awake, and that it ends as it should, is in the tests of each; here, that it sleeps and wakes.
func TestOuterSleeps(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with an entry")
	awake := func(pid int) bool { return procStatus(pid, "Threads") != "1" }
	for name, flags := range map[string][]string{
		"report": {"--report=/dev/null"},
		"bind":   {"--bind=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "report" {
				flags = []string{"--report=" + t.TempDir() + "/report"}
			}
			l := start(t, pair, append(flags, quiet...)...)
			l.Out.want("ready")
			l.caught()
			if !awake(l.pid()) || l.worker() == l.pid() {
				t.Errorf("%s threads, and the worker is %d of %d", procStatus(l.pid(), "Threads"), l.worker(), l.pid())
			}
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
	}
	t.Run("FINI_BIND", func(t *testing.T) {
		t.Parallel()
		cmd := pair.command(quiet...)
		cmd.Env = append(os.Environ(), "FINI_BIND=1")
		l := startCmd(t, cmd)
		l.Out.want("ready")
		l.caught()
		if !awake(l.pid()) || l.worker() == l.pid() {
			t.Errorf("%s threads, and the worker is %d of %d", procStatus(l.pid(), "Threads"), l.worker(), l.pid())
		}
		_ = l.Stdin.Close()
		l.mustEnd(0)
	})
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
		if text := l.Err.whole(); text != "" && !strings.HasPrefix(text, "fini: stopping the command: its fini was killed\n") {
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
}
