package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Programs of others use the four packages at the root: go doc explains each on two screens of 24 lines, and without the
// program that they come from.
func TestPackagesExplainThemselves(t *testing.T) {
	t.Chdir("../..")
	for _, name := range []string{"orphans", "pdeath", "reaper", "signals"} {
		out, err := exec.Command("go", "doc", "./"+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(out), "\n"); lines > 48 {
			t.Errorf("go doc %s prints %d lines:\n%s", name, lines, out)
		}
		if !strings.Contains(string(out), "# What it can't be used with") {
			t.Errorf("go doc %s doesn't say what it can't be used with:\n%s", name, out)
		}
		if out, err = exec.Command("go", "doc", "-all", "./"+name).Output(); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(out), "\n")[1:] { // the first is its path
			if regexp.MustCompile(`(?i)\bfini\b`).MatchString(line) {
				t.Errorf("go doc -all %s: %s", name, line)
			}
		}
		if out, err = exec.Command("go", "test", "-list", "^Example", "./"+name).Output(); err != nil || !strings.HasPrefix(string(out), "Example") {
			t.Errorf("%s has no example: %s%v", name, out, err)
		}
	}
}
