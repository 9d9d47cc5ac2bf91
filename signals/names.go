package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"unicode"

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
	for _, r := range name {
		if r > unicode.MaxASCII { // some of these have upper cases in ASCII
			return 0, unknown(name)
		}
	}
	upper := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if offset, ok := strings.CutPrefix(upper, "RTMIN"); ok {
		return realTime(name, rtMin, offset, "+")
	}
	if offset, ok := strings.CutPrefix(upper, "RTMAX"); ok {
		return realTime(name, rtMax, offset, "-")
	}
	// The older names of two signals, which kill -l does not print.
	switch upper {
	case "CLD":
		upper = "CHLD"
	case "POLL":
		upper = "IO"
	}
	if sig := unix.SignalNum("SIG" + upper); sig != 0 {
		return sig, nil
	}
	return 0, unknown(name)
}

// realTime adds an offset such as "+3" to base; sign is the sign that the offset must have.
func realTime(name string, base int, offset, sign string) (syscall.Signal, error) {
	if offset == "" {
		return syscall.Signal(base), nil
	}
	digits, ok := strings.CutPrefix(offset, sign)
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n > rtMax-rtMin {
		return 0, unknown(name)
	}
	if sign == "-" {
		return syscall.Signal(base - int(n)), nil
	}
	return syscall.Signal(base + int(n)), nil
}

func unknown(name string) error {
	return fmt.Errorf("cannot use signal %q: want a name such as TERM, SIGTERM or RTMIN+3, or a number from 1 to %d", name, rtMax)
}

// Name is the signal as kill -l writes it: SIGTERM, SIGRTMIN+3, or its number if it
// has no name.
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
