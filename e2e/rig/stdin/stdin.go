// Package stdin starts fini with each kind of stdin that its callers give it.
package stdin

import (
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

var Kinds = []struct {
	Name string
	Make func(t testing.TB) (theirs, ours *os.File)
}{
	{"pipe", func(t testing.TB) (*os.File, *os.File) { return rig.Pipe(t) }},
	{"socketpair", func(t testing.TB) (*os.File, *os.File) { o, th := rig.Socketpair(t); return th, o }},
}

// Start runs fini with the given end of a pipe or socketpair as its stdin.
func Start(t testing.TB, p rig.Place, stdin *os.File, args ...string) *rig.Life {
	t.Helper()
	cmd := p.Command(args...)
	cmd.Stdin = stdin
	l := rig.StartCmd(t, cmd)
	_ = stdin.Close()
	return l
}
