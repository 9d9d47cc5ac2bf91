package shells

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A shellKind is an interactive shell. Its prompt tells the status of each process of the
// pipeline that has ended before, and that is what a user waits for.
type shellKind struct {
	Name string
	args []string
	env  []string
}

var Shells = []shellKind{
	{"bash", []string{"--norc", "--noprofile", "--noediting", "-i"}, []string{"PS1==<$?:${PIPESTATUS[*]}>="}},
	{"dash", []string{"-i"}, []string{"PS1==<$?:>="}},
	{"zsh", []string{"-d", "-i"}, nil},
	{"fish", []string{"-N", "-i", "-C", `source "$D/init.fish"`}, nil},
}

// Shells are those in which a case is done.
func (c typedCase) Shells() []shellKind {
	return slices.DeleteFunc(slices.Clone(Shells), func(shell shellKind) bool {
		return c.in != "" && !slices.Contains(strings.Fields(c.in), shell.Name)
	})
}

// IsQuick reports whether make test has the case in this shell and place.
func (c typedCase) IsQuick(shell shellKind, p rig.Place) bool {
	return c.quick == shell.Name+"/"+p.Name
}

// Attempts is how often a case is done if it does not go the same at once; 1 if it has to. A shell may hear of a job in
// the background before its prompt or after it.
func (c typedCase) Attempts() int {
	if c.unordered || c.races {
		return 10
	}
	return 1
}

// missing is what is wrong with the screen, whatever the other one is.
func (c typedCase) missing(s Sitting) string {
	if !strings.Contains(s.Screen, c.shows) {
		return fmt.Sprintf("the screen lacks %q:\n%s", c.shows, s.Screen)
	}
	if c.never != "" && strings.Contains(s.Screen, c.never) {
		return fmt.Sprintf("the screen has %q:\n%s", c.never, s.Screen)
	}
	return ""
}

func (c typedCase) mustHold(t *testing.T, s Sitting) {
	t.Helper()
	if wrong := c.missing(s); wrong != "" {
		t.Error(wrong)
	}
}

// Answers reports whether a case's question is answered with yes: what is typed has the effect that
// is waited for; or the screen is the same as without an init; or nothing is left alive.
func (c typedCase) Answers(bare, with Sitting) bool {
	switch c.Part {
	case "screen":
		return bare.Unlike(with, c) == ""
	case "survivors":
		return with.Broken == "" && with.left == "" && with.after == ""
	}
	return with.Broken == "" && c.missing(with) == ""
}

// Bare does a case without fini. What goes wrong then is no measure, and is done again.
func (b *bench) Bare(t *testing.T, shell shellKind, c typedCase) *Sitting {
	t.Helper()
	for try := 1; ; try++ {
		s := b.Sit(t, shell, c, "", nil, rig.Enough)
		if s.Broken == "" {
			c.mustHold(t, s)
			return &s
		}
		if try == max(c.Attempts(), 3) {
			t.Fatalf("without fini: %s\n%s", s.Broken, s.Screen)
		}
		t.Logf("TRIED AGAIN: without fini, %s in %s", c.Name, shell.Name)
	}
}

// Compare does a case with fini. A case in which programs have a race of their own may go otherwise: then it is done several
// times with fini and without, and may not go otherwise more often with fini.
func (b *bench) Compare(t *testing.T, shell shellKind, c typedCase, p rig.Place, bare *Sitting) {
	wrap := strings.Join(append([]string{"fini"}, p.Flags()...), " ")
	if c.Differs != "" {
		other := c
		other.keys = c.differ
		with := b.Sit(t, shell, other, wrap, nil, rig.Enough)
		if with.Broken != "" || with.left != "" || with.after != "" {
			t.Errorf("not so, or not only so: %s: %s; alive: %q and %q\n%s", c.Differs, with.Broken, with.left, with.after, with.Screen)
		}
		c.mustHold(t, with)
		return
	}
	with := b.Sit(t, shell, c, wrap, bare, rig.Enough)
	difference := bare.Unlike(with, c)
	if difference == "" {
		c.mustHold(t, with)
		return
	}
	explain := fmt.Sprintf("%s\nwithout fini:\n%s\nwith fini:\n%s", difference, bare.Screen, with.Screen)
	if c.Attempts() == 1 {
		t.Error(explain)
		return
	}
	t.Log(explain)
	bares, withs := []Sitting{*bare}, []Sitting{with}
	for {
		withs = append(withs, b.Sit(t, shell, c, wrap, bare, rig.Enough))
		bares = append(bares, b.Sit(t, shell, c, "", bare, rig.Enough))
		n := len(bares)
		other, otherBare := n, n
		for _, usual := range bares { // it may have been the first one that was unusual
			unlike := func(s Sitting) bool { return usual.Broken != "" || usual.Unlike(s, c) != "" }
			if k := count(bares, unlike); k < otherBare {
				other, otherBare = count(withs, unlike), k
			}
		}
		// As many more would come of the same race about once in a hundred times: that is Fisher's exact test for ten.
		if other-otherBare >= 6 {
			t.Errorf("it goes otherwise with fini in %d of %d tries, and without in %d:\n%s", other, n, otherBare, explain)
			return
		}
		if n == c.Attempts() {
			t.Logf("TRIED AGAIN: with %s, %s in %s: %d of %d went otherwise, without fini %d", wrap, c.Name, shell.Name, other, n, otherBare)
			return
		}
	}
}

func count(all []Sitting, is func(Sitting) bool) (n int) {
	for _, s := range all {
		if is(s) {
			n++
		}
	}
	return n
}

// A Sitting is what came of a case.
type Sitting struct {
	Screen string // normalised
	left   string // what was alive at the last prompt, beside the shell and the wrapper
	after  string // what was alive when the shell had ended
	Broken string // what was waited for in vain
}

// Unlike returns how b, with fini, differs from s, without it; "" if it does not.
func (s Sitting) Unlike(b Sitting, c typedCase) string {
	screen, other := s.Screen, b.Screen
	if c.says {
		other = finiSays.ReplaceAllString(other, "")
	}
	switch {
	case c.loose:
		screen, other = statuses(screen), statuses(other)
	case c.unordered:
		screen, other = inOrder(screen), inOrder(other)
	}
	switch {
	case b.Broken != "":
		return b.Broken
	case screen != other:
		return "another screen"
	case b.left != "" && s.left != b.left: // the shell may have its prompt before a pipeline has ended
		return fmt.Sprintf("at the last prompt %q is alive, without fini %q", b.left, s.left)
	case b.after != "":
		return fmt.Sprintf("after the shell's end %q is alive", b.after)
	}
	return ""
}

// statuses are those of the prompts. One that is drawn again is one.
func statuses(screen string) string {
	return strings.Join(slices.Compact(promptForm.FindAllString(screen, -1)), " ")
}

// inOrder is a screen whose lines are sorted, each prompt being one.
func inOrder(screen string) string {
	var lines []string
	for line := range strings.Lines(promptForm.ReplaceAllString(screen, "\n$0\n")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var (
	promptForm = regexp.MustCompile(`=<[0-9]+:[0-9 ]*>=`)
	// What fish's line editor draws is between its prompt and the start of the command.
	fishEditing = regexp.MustCompile("(?s)\x1d[^\x1e]*(\x1e|$)")
	// Of a terminal: its escape sequences, what it echoes of control characters, which is now
	// before and now behind what the command says of them, and fish's mark of a line without an end.
	escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>()][0B]?|\x1b\][^\x07]*\x07|\$<[0-9]+>|[\r\x07\x0f]|\^[CZ\\]|⏎ *`)
	// fish names a process of a pipeline by its first word, and cuts a job's text off at a width.
	fishNames = regexp.MustCompile(`fish: Process [0-9]+, '[^']*' from job [0-9]+, '.*'|fish: Job [0-9]+, '.*'`)
	finiSays  = regexp.MustCompile(`fini: .*\n`)
	// A prompt, or the pid of a process, which for counter is small in a namespace.
	numbers = regexp.MustCompile(promptForm.String() + `|\b[0-9]{3,}\b|\bready [0-9]+`)
)

// normalised is a screen without what differs from one sitting to the next: pids, and fini's
// own words in what a shell says of its jobs. A core is dumped by the bare command alone.
func normalised(screen, wrap string) string {
	screen = escapes.ReplaceAllString(screen, "")
	screen = strings.ReplaceAll(screen, " (core dumped)", "")
	if wrap != "" {
		screen = strings.ReplaceAll(screen, wrap+" ", "")
	}
	screen = fishNames.ReplaceAllString(screen, "fish:")
	return numbers.ReplaceAllStringFunc(screen, func(number string) string {
		if promptForm.MatchString(number) {
			return number
		}
		return "PID"
	})
}
