package cli

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

func TestHint(t *testing.T) {
	t.Chdir(t.TempDir())
	check.NoError(t, errors.Join(os.WriteFile("server", nil, 0o755), os.Mkdir("src", 0o755)))
	for _, c := range []struct {
		command string // its words, with | between
		want    string
	}{
		{"echo hi", "for a shell line: fini -- sh -c 'echo hi'"},
		{"echo 'hi'", `for a shell line: fini -- sh -c 'echo '\''hi'\'''`},
		{"a;b", "for a shell line: fini -- sh -c 'a;b'"},
		{"A=1 make", "for a shell line: fini -- sh -c 'A=1 make'"},
		{"~/app", "for a shell line: fini -- sh -c '~/app'"},
		{"cd|/tmp", "cd is a word of the shell: fini -- sh -c 'cd /tmp'"},
		{"A=1|make|all", "to set a variable: fini -- env A=1 make"},
		{"help", "did you mean fini --help?"},
		{"version", "did you mean fini --version?"},
		{"--|x", "fini's flags go before the --, and one -- is taken off"},
		{"\u2014timeout=5s", "it begins with a long dash; type - instead"},
		{"server|x", "./server is here: write ./server"},
		{"src", ""}, {"", ""}, {"-", ""}, {"mkae", ""}, {"./nope", ""},
	} {
		check.Equal(t, c.command, Hint(strings.Split(c.command, "|")), c.want)
	}
}
