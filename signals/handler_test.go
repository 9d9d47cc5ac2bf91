//go:build (amd64 || arm64) && !portable && !race

package signals

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// Real-time signals queue: each is one.
func TestCatchRealTime(t *testing.T) {
	c := startCatcher(t)
	for _, sig := range []syscall.Signal{34, 40, 64} { // 34 is the C library's SIGRTMIN
		for range 1000 {
			c.Signal(sig)
		}
		for range 1000 {
			c.Out.WantNext(c.is(sig))
		}
	}
	c.says(unix.SIGTERM)
}

// Of SIGCONT and a stop signal that come one after the other, the last one counts.
func TestCatchStopAndContinue(t *testing.T) {
	c := startCatcher(t)
	for _, stop := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		for _, order := range [][]syscall.Signal{{stop, unix.SIGCONT}, {unix.SIGCONT, stop}, {stop, unix.SIGCONT, stop}} {
			c.Signal(unix.SIGXCPU)
			check.Until(t, "it reads its standard input", c.waits)
			for _, sig := range order {
				c.Signal(sig)
				check.Until(t, "it has caught that", c.idle)
			}
			_, _ = c.Stdin.Write([]byte("\n"))
			c.Out.WantNext(c.is(unix.SIGXCPU))
			c.Out.WantNext(c.is(order[len(order)-1]))
		}
	}
	c.says(unix.SIGTERM)
}

// waits reports whether it reads its standard input.
func (c caughtBy) waits() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/syscall", c.PID()))
	need.That(c.T, err == nil, "the right to see in which system call a child is (kernel.yama.ptrace_scope)")
	return strings.HasPrefix(string(text), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
}

// idle reports whether no signal is yet to be caught, nor may be in the hands of a thread that runs.
func (c caughtBy) idle() bool {
	if procfs.Status(c.PID(), "ShdPnd") != "0000000000000000" {
		return false
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.PID()))
	return !slices.ContainsFunc(threads, func(name string) bool { return procfs.ReadStat(name).State() == 'R' })
}
