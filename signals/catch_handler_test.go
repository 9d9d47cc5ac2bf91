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

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
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
			rig.Until(t, "it reads its standard input", c.waits)
			for _, sig := range order {
				c.Signal(sig)
				rig.Until(t, "it has caught that", c.idle)
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

// What the kernel itself sends has no sender: what stands in its place is something else.
func TestSenderIsNotTheKernel(t *testing.T) {
	const siKernel = 0x80
	caught.senders[unix.SIGINT-1].Store(siKernel | 77<<32)
	rig.Equal(t, "what has no sender but the kernel", origin(unix.SIGINT), Received{Signal: unix.SIGINT, Kernel: true})
}

// A process can choose its pid and any negative si_code: see rt_sigqueueinfo(2).
func TestOutside(t *testing.T) {
	const user, kernel, queue, tkill, pollIn = 0, 0x80, -1, -6, 1
	caught.eventFD, caught.pid = -1, 1
	c := Catcher{FD: -1}
	for _, row := range []struct {
		what string
		came []siginfo
		want bool
	}{
		{"kill(2) inside", []siginfo{{code: user, pid: 77}}, false},
		{"kill(2) outside", []siginfo{{code: user}}, true},
		{"the kernel, which leaves something else in the place of the pid", []siginfo{{code: kernel, pid: 77}}, true},
		{"a forged pid", []siginfo{{code: queue}}, false},
		{"a forged pid for a thread", []siginfo{{code: tkill}}, false},
		{"F_SETSIG in fcntl(2)", []siginfo{{code: pollIn}}, false},
		{"outside, then inside", []siginfo{{code: user}, {code: user, pid: 77}}, true},
		{"inside, then outside, then inside", []siginfo{{code: user, pid: 77}, {code: user}, {code: queue}}, true},
		{"inside again: what came before was taken", []siginfo{{code: user, pid: 77}}, false},
	} {
		for _, sig := range []syscall.Signal{unix.SIGTERM, 37} {
			for _, info := range row.came {
				handle(uintptr(sig), &info)
			}
			taken := c.Take()
			for _, got := range taken {
				rig.Equal(t, fmt.Sprint(row.what, " sent ", sig), got.Outside, row.want)
			}
			if sig == unix.SIGTERM {
				rig.Equal(t, "how many signals "+row.what+" is", len(taken), 1)
			} else {
				rig.Equal(t, "how many signals "+row.what+" is", len(taken), len(row.came))
			}
		}
	}
}
