package entry

import (
	"os"
	"strings"
	"unsafe"
)

// atEntry is the state that fini inherited, before the Go runtime caught the ignored signals, unblocked some of the
// blocked signals, and opened /dev/null for the closed streams. If fini was linked without -E, or there is no entry for
// the architecture, atEntry is empty.
var atEntry inherited

type inherited struct {
	ignored, blocked uint64    // bit n-1 is signal n
	closed           uint32    // bit n is descriptor n; only the first three
	action           [4]uint64 // a struct sigaction, into which the kernel writes
	environ          uintptr   // where the kernel put the environment, which ends with a 0
}

// word is the word at an address from the kernel. The arithmetic begins at nil because the address does not point to a
// Go object.
//
//go:nosplit
func word(at uintptr) uintptr { return *(*uintptr)(unsafe.Add(nil, at)) }

//go:nosplit
func setWord(at, value uintptr) { *(*uintptr)(unsafe.Add(nil, at)) = value }

//go:nosplit
func setByte(at uintptr, value byte) { *(*byte)(unsafe.Add(nil, at)) = value }

//go:nosplit
func byteAt(at uintptr) byte { return *(*byte)(unsafe.Add(nil, at)) }

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
	for byteAt(begin+n) != 0 {
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
