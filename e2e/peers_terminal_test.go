package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// In front of the commands of a bash, fini answers each question with yes. What the other inits
// answer is only logged: it is the table of docs/terminal.md, which CI prints.
func TestTerminalAsWithoutAnInit(t *testing.T) {
	t.Parallel()
	subjects := []struct {
		name  string
		wrap  string
		limit time.Duration // a wrong no of fini's fails the test, so it has the time that a busy machine takes
	}{
		{"fini", "fini", patience},
		{"tini -s", "tini -s --", 2 * time.Second},
		{"tini -s -g", "tini -s -g --", 2 * time.Second},
		{"dumb-init", "dumb-init", 2 * time.Second},
		{"catatonit", "catatonit --", 2 * time.Second},
	}
	if !asInCI() {
		subjects = subjects[:1]
	}
	bash := shells[0]
	need.Program(t, bash.name)
	b := newBench(t)
	var mu sync.Mutex
	answers := map[string]string{} // by question and subject
	t.Run("ask", func(t *testing.T) {
		for _, c := range typedCases {
			if c.row == "" {
				continue
			}
			for _, s := range subjects {
				t.Run(c.row+"/"+s.name, func(t *testing.T) {
					t.Parallel()
					c.mustHave(t, b)
					if s.name != "fini" {
						need.Program(t, strings.Fields(s.wrap)[0])
					}
					yes := false
					for try := 0; !yes && try < c.attempts(); try++ {
						bare := b.sit(t, bash, c, "", nil, patience)
						if bare.broken != "" {
							t.Fatalf("without an init: %s\n%s", bare.broken, bare.screen)
						}
						c.holds(t, bare)
						with := b.sit(t, bash, c, s.wrap, &bare, s.limit)
						if yes = c.answers(bare, with); !yes {
							t.Logf("%s\nwithout:\n%s\nwith:\n%s", bare.unlike(with, c), bare.screen, with.screen)
						}
						if with.broken != "" || c.part != "screen" {
							break // only a screen differs by a race of the shell or of make
						}
					}
					if s.name == "fini" && !yes {
						t.Error("no")
					}
					mu.Lock()
					defer mu.Unlock()
					answers[c.row+s.name] = map[bool]string{true: "yes", false: "no"}[yes]
				})
			}
		}
	})
	var table strings.Builder
	head, rule := "\n|", "\n| ---"
	for _, s := range subjects {
		head += " | " + s.name
		rule += " | ---"
	}
	table.WriteString(head + " |" + rule + " |")
	for _, c := range typedCases {
		if c.row == "" {
			continue
		}
		table.WriteString("\n| " + strings.ReplaceAll(c.row, "|", `\|`))
		for _, s := range subjects {
			answer := answers[c.row+s.name]
			if answer == "" {
				answer = "not asked"
			}
			table.WriteString(" | " + answer)
		}
		table.WriteString(" |")
	}
	t.Log(table.String())
}

// answers reports whether a case's question is answered with yes: what is typed has the effect that
// is waited for; or the screen is the same as without an init; or nothing is left alive.
func (c typedCase) answers(bare, with sitting) bool {
	switch c.part {
	case "screen":
		return bare.unlike(with, c) == ""
	case "survivors":
		return with.broken == "" && with.left == "" && with.after == ""
	}
	return with.broken == "" && strings.Contains(with.screen, c.shows) && (c.never == "" || !strings.Contains(with.screen, c.never))
}
