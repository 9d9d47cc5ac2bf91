//go:build amd64 || arm64

package entry

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestGuess(t *testing.T) {
	for alone, lines := range map[bool][]string{
		true: {"fini --no-shield x", "fini -q --no-shield -v x", "fini -P", "fini -P --no-shield"},
		false: {
			"fini x", "fini", "fini -- --no-shield", "fini x --no-shield", "fini --no-shield --shield x", "fini --shield --no-shield x",
			"fini --no-shield --no-shield=false x", "fini --no-shield -t 1 --shield x", "fini --no-shields x",
			"fini -P --pause=false x", "fini -q --bind=1 --report=x --shield x",
		},
	} {
		for _, line := range lines {
			argv, err := syscall.SlicePtrFromStrings(strings.Fields(line))
			if got := guessAlone(uintptr(unsafe.Pointer(&argv[0]))); got != alone || err != nil {
				t.Errorf("%s: %t, want %t", line, got, alone)
			}
			runtime.KeepAlive(argv)
		}
	}
}
