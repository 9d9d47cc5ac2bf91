package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The real-time signals as glibc numbers them: the kernel's 32 and 33 belong to
// the C library. See signal(7).
const (
	rtMin = 34
	rtMax = 64
)

// Parse reads a signal name or number: TERM, SIGTERM, 15, RTMIN+3 or RTMAX-1, in
// any case. Numbers run from 1 to 64.
func Parse(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil {
		// Atoi takes a sign, and kill(2) gives -15 and 0 other meanings.
		if n < 1 || n > rtMax || name[0] == '+' {
			return 0, unknown(name)
		}
		return syscall.Signal(n), nil
	}
	upper := "SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if other, ok := otherNames[upper]; ok {
		upper = other
	}
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if upper == Name(sig) || sig >= rtMin && upper == fmt.Sprintf("SIGRTMAX-%d", rtMax-sig) {
			return sig, nil
		}
	}
	return 0, unknown(name)
}

// otherNames have names as Name writes them. The first two are older names of signals, which kill -l does not print.
var otherNames = map[string]string{
	"SIGCLD": "SIGCHLD", "SIGPOLL": "SIGIO", "SIGRTMIN+0": "SIGRTMIN", "SIGRTMAX": "SIGRTMIN+30",
}

func unknown(name string) error {
	return fmt.Errorf("cannot use signal %q: want a name such as TERM, SIGTERM or RTMIN+3, or a number from 1 to %d", name, rtMax)
}

// Name is the signal as kill -l writes it: SIGTERM, SIGRTMIN+3, or its number if there is no name for it.
func Name(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	switch {
	case sig == rtMin:
		return "SIGRTMIN"
	case sig > rtMin && sig <= rtMax:
		return fmt.Sprintf("SIGRTMIN+%d", int(sig)-rtMin)
	}
	return strconv.Itoa(int(sig))
}
