package main

import (
	"bytes"
	"os"
	"testing"
)

// What lists the flags is what `make flags` writes.
func TestUpToDate(t *testing.T) {
	t.Chdir("../..")
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s (%v) is not what make flags writes", name, err)
		}
	}
	if len(files) != 6 {
		t.Errorf("%d files", len(files))
	}
}
