package cli

import (
	"slices"
	"strings"
	"testing"
)

// Whatever the words are, the answer is one line, and a command is the last of them.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"-vk\n5\nx", "--=x", "-", "--", "-\xff", "--no-shield=\nx", "-i-", "--stop-signal=,", "-p\n--\nx", "-=", "--g", "-c\n-g"} {
		f.Add(line, "FINI_GRACE=1s")
	}
	f.Fuzz(func(t *testing.T, line, variable string) {
		args := strings.Split(line, "\n")
		got, err := parse(args, []string{variable})
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q, %q: %v", args, variable, err)
		case err == nil && !slices.Equal(got.Command, args[len(args)-len(got.Command):]):
			t.Errorf("%q: the command %q", args, got.Command)
		}
	})
}
