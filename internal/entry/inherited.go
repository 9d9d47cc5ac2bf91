package entry

import (
	"os"
	"strings"
	"unsafe"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// atEntry is the state that fini inherited, before the Go runtime caught the ignored signals, and unblocked some of the
// blocked signals. If fini was linked without -E, or there is no entry for the architecture, atEntry is empty.
var atEntry struct {
	ignored, blocked   uint64    // bit n-1 is signal n
	closed             [3]bool   // of the standard streams
	action             [4]uint64 // a struct sigaction, into which the kernel writes
	arguments, environ uintptr   // where the kernel put them; each ends with a 0
}

// word is the word at an address from the kernel: see proc.ByteAt.
//
//go:nosplit
func word(at uintptr) uintptr { return *(*uintptr)(unsafe.Add(nil, at)) }

//go:nosplit
func setWord(at, value uintptr) { *(*uintptr)(unsafe.Add(nil, at)) = value }

// Environ returns the environment that this process got, as strings "name=value". A name may come twice. See
// environ(7).
func Environ() (environ []string) {
	if atEntry.environ == 0 {
		return os.Environ()
	}
	for at := atEntry.environ; word(at) != 0; at += 8 {
		environ = append(environ, stringAt(word(at)))
	}
	return environ
}

// stringAt is the string that the kernel has put at an address, up to its NUL. It doesn't copy the text, which never
// changes.
func stringAt(begin uintptr) string {
	n := uintptr(0)
	for proc.ByteAt(begin+n) != 0 {
		n++
	}
	return unsafe.String((*byte)(unsafe.Add(nil, begin)), n)
}

// Getenv returns the value of a variable in the environment that this process got, "" if the variable is not set.
// os.Getenv would find nothing: see rebuild. See getenv(3).
func Getenv(name string) string {
	for _, variable := range Environ() {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
