package recipes

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func Quoted(words []string) (all []string) {
	for _, word := range words {
		all = append(all, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return all
}

// Packaging is the program that makes the parts of a release. It has a go.mod of its own.
func Packaging(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "packaging")
	rig.Run(t, "go", "build", "-C", "../packaging", "-o", program, ".")
	return program
}

// MustBeAs asserts that two files have the same text, and the first one this mode.
func MustBeAs(t *testing.T, name, other string, mode fs.FileMode) {
	t.Helper()
	if rig.ReadFile(t, name) != rig.ReadFile(t, other) {
		t.Errorf("%s is another file than %s", name, other)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != mode {
		t.Errorf("%s: %v (%v), want %v", name, info.Mode(), err, mode)
	}
}

func SortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

func GoCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return t.TempDir()
	}
	return strings.TrimSpace(string(out))
}
