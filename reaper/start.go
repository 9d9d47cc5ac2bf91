package reaper

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// start is what entry noted, before the Go runtime caught the signals that were ignored,
// unblocked some that were blocked, and opened /dev/null for streams that were closed.
// Linked without -E, or where no entry is written for the architecture, it is empty.
var start struct {
	ignored, blocked uint64    // bit n-1 is signal n
	closed           uint32    // bit n is descriptor n, of the first three
	known            uint32    // 1 if entry has run
	_                [4]uint64 // a struct sigaction, which entry has the kernel fill in

	environ *[1 << 20]*byte // where the kernel put it; a nil ends it
}

// Environ returns the environment, "name=value" each, as this process was given it: also
// names that come twice. See environ(7).
func Environ() (environ []string) {
	if start.known == 0 {
		return os.Environ()
	}
	for _, variable := range start.environ {
		if variable == nil {
			break
		}
		environ = append(environ, unix.BytePtrToString(variable))
	}
	return environ
}

// Inherited is what this process was started with, as far as it is known.
type Inherited struct {
	Ignored []syscall.Signal
	Blocked *uint64 // bit n-1 is signal n; nil if not known
	Closed  [3]bool // of the standard streams
}

// AtStart returns what this process was started with.
func AtStart() (in Inherited) {
	if start.known == 0 {
		return in
	}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if start.ignored&(1<<(sig-1)) != 0 {
			in.Ignored = append(in.Ignored, sig)
		}
	}
	blocked := start.blocked
	in.Blocked = &blocked
	for fd := range in.Closed {
		in.Closed[fd] = start.closed&(1<<fd) != 0
	}
	return in
}
