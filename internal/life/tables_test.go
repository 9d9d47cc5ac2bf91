package life

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// A row is a line of a machine's table: where it stands, what event happens, and where it stands then.
type row [3]string

// rows counts how often each was taken.
type rows map[row]int

func (r rows) one(before, what, after string) { r[row{before, what, after}]++ }

// The sweep begins in one of these stages.
var beginnings = []string{"lingering", "waiting", "clearing", "asking", "counting"}

var states = regexp.MustCompile(`\b(running|heeding|closing|stopping|killed|lingering|waiting|clearing|asking|killing|counting|over)\b`)

// table reads the table in the comment over a type, line by line, without the one that names the columns. A column begins where
// its name does, and there are two blanks between two names.
func table(t *testing.T, file, kind string) (lines [][]string) {
	above, _, _ := strings.Cut(check.ReadFile(t, file), "\ntype "+kind+" ")
	_, inTable, found := strings.Cut(above[strings.LastIndex(above, "\n\n")+1:], "//\n//\t")
	if !found {
		t.Fatalf("no table over the type %s in %s", kind, file)
	}
	inTable, _, _ = strings.Cut(inTable, "\n//\n")
	names, rest, _ := strings.Cut(inTable, "\n")
	for line := range strings.SplitSeq(rest, "\n") {
		line, cells := strings.TrimPrefix(line, "//\t"), []string{}
		for _, at := range slices.Backward(regexp.MustCompile(`\S+( \S+)*`).FindAllStringIndex(names, -1)) {
			begins := min(at[0], len(line))
			cells = append(cells, strings.TrimSpace(line[begins:]))
			line = line[:begins]
		}
		slices.Reverse(cells)
		lines = append(lines, cells)
	}
	return lines
}

// A cell is what the table over a machine's type says of one state and one event. The explorer has to take one of the ways in
// each inner list, and may take no other.
type cell struct {
	before, event string
	ways          [][]string
}

// tables are the tables of all machines. A row of any rung or stage is in the place of one for each.
func tables(t *testing.T) (all []cell) {
	for _, m := range []struct{ file, kind, any string }{
		{"paused.go", "paused", ""},
		{"ladder.go", "rung", "running heeding closing stopping killed"},
		{"sweep.go", "stage", "lingering waiting clearing asking killing counting"},
	} {
		before := ""
		for _, line := range table(t, m.file, m.kind) {
			switch {
			case strings.HasPrefix(line[0], "any "):
				before = m.any
			case line[0] != "":
				before = line[0]
			}
			if line[1] != "" {
				all = append(all, cell{before: before, event: line[1]})
			}
			c := &all[len(all)-1]
			if strings.Contains(line[2], "the sweep") {
				c.ways = append(c.ways, beginnings)
			}
			for _, to := range states.FindAllString(line[2], -1) {
				c.ways = append(c.ways, []string{to})
			}
		}
	}
	return all
}

// compare compares the tables with what the explorer has taken.
func (r rows) compare(t *testing.T, all []cell) {
	known := map[row]bool{}
	for _, c := range all {
		for _, ways := range c.ways {
			taken := 0
			for _, before := range strings.Fields(c.before) {
				for _, after := range ways {
					known[row{before, c.event, after}] = true
					taken += r[row{before, c.event, after}]
				}
			}
			if taken == 0 {
				t.Errorf("never taken, and in the table: %s: %s -> %s", c.before, c.event, strings.Join(ways, " | "))
			}
		}
	}
	for row := range r {
		if row[0] != row[2] && row[0] != "asleep" && !known[row] {
			t.Errorf("taken, and not in the table: %s: %s -> %s", row[0], row[1], row[2])
		}
	}
	for _, row := range moreRows {
		if r[row] == 0 {
			t.Errorf("never taken: %s: %s -> %s", row[0], row[1], row[2])
		}
	}
}

func (r rows) String() string {
	var lines []string
	for row, n := range r {
		lines = append(lines, fmt.Sprintf("%12d  %s: %s -> %s", n, row[0], row[1], row[2]))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[12:], b[12:]) })
	return strings.Join(lines, "\n")
}

// The table in the comment over Sleeper in package entry says in words what follows. Each line that is no message, except the
// hang-up, which only begins a wait, is one that the explorer has to take.
func TestTableOfTheSleeper(t *testing.T) {
	var sees []string
	for _, line := range table(t, "../entry/step.go", "Sleeper") {
		switch {
		case line[1] == "": // the rest of the line above
			sees[len(sees)-1] += " " + line[0]
		case line[0] != "":
			sees = append(sees, line[0])
		}
	}
	for _, what := range sees {
		has := slices.ContainsFunc(moreRows, func(r row) bool { return r[0] == "asleep" && strings.HasPrefix(r[1], what) })
		if !has && what != "a message" && what != "the socket hangs up" {
			t.Errorf("the explorer need not take %q", what)
		}
	}
	for _, r := range moreRows {
		if r[0] == "asleep" && !slices.ContainsFunc(sees, func(what string) bool { return strings.HasPrefix(r[1], what) }) {
			t.Errorf("the table has no line for %q", r[1])
		}
	}
}

// The explorer has to take these too, in all combinations of a line: ways into the sweep, which the tables say in
// words, and the rows of the sleeper's table in package entry's step.go.
var moreRows = func() (all []row) {
	for _, line := range []string{
		"pausing: signal -> lingering | counting",
		"running: reaped -> lingering | waiting | asking | counting | over",
		"closing: elapsed -> closing",
		"stopping: stop -> stopping",
		"stopping: reaped -> lingering | asking | over",
		"closing | killed: reaped -> lingering | over",
		"killed: reaped -> clearing",
		"clearing: looked -> over",
		"clearing | waiting: reaped -> over",
		"lingering | asking | killing | counting: reaped | looked -> over",
		"asleep: a signal, before Starting -> kills the inner one",
		"asleep: a signal, before Started -> waits",
		"asleep: a second passes after Starting -> listens",
		"asleep: a signal -> relayed",
		"asleep: a signal, and the socket is full -> continues the inner one",
		"asleep: a signal to end -> continues the inner one",
		"asleep: SIGCHLD -> continues the inner one",
		"asleep: SIGTSTP, SIGTTIN or SIGTTOU that was pending at Started, in a job -> suspends fini",
		"asleep: the parent process has died -> continues the inner one",
		"asleep: the parent process has died, without pidfds -> tells the inner one",
		"asleep: the inner fini has ended, after Done -> over",
		"asleep: the inner fini has ended -> over | running | is the heir",
		"asleep: the inner fini has not ended in time -> is the heir",
	} {
		before, rest, _ := strings.Cut(line, ": ")
		what, after, _ := strings.Cut(rest, " -> ")
		for _, x := range strings.Split(before, " | ") {
			for _, y := range strings.Split(what, " | ") {
				for _, z := range strings.Split(after, " | ") {
					all = append(all, row{x, y, z})
				}
			}
		}
	}
	return all
}()
