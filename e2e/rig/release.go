package rig

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Zombies counts them. Version 1 of cgroups lists them, and so does version 2, but for threads.
func (c *Cgroup) Zombies() (n int) {
	text, _ := os.ReadFile(filepath.Join(c.Dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(text)) {
		if ReadStat("/proc/"+pid+"/stat").State() == 'Z' {
			n++
		}
	}
	return n
}

// Run runs a program, which has to succeed, and returns what it prints to standard output.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANPAGER=cat", "MANOPT=")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s%s", name, args, err, out, &stderr)
	}
	return string(out)
}

func ReadFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func MustBeAs(t *testing.T, name, other string, mode fs.FileMode) {
	t.Helper()
	if ReadFile(t, name) != ReadFile(t, other) {
		t.Errorf("%s is another file than %s", name, other)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != mode {
		t.Errorf("%s: %v (%v), want %v", name, info.Mode(), err, mode)
	}
}

// ManExamples are the blocks of the man page's EXAMPLES.
func ManExamples(t *testing.T) (all []string) {
	t.Helper()
	_, text, _ := strings.Cut(ReadFile(t, "../docs/fini.1"), "\n.Sh EXAMPLES\n")
	text, _, _ = strings.Cut(text, "\n.Sh ")
	for _, block := range strings.Split(text, ".Bd -literal -offset indent\n")[1:] {
		block, _, _ = strings.Cut(block, ".Ed")
		all = append(all, block)
	}
	return all
}

func SortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}
