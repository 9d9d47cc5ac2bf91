package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// marker is what stands in the page before all that this program writes.
const marker = "<!-- From here on `make kernels` writes. -->"

// A gap is a test, or a part of one, that does not run in some columns, and why.
type gap struct {
	columns   []string
	pkg, test string // no test: the whole package
	why       string
}

func (g gap) in(c *column) bool { return slices.Contains(g.columns, c.name) }

// leftOut is the pattern of what does not run.
func (c *column) leftOut(pkg string) string {
	var tests []string
	for _, g := range gaps {
		if g.pkg == pkg && g.in(c) {
			if g.test == "" {
				return "."
			}
			tests = append(tests, "^"+strings.ReplaceAll(g.test, "/", "$/^")+"$")
		}
	}
	return strings.Join(tests, "|")
}

// random is what the name of a test's folder ends in.
var random = regexp.MustCompile(`fini-e2e-[0-9]+`)

// A fact is one of those that the page states and a run shows: what becomes of a case in a column, or
// what of a case is missing there, and why.
type fact struct{ column, subject, text string }

// facts of a column that has run.
func (r *result) facts() (facts []fact) {
	for _, g := range groups {
		var ran, missing int
		for _, t := range r.tests {
			if !g.has(t.pkg, t.name) {
				continue
			}
			if t.action != "skip" {
				ran++
				continue
			}
			missing++
			_, why, _ := strings.Cut(t.text, "for this is missing: ")
			why, _, _ = strings.Cut(why, "\n")
			why = random.ReplaceAllString(why, "fini-e2e-*")
			top, _, _ := strings.Cut(t.name, "/")
			facts = append(facts, fact{r.column.name, "`" + top + "`", "missing: " + strings.ReplaceAll(why, "|", "/")})
		}
		for _, l := range gaps {
			if l.in(r.column) && g.has(l.pkg, l.test) {
				missing++
				facts = append(facts, fact{r.column.name, "`" + cmp.Or(l.test, l.pkg) + "`", l.why})
			}
		}
		cell := "ok"
		switch {
		case ran == 0:
			cell = "no"
		case missing > 0:
			cell = "in part"
		}
		facts = append(facts, fact{r.column.name, g.name, cell})
	}
	slices.SortFunc(facts, func(a, b fact) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(facts)
}

// stated are the facts of a page, and apart from them the releases of the kernels, which come and go.
func stated(page string) (facts []fact, releases map[string]string) {
	releases = map[string]string{}
	var names []string
	_, tables, _ := strings.Cut(page, marker)
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) < 3 || strings.HasPrefix(cells[0], "---") || cells[0] == "what":
		case cells[0] == "case":
			names = cells[1:]
		case cells[0] == "kernel":
			for i, cell := range cells[1:] {
				releases[names[i]] = cell
			}
		case len(cells) == 3:
			for _, name := range strings.Split(cells[1], ", ") {
				facts = append(facts, fact{name, cells[0], cells[2]})
			}
		default:
			for i, cell := range cells[1:] {
				if cell == "" {
					continue // it has not run yet
				}
				facts = append(facts, fact{names[i], cells[0], cell})
			}
		}
	}
	return facts, releases
}

// tables are the facts as the page has them, and the releases of the kernels.
func tables(facts []fact, releases map[string]string) string {
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	cells, where := map[fact]string{}, map[fact][]string{}
	for _, f := range facts {
		if strings.HasPrefix(f.subject, "`") {
			key := fact{subject: f.subject, text: f.text}
			where[key] = append(where[key], f.column)
		} else {
			cells[fact{column: f.column, subject: f.subject}] = f.text
		}
	}
	head, rule, kernels := []string{"case"}, []string{"---"}, []string{"kernel"}
	for _, c := range columns {
		head, rule, kernels = append(head, c.name), append(rule, "---"), append(kernels, releases[c.name])
	}
	row(head...)
	row(rule...)
	row(kernels...)
	for _, g := range groups {
		line := []string{g.name}
		for _, c := range columns {
			line = append(line, cells[fact{column: c.name, subject: g.name}])
		}
		row(line...)
	}
	b.WriteString("\nTests of the cases above that can't run in a place:\n\n")
	row("what", "where", "why")
	row("---", "---", "---")
	for _, key := range slices.SortedFunc(maps.Keys(where), func(a, b fact) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		row(key.subject, strings.Join(where[key], ", "), key.text)
	}
	return b.String()
}

// compare is an error if a test has failed, or if the page says something else than what ran.
func compare(path string, results []*result, write bool) error {
	for _, r := range results {
		if r.err != nil || slices.ContainsFunc(r.tests, func(t test) bool { return t.action == "fail" }) {
			return errors.New("not all holds: see above")
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, found := strings.Cut(string(text), marker)
	if !found {
		return fmt.Errorf("cannot find the line %q in %s", marker, path)
	}
	differ := 0
	says, releases := stated(string(text))
	now := slices.Clone(says)
	for _, r := range results {
		facts := r.facts()
		now = slices.DeleteFunc(now, func(f fact) bool { return f.column == r.column.name })
		now, releases[r.column.name] = append(now, facts...), r.release
		for _, f := range facts {
			if !slices.Contains(says, f) {
				differ++
				fmt.Printf("%s does not say of %s: %s: %s\n", path, f.column, f.subject, f.text)
			}
		}
		for _, f := range says {
			if f.column == r.column.name && !slices.Contains(facts, f) {
				differ++
				fmt.Printf("%s says of %s what is not so: %s: %s\n", path, f.column, f.subject, f.text)
			}
		}
	}
	if write && differ > 0 {
		order := func(f fact) int { return slices.IndexFunc(columns, func(c *column) bool { return c.name == f.column }) }
		slices.SortStableFunc(now, func(a, b fact) int { return order(a) - order(b) })
		if err := os.WriteFile(path, []byte(before+marker+"\n\n"+tables(now, releases)), 0o644); err != nil {
			return err
		}
	}
	if differ > 0 {
		return fmt.Errorf("%s says something else than what ran", path)
	}
	return nil
}
