//go:build amd64 || arm64

package entry

import (
	"runtime"
	"strings"
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
			text, words := []byte(strings.ReplaceAll(line, " ", "\x00")+"\x00"), []uintptr{}
			for at, word := 0, ""; at < len(text); at += len(word) + 1 {
				word, _, _ = strings.Cut(string(text[at:]), "\x00")
				words = append(words, uintptr(unsafe.Pointer(&text[at])))
			}
			words = append(words, 0)
			if got := guessAlone(uintptr(unsafe.Pointer(&words[0]))); got != alone {
				t.Errorf("%s: %t, want %t", line, got, alone)
			}
			runtime.KeepAlive([]any{text, words})
		}
	}
}
