package host

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/life"
)

// Every reason has words of its own: for a line, and for a report, which are those of the schema.
func TestReasonsHaveWords(t *testing.T) {
	text, err := os.ReadFile("../../docs/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct{ Stopped struct{ Enum []*string } }
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, word := range schema.Properties.Stopped.Enum {
		if word != nil {
			want = append(want, *word)
		}
	}
	var words []string
	said := map[string]bool{"": true}
	k := &kernel{}
	for why := life.NoReason + 1; why < life.Reasons; why++ {
		words = append(words, why.String())
		because := k.because(why)
		if said[because] {
			t.Errorf("of reason %d is said %q, as of another or of none", why, because)
		}
		said[because] = true
	}
	if !slices.Equal(words, want) {
		t.Errorf("a report says %q, and the schema has %q", words, want)
	}
}
