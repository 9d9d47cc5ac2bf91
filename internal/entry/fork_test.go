//go:build amd64 || arm64

package entry

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

func TestGuess(t *testing.T) {
	for line, want := range map[string]Kind{
		"fini x":                                 BePlain,
		"fini":                                   BePlain,
		"fini -- --isolate":                      BePlain,
		"fini x --isolate":                       BePlain,
		"fini --isolate x":                       BeIsolated,
		"fini --isolate=try -q x":                BeIsolated,
		"fini --isolate --no-shield x":           BeIsolated,
		"fini --no-shield x":                     BeAlone,
		"fini -q --no-shield -v x":               BeAlone,
		"fini --no-shield --shield x":            BePlain,
		"fini --shield --no-shield x":            BePlain,
		"fini --no-shield -t 1 --shield x":       BePlain,
		"fini --no-shield -t 1 --isolate x":      BePlain,
		"fini --no-shield x FINI_ISOLATE=try":    BePlain,
		"fini --no-shields x":                    BePlain,
		"fini -P":                                BeAlone,
		"fini -P --pause=false x":                BePlain,
		"fini -q --bind=1 --report=x --shield x": BePlain,
	} {
		var words []uintptr
		var keep []*byte
		for _, word := range strings.Fields(line) {
			text := append([]byte(word), 0)
			keep = append(keep, &text[0])
			words = append(words, uintptr(unsafe.Pointer(&text[0])))
		}
		words = append(words, 0)
		if got := guess(uintptr(unsafe.Pointer(&words[0]))); got != want {
			t.Errorf("%s: %d, want %d", line, got, want)
		}
		runtime.KeepAlive(keep)
		runtime.KeepAlive(words)
	}
}
