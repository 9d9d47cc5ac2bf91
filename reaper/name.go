package reaper

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetName names this process as ps and top show it, if it was executed under another
// name than its own. See PR_SET_NAME in prctl(2).
func SetName(name string) {
	b, err := unix.BytePtrFromString(name)
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}
