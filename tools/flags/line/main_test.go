package main

import (
	"bytes"
	"os"
	"testing"
)

func TestUpToDate(t *testing.T) {
	t.Chdir("../../..")
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v) is not what make flags writes", target, err)
	}
}
