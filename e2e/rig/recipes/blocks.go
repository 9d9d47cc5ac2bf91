package recipes

import (
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A block is a fenced part of a page.
type Block struct {
	page, Section string
	Kind          string // "sh", "yaml"; "console" is a command behind "$ " and what it prints
	Text          string
}

// BlocksOf are those of a page, or the examples of a man page.
func BlocksOf(t *testing.T, page string) (blocks []Block) {
	t.Helper()
	var b *Block
	section := ""
	text := rig.ReadFile(t, page)
	if strings.HasSuffix(page, ".1") {
		_, text, _ = strings.Cut(text, "\n.Sh EXAMPLES\n")
		text = strings.NewReplacer(".Bd -literal -offset indent\n$ ", "```console\n$ ", ".Bd -literal -offset indent\n", "```dockerfile\n", ".Ed\n", "```\n").Replace(text)
	}
	for line := range strings.Lines(text) {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && b == nil:
			b = &Block{page: page, Section: section, Kind: strings.TrimSpace(kind)}
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
