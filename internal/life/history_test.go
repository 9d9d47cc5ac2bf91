package life

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// A scene is a line of a history.
type scene struct {
	at               time.Duration
	who, what, event string
	turn             string // as in life_test.go
}

func (w *world) scene(format string, args ...any) {
	if w.story != nil {
		*w.story = append(*w.story, scene{at: w.now, what: fmt.Sprintf(format, args...)})
	}
}

// tell is how a world was come by, retold from the beginning of its scenario.
func (s scenario) tell(broken *world) string {
	w := s.start()
	w.story = &[]scene{}
	var choices []choice
	for p := broken.past; p != nil; p = p.before {
		choices = append(choices, p.taken)
	}
	for _, c := range slices.Backward(choices) {
		w.take(c)
	}
	return w.tell(s.name)
}

// tell is the story of a world: as a table, and the turns of each fini. See README.md for how to read it.
func (w *world) tell(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nin: %s\n\n", w.broken, name)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ms\twho\tevent\twhat follows")
	for _, x := range *w.story {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", (x.at-epoch)/ms, x.who, x.event, x.what)
	}
	_ = table.Flush()
	for i := range w.finis {
		f := &w.finis[i]
		var turns []string
		for _, x := range *w.story {
			if x.who == w.name(f.id) {
				turns = append(turns, "\t"+x.turn+"\n")
			}
		}
		if len(turns) > 0 {
			rules := without(zero, fmt.Sprintf("%+v", f.rules))
			fmt.Fprintf(&b, "\nas a case of life_test.go, for %s, rules %s:\n%s", w.name(f.id), rules, strings.Join(turns, ""))
		}
	}
	fmt.Fprintln(&b, "\nthe world then:")
	for _, p := range w.procs() {
		fmt.Fprintf(&b, "  %-8s pid %d, parent %s, group %d, session %d, %c, %s\n",
			w.name(p.id), p.pid, w.name(p.parent), p.group, p.session, p.state, without(zero, fmt.Sprintf("%+v", p.mark)))
	}
	fmt.Fprintf(&b, "what the invariants remember: %s\n", without(zero, fmt.Sprintf("%+v", w.ghost)))
	return regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n")
}

// What a line need not say: a field that is zero, as fmt writes it by %+v and by %#v.
var (
	zero   = regexp.MustCompile(`\b\w+:(?:false|0s?|signal 0|\[\]|map\[\]|<nil>)(?:([ }])|$)`)
	goZero = regexp.MustCompile(`\b\w+:(?:false|0x0|0|""|\w+\(nil\)|\(\*[\w.]+\)\(nil\))(?:, |(}))`)
)

// without leaves out what such an expression finds, except for the bracket behind it.
func without(fields *regexp.Regexp, text string) string {
	text = fields.ReplaceAllString(text, "$1")
	return strings.NewReplacer(", }", "}", " }", "}", "{ ", "{").Replace(regexp.MustCompile(` +`).ReplaceAllString(text, " "))
}

// eventText is an event as the table of a history has it.
func eventText(e event) string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	switch e := e.(type) {
	case Signal:
		add(true, "signal %d", e.Signal)
		add(e.FromKernel, "from the kernel")
		add(e.OfTree, "from the tree")
		add(e.Early, "early")
		add(e.Relayed, "relayed")
	case stop:
		add(true, "stop: %s", e.why)
		add(e.unread > 0, "%d unread", e.unread)
	case reaped:
		add(len(e.main) == 0 && !e.hidden && !e.none, "reaped others")
		add(len(e.main) > 0, "reaped main: %#x", e.main)
		add(e.hidden, "main is hidden by a tracer")
		add(e.none, "nobody is left")
	case looked:
		var names []string
		for _, p := range e.Found {
			names = append(names, p.Name)
		}
		add(true, "looked: %s", strings.Join(names, " "))
		add(!e.Complete, "not complete")
		add(e.Nameless, "nameless")
	default:
		add(true, "%s", strings.TrimSuffix(strings.TrimPrefix(without(zero, fmt.Sprintf("%T%+v", e, e)), "life."), "{}"))
	}
	return strings.Join(words, ", ")
}

// eventCode is an event as life_test.go writes it.
func eventCode(e event) string {
	text := goHolding.ReplaceAllString(fmt.Sprintf("%#v", e), "orphans.Holds($1)")
	return without(goZero, strings.ReplaceAll(text, "life.", ""))
}

var goHolding = regexp.MustCompile(`orphans\.Holding\{held:(0x\d), free:0x\d\}`)

// actText is what the outer fini does while it sleeps.
func actText(acts entry.Act) string {
	var words []string
	for i, word := range strings.Split("relay, tell parent's death, continue inner, suspend, kill inner, let go, "+
		"be stoppable, wait a second, exit, start runtime", ", ") {
		if acts>>i&1 != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

var update = flag.Bool("update", false, "write testdata/history.txt anew")

// The history that README.md explains is what the explorer would print of a ladder that forgets which signal it expects twice.
func TestHistory(t *testing.T) {
	const name, path = "pair, stop, defaults, stubborn, deaths", "testdata/history.txt"
	all := scenarios(true, 1)
	w := all[slices.IndexFunc(all, func(s scenario) bool { return s.name == name })].start()
	w.story = &[]scene{}
	next := choice{moved + uint8(moveOf("and its group are sent TERM")), 0} // the shell is the first one in the world
	for w.broken == "" {
		w.take(next)
		if l, ok := w.worker().machine.(*ladder); ok {
			l.expectedDuplicate = 0 // it forgets
		}
		list := w.choices(nil)
		if len(list) == 0 {
			t.Fatalf("no invariant is broken:\n%s", w.tell(name))
		}
		if next = list[0]; len(list) > 1 && list[1].kind == goesOn {
			next = list[1] // the inner fini, if both can
		}
	}
	told := w.tell(name)
	if *update {
		check.Put(t, path, told, 0o644)
	}
	if told != check.ReadFile(t, path) {
		t.Errorf("it is told like this, and in %s in another way (go test ./internal/life -run History -update):\n%s", path, told)
	}
	table, _, _ := strings.Cut(told, "\nas a case")
	for line := range strings.Lines(table) {
		if line != "\n" && !strings.Contains(check.ReadFile(t, "README.md"), "    "+line) {
			t.Errorf("README.md lacks this line of the history: %q", line)
		}
	}
}
