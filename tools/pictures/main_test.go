package main

import (
	"os"
	"testing"
)

// The pictures are what `make pictures` draws.
func TestUpToDate(t *testing.T) {
	t.Chdir("../..")
	for name, want := range pictures() {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s (%v) is not what make pictures draws", name, err)
		}
	}
}
