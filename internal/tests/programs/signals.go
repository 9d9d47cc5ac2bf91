package programs

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// runSignals prints "ready PID" and then each signal it gets. It ends with status
// 7 on the signal named first, and otherwise not at all.
func runSignals(args []string) int {
	c := make(chan os.Signal, 1<<14) // more than are sent before a busy machine lets this one read
	ignored := procfs.Status(os.Getpid(), "SigIgn")
	for n := syscall.Signal(1); n <= 64; n++ {
		if n != syscall.SIGURG && !procfs.MaskHas(ignored, n) {
			signal.Notify(c, n)
		}
	}
	fmt.Println("ready", os.Getpid())
	for sig := range c {
		n := int(sig.(syscall.Signal))
		if n == int(syscall.SIGCHLD) {
			continue
		}
		fmt.Println("signal", n)
		if len(args) > 0 && strconv.Itoa(n) == args[0] {
			return 7
		}
	}
	return 0
}

// What a Go program as the command can't catch, or fini must not forward: KILL and STOP; CHLD,
// which speaks of fini's own children; URG and PROF, which the runtime keeps; 32 to 34, which
// the C library and the runtime keep.
func Forwardable(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF:
		return false
	}
	return sig < 32 || sig > 34
}
