//go:build amd64 || arm64

package entry

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

func TestGuess(t *testing.T) {
	for line, want := range map[string]bool{
		"fini x":                                 false,
		"fini":                                   false,
		"fini -- --no-shield":                    false,
		"fini x --no-shield":                     false,
		"fini --no-shield x":                     true,
		"fini -q --no-shield -v x":               true,
		"fini --no-shield --shield x":            false,
		"fini --shield --no-shield x":            false,
		"fini --no-shield --no-shield=false x":   false,
		"fini --no-shield -t 1 --shield x":       false,
		"fini --no-shields x":                    false,
		"fini -P":                                true,
		"fini -P --no-shield":                    true,
		"fini -P --pause=false x":                false,
		"fini -q --bind=1 --report=x --shield x": false,
	} {
		text, words := []byte(strings.ReplaceAll(line, " ", "\x00")+"\x00"), []uintptr{}
		for at, word := 0, ""; at < len(text); at += len(word) + 1 {
			word, _, _ = strings.Cut(string(text[at:]), "\x00")
			words = append(words, uintptr(unsafe.Pointer(&text[at])))
		}
		words = append(words, 0)
		if got := guessAlone(uintptr(unsafe.Pointer(&words[0]))); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
		runtime.KeepAlive([]any{text, words})
	}
}
