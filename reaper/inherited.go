package reaper

import (
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// atEntry is what entry noted, before the Go runtime caught the signals that were ignored,
// unblocked some that were blocked, and opened /dev/null for streams that were closed.
// Linked without -E, or on an architecture without an entry, it is empty.
var atEntry struct {
	ignored, blocked uint64    // bit n-1 is signal n
	closed           uint32    // bit n is descriptor n, of the first three
	known            uint32    // 1 if entry has run
	_                [4]uint64 // a struct sigaction, into which entry lets the kernel write

	environ *[1 << 20]*byte // where the kernel put it; a nil ends it
}

// HasEntry reports whether this program was linked with its own entry. Without that it knows
// nothing of what the Go runtime has changed, and the runtime obeys variables that are meant
// for the command, such as GODEBUG and GOMEMLIMIT.
func HasEntry() bool { return atEntry.known != 0 }

// Environ returns the environment, "name=value" each, as this process was given it: also
// names that come twice. See environ(7).
func Environ() (environ []string) {
	if !HasEntry() {
		return os.Environ()
	}
	for _, variable := range atEntry.environ {
		if variable == nil {
			break
		}
		environ = append(environ, stringAt(variable))
	}
	return environ
}

// stringAt is the string that the kernel has put somewhere, up to its NUL. It is not copied,
// for it never changes.
func stringAt(begin *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(begin), n)) != 0 {
		n++
	}
	return unsafe.String(begin, n)
}

// Getenv returns the value of a variable of the environment that this process was given, ""
// if it is not set. os.Getenv finds nothing there: see entry. See getenv(3).
func Getenv(name string) string {
	for _, variable := range Environ() {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

// Attributes are what a process inherits by execve(2), and the Go runtime changes, as far as
// they are known.
type Attributes struct {
	Ignored []syscall.Signal
	Blocked *uint64 // bit n-1 is signal n; nil if not known
	Closed  [3]bool // of the standard streams
}

// Inherited returns what this process was started with.
func Inherited() (a Attributes) {
	if !HasEntry() {
		return a
	}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if atEntry.ignored&(1<<(sig-1)) != 0 {
			a.Ignored = append(a.Ignored, sig)
		}
	}
	blocked := atEntry.blocked
	a.Blocked = &blocked
	for fd := range a.Closed {
		a.Closed[fd] = atEntry.closed&(1<<fd) != 0
	}
	return a
}
