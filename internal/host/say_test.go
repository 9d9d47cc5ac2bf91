package host

import (
	"testing"

	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// Every reason has words of its own: for a line, and for a report, which are those of the schema.
func TestReasonsHaveWords(t *testing.T) {
	var schema struct {
		Properties struct{ Stopped struct{ Enum []string } } // with null, which is read as ""
	}
	check.MustParse(t, []byte(check.ReadFile(t, "../../docs/report.schema.json")), &schema)
	said, words := map[string]bool{"": true}, []string(nil)
	for why := life.NoReason + 1; why < life.Reasons; why++ {
		words = append(words, why.String())
		because := (&system{}).because(why)
		if said[because] {
			t.Errorf("of reason %d is said %q, as of another or of none", why, because)
		}
		said[because] = true
	}
	check.Equal(t, "the words of a report", append(words, ""), schema.Properties.Stopped.Enum)
}

// The line of a stop names the process whose exit is the reason, if it is known which one that is.
func TestCulprit(t *testing.T) {
	parent, first := bond{pid: 7, name: "make", why: life.ParentDied}, bond{pid: 8, name: "server", why: life.BoundEnded}
	second := bond{pid: 9, why: life.BoundEnded, fd: -1}
	for want, c := range map[string]struct {
		bonds []bond
		why   life.Reason
	}{
		"fini's parent (make, 7) has died; -p none prevents this": {[]bond{first, parent}, life.ParentDied},
		"fini's parent has died; -p none prevents this":           {[]bond{first}, life.ParentDied},
		"a process of --bind (?, 9) exited":                       {[]bond{first, second}, life.BoundEnded},
		"a process of --bind exited":                              {[]bond{parent, first}, life.BoundEnded},
	} {
		check.Equal(t, "it says", (&system{bonds: c.bonds}).because(c.why), want)
	}
}
