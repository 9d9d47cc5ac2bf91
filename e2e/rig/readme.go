package rig

import (
	"strings"
	"testing"
)

// A block is a fenced part of a page.
type block struct {
	page, Section string
	Kind          string // "sh", "yaml"; "console" is a command behind "$ " and what it prints
	Text          string
}

func BlocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	var b *block
	section := ""
	for line := range strings.Lines(ReadFile(t, page)) {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && b == nil:
			b = &block{page: page, Section: section, Kind: strings.TrimSpace(kind)}
		case fence:
			blocks, b = append(blocks, *b), nil
		case b != nil:
			b.Text += line
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if b != nil {
		t.Fatalf("%s: a block has no end:\n%s", page, b.Text)
	}
	return blocks
}

// BlockWith is the first block of a page that contains a text.
func BlockWith(t *testing.T, page, text string) string {
	t.Helper()
	for _, b := range BlocksOf(t, page) {
		if strings.Contains(b.Text, text) {
			return b.Text
		}
	}
	t.Fatalf("no block with %q in %s", text, page)
	return ""
}
