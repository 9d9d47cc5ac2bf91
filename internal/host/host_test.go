package host

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
)

// The end of standard input stops the command only with -i, and not because --idle watches standard input too.
func TestStdinIsABondOnlyIfAsked(t *testing.T) {
	for _, eof := range []bool{true, false} {
		k := bare(-1)
		k.stdin = pdeath.Watch{FD: 0}
		k.begin(&cli.Options{StdinEOF: eof, Idle: time.Hour}, reaper.Child{FD: -1})
		bound := len(k.bonds) == 1 && k.bonds[0].why == life.StdinClosed
		check.Equal(t, fmt.Sprintf("with StdinEOF %t, it is a bond", eof), bound, eof)
	}
}

// Docker wants seven hexadecimal digits at the end.
func TestVersion(t *testing.T) {
	if got := Version(); !regexp.MustCompile(`^fini version \d+\.\d+\.\d+\S* - git\.[0-9a-f]{7}$`).MatchString(got) {
		t.Errorf("the version is %q", got)
	}
}
