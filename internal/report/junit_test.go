package report

import (
	"encoding/xml"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// A suite is a report as the reader of JUnit's XML has it.
type suite struct {
	Name     string  `xml:"name,attr"`
	Tests    int     `xml:"tests,attr"`
	Failures int     `xml:"failures,attr"`
	Errors   int     `xml:"errors,attr"`
	Time     float64 `xml:"time,attr"`
	Cases    []struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		File    string   `xml:"file,attr"`
		Failure *verdict `xml:"failure"`
		Error   *verdict `xml:"error"`
	} `xml:"testcase"`
}

type verdict struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// mustBeSuite asserts that a report is well-formed, and counts its cases rightly. A case is its name, its file and what is wrong.
func mustBeSuite(t *testing.T, r *Report) (cases []string) {
	t.Helper()
	text := r.junit()
	var all struct {
		Suites []suite `xml:"testsuite"`
	}
	check.NoError(t, xml.Unmarshal(text, &all))
	if len(all.Suites) != 1 || !strings.HasPrefix(string(text), xmlMark+r.fini+" -->\n") || strings.Contains(string(text), "##") {
		t.Fatalf("%d suites: %s", len(all.Suites), text)
	}
	s := all.Suites[0]
	failures, errors := 0, 0
	for _, c := range s.Cases {
		name := c.Name
		if c.File != "" {
			name += " in " + c.File
		}
		switch {
		case c.Failure != nil:
			failures++
			name += ": " + c.Failure.Message + ": " + strings.TrimSuffix(c.Failure.Text, "\n")
		case c.Error != nil:
			errors++
			name += ": error: " + c.Error.Message
		}
		check.Equal(t, "the class", c.Class, "fini")
		cases = append(cases, name)
	}
	if s.Tests != len(cases) || s.Failures != failures || s.Errors != errors || s.Tests == 0 || s.Time == 0 {
		t.Errorf("%+v", s)
	}
	return cases
}

func TestJUnit(t *testing.T) {
	run := func(change func(r *Report)) []string {
		r := newTestReport(t)
		change(r)
		return mustBeSuite(t, r)
	}
	equal := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", what, got, want)
		}
	}
	equal("a clean command", run(func(*Report) {}), "command")
	equal("none", run(func(r *Report) { r.command = nil }), "fini")
	equal("not started", run(func(r *Report) { r.Err = "cannot run a: <b>" }), "command: error: cannot run a: <b>")

	from := Lineage{During: "test a/x.py::y", At: orphans.Details{Listens: []string{"127.0.0.1:80"}}}
	leaks := func(r *Report) {
		r.AddLeftover(process(300, 1, "left"), "node <&> x", from, "", false, sent(), "")
		r.AddLeftover(process(301, 1, "left"), "redis", Lineage{}, "", false, sent(), "")
		r.AddLeftover(process(302, 1, "left"), "daemon", Lineage{}, "pipes", false, sent(), "")
	}
	equal("leaks", run(leaks), "command",
		"a/x.py::y in a/x.py: left running: node <&> x: 300 (node <&> x), started in test a/x.py::y, listens on tcp 127.0.0.1:80\nended: no",
		"left running: redis: left running: redis: 301 (redis)\nended: no")
	equal("what a stopped command has left", run(func(r *Report) { leaks(r); r.isStopped = true }), "command")

	runs := func(r *Report, tests ...string) {
		var seen []orphans.Activity
		for _, test := range tests {
			seen = append(seen, doing('S', "node", 2*time.Second, nil, test))
		}
		r.SetRunning(seen, 0, NewOwners(nil, func(string) string { return "" }))
		r.isStopped, r.OutOfTime = true, "--timeout=3s has passed"
		leaks(r)
	}
	const still = "still running 4711 (node), for 2s, sleeping"
	equal("a test that hangs", run(func(r *Report) { runs(r, "a.js::b", "", "a.js::b", "c") }),
		"a.js::b in a.js: --timeout=3s has passed: "+still+", started in test a.js::b\n"+still+", started in test a.js::b",
		"c: --timeout=3s has passed: "+still+", started in test c")
	equal("no test is known", run(func(r *Report) { runs(r, "", "") }), "command: --timeout=3s has passed: "+still+"\n"+still)
	equal("nothing was found", run(func(r *Report) { runs(r) }), "command: --timeout=3s has passed: ")
	more := run(func(r *Report) {
		for i := range maxLeftovers + 5 {
			r.AddLeftover(process(1000+i, 1, "left"), strings.Repeat("<", 100_000), from, "", false, sent(), "")
		}
		r.AddLeftover(process(1, 1, "kept"), "kept", from, "pipes", false, sent(), "")
		for pid := 3; pid < 5; pid++ {
			r.AddLeftover(process(pid, 1, "left"), "left", from, "leave", false, sent(), "") // a leak
		}
		allowed := process(2, 1, "allowed")
		allowed.Allowed = true
		r.AddLeftover(allowed, "allowed", from, "", false, sent(), "")
		check.Equal(t, "whether the summary has what it leaves out", strings.HasSuffix(r.Summary("It left some"), "\nAnd 237 more.\n\n"), true)
	})
	equal("the last of many", more[len(more)-1:], "left running: 7 more: left running: 7 more: ")
}

// No name makes the text anything but XML 1.0, in which no control character may be, not even as a number.
func TestJUnitOfHostileNames(t *testing.T) {
	r := newTestReport(t)
	var odd string
	for c := range rune(0x2100) {
		odd += string(c)
	}
	odd += "\ufffe\uffff\U0001f600]]>\xff\xed\xa0\x80<!--\n::error::x\n##vso[task]&#0;"
	r.command = []string{odd}
	r.AddLeftover(process(300, 1, "left"), odd, Lineage{During: "test " + odd, Chain: []Ancestor{{1, odd}}, At: orphans.Details{Listens: []string{odd}, Dir: odd, OtherDir: true}}, "", false, sent(), "")
	check.Equal(t, "how many cases", len(mustBeSuite(t, r)), 2)
	r.SetRunning([]orphans.Activity{doing('S', odd, 0, []string{odd}, odd+"::x")}, 0, NewOwners(nil, func(string) string { return "" }))
	r.OutOfTime = odd
	mustBeSuite(t, r)
	text := string(r.junit())
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\n' || c >= 0xfffe && c <= 0xffff }) || strings.Contains(text, "\n::error") || strings.Contains(text, "]]>") {
		t.Errorf("%q", text)
	}
}

// The name of a file says what it gets. Each place gets its report, also if another one fails.
func TestReportsInTwoForms(t *testing.T) {
	dir := t.TempDir()
	r := newTestReport(t)
	for _, name := range []string{"a.xml", "b.XML", "xml"} {
		to, err := Open(filepath.Join(dir, name), [3]bool{})
		check.NoError(t, err)
		r.To = append(r.To, to)
	}
	r.To = append([]Place{{FD: -1, Path: "x"}}, r.To...)
	check.Equal(t, "how many have failed", len(r.Write(0)), 1)
	for name, begins := range map[string]string{"a.xml": "<?xml", "b.XML": "<?xml", "xml": "{\n"} {
		if text := check.ReadFile(t, filepath.Join(dir, name)); !strings.HasPrefix(text, begins) {
			t.Errorf("%s: %q", name, text)
		}
	}
	// The next run replaces them.
	_, err := Open(filepath.Join(dir, "a.xml"), [3]bool{})
	check.NoError(t, err)
}
