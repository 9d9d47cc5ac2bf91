package main

import (
	"bytes"
	"os"
	"strings"
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
	if len(files) != 7 {
		t.Errorf("%d files", len(files))
	}
}

// Help has each flag and its default, and fits a terminal.
func TestHelpFits(t *testing.T) {
	t.Chdir("../..")
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	text := string(files["internal/cli/help.txt"])
	if !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") {
		t.Error("help does not end in one newline")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > helpWidth || strings.ContainsAny(line, "\t\r") || strings.TrimRight(line, " ") != line {
			t.Errorf("%d columns, a tab, or space at the end: %q", len(line), line)
		}
	}
	shown := strings.Join(strings.Fields(text), " ")
	all, err := flags()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		want := f.Name
		if len(want) > 1 {
			want = "-" + strings.TrimSuffix(f.Name+"="+f.PlaceHolder, "=")
		}
		if f.Tag.Negatable != "" {
			want = "[no-]" + f.Name
		}
		if want += " " + f.Help; f.HasDefault {
			want += " (default: " + f.Default + ")"
		}
		if f.Help == "" || strings.Count(shown, want) != 1 {
			t.Errorf("help does not have this once: %s", want)
		}
	}
}
