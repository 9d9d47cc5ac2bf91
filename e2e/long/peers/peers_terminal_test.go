package peers

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// In front of the commands of a bash, fini answers each question with yes. What the other inits
// answer is only logged, for the reader of docs/platforms.md.
func TestTerminalAsWithoutAnInit(t *testing.T) {
	t.Parallel()
	subjects := []struct {
		name  string
		wrap  string
		limit time.Duration // a wrong no of fini's fails the test, so it has the time that a busy machine takes
	}{
		{"fini", "fini", rig.Enough},
		{"tini -s", "tini -s --", 2 * time.Second},
		{"tini -s -g", "tini -s -g --", 2 * time.Second},
		{"dumb-init", "dumb-init", 2 * time.Second},
		{"catatonit", "catatonit --", 2 * time.Second},
	}
	bash := shells.Shells[0]
	need.Program(t, bash.Name)
	b := shells.NewBench(t)
	for _, c := range shells.TypedCases {
		if c.Row == "" {
			continue
		}
		for _, s := range subjects {
			t.Run(c.Row+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				c.MustHave(t, b)
				if s.name != "fini" {
					need.Program(t, strings.Fields(s.wrap)[0])
				}
				yes := false
				for try := 0; !yes && try < c.Attempts(); try++ {
					bare := b.Bare(t, bash, c)
					with := b.Sit(t, bash, c, s.wrap, bare, s.limit)
					if yes = c.Answers(*bare, with); !yes {
						t.Logf("TRIED AGAIN: %s under %s", c.Row, s.name)
						t.Logf("%s\nwithout:\n%s\nwith:\n%s", bare.Unlike(with, c), bare.Screen, with.Screen)
					}
					if with.Broken != "" || c.Part != "screen" {
						break // only a screen differs by a race of the shell or of make
					}
				}
				if s.name == "fini" && !yes {
					t.Error("no")
				}
				t.Logf("%s? Under %s: %s", c.Row, s.name, map[bool]string{true: "yes", false: "no"}[yes])
			})
		}
	}
}
