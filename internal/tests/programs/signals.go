package programs

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// runSignals writes "ready PID" and then each signal that it receives. It exits with status 7 on the given signal, and
// otherwise never.
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

// Forwardable reports whether a Go program can catch a signal and fini may forward it. It excludes SIGKILL and SIGSTOP,
// SIGCHLD, which is about fini's own children, and the signals that the C library and the Go runtime reserve.
func Forwardable(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF:
		return false
	}
	return sig < 32 || sig > 34
}
