//go:build (amd64 || arm64) && !portable && !race

package handler

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

// What the kernel itself sends has no sender: what stands in its place is something else.
func TestSenderIsNotTheKernel(t *testing.T) {
	const siKernel = 0x80
	caught.senders[unix.SIGINT-1].Store(siKernel | 77<<32)
	sender, kernel := Origin(unix.SIGINT)
	check.Equal(t, "its sender", sender, 0)
	check.Equal(t, "it is the kernel", kernel, true)
}

// A process can choose its pid and any negative si_code: see rt_sigqueueinfo(2).
func TestOutside(t *testing.T) {
	const user, kernel, queue, tkill, pollIn = 0, 0x80, -1, -6, 1
	caught.eventFD, caught.pid = -1, 1
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
			n, outside := Count(sig)
			check.Equal(t, fmt.Sprint(row.what, " sent ", sig), outside, row.want)
			check.Equal(t, "how many signals "+row.what+" is", n, len(row.came))
		}
	}
}
