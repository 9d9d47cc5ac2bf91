package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// These are the real-time signals as numbered by glibc, which reserves 32 and 33 for itself. See signal(7).
const (
	rtMin = 34
	rtMax = 64
)

// Parse parses the name or number of a signal, such as TERM, SIGTERM, 15, RTMIN+3 or RTMAX-1, in upper or lower case.
// Numbers range from 1 to 64.
func Parse(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil {
		// Atoi accepts signs, but -15 and 0 have other meanings for kill(2).
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

// otherNames maps further names to those that Name returns. The first two are old names that kill -l does not print.
var otherNames = map[string]string{
	"SIGCLD": "SIGCHLD", "SIGPOLL": "SIGIO", "SIGRTMIN+0": "SIGRTMIN", "SIGRTMAX": "SIGRTMIN+30",
}

func unknown(name string) error {
	return fmt.Errorf("cannot use signal %q: want a name such as TERM, SIGTERM or RTMIN+3, or a number from 1 to %d",
		name, rtMax)
}

// Name returns the name of a signal as kill -l prints it, such as SIGTERM or SIGRTMIN+3. Without a name, it is the
// number.
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
