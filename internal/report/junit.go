package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A testcase is an element of a JUnit report. It is the command itself, a test that exceeded its time, or a leak.
type testcase struct {
	during, name  string // name is used if during is empty
	kind          string // "failure", "error", or "" for success
	message, text string
	time          float64 // seconds
}

// junit returns the report as JUnit XML, which GitLab, Jenkins and Buildkite show with the test results. The command
// itself is a test case, because Jenkins rejects a suite that has none. It fails if its time was up. Each leak is a
// failed test case, unless fini stopped the command, because its leftovers are then expected.
func (r *Report) junit() []byte {
	command := OneLine(strings.Join(r.command, " "), maxCell)
	cases := []testcase{{name: cmp.Or(command, "fini"), time: seconds(time.Since(r.started))}}
	switch first := &cases[0]; {
	case r.Err != nil:
		first.kind, first.message = "error", fmt.Sprint(r.Err)
	case r.OutOfTime != "":
		first.kind, first.message = "failure", r.OutOfTime
		cases = r.hanging(*first)
	}
	for _, l := range r.leaks() {
		if r.isStopped {
			break
		}
		what := "left running: " + OneLine(l.command, maxCell)
		text := fmt.Sprintf("%s%s%s\nended: %v\n", l.withStarted(fmt.Sprintf("%d (%s)", l.Pid, OneLine(l.command, maxText))),
			startedBy(l.Lineage), whereIs(l.At), cmp.Or(l.ended, any("no")))
		cases = append(cases, testcase{l.During, what, "failure", what, text, 0})
	}
	if r.moreLeaks > 0 && !r.isStopped {
		what := fmt.Sprintf("left running: %d more", r.moreLeaks)
		cases = append(cases, testcase{"", what, "failure", what, "", 0})
	}

	var body string
	count := map[string]int{}
	for _, c := range cases {
		count[c.kind]++
		body += c.xml()
	}
	return []byte(xmlMark + r.fini + " -->\n<testsuites>\n" +
		fmt.Sprintf("  <testsuite name=\"fini\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"0\" time=\"%g\" "+
			"timestamp=\"%s\">\n",
			len(cases), count["failure"], count["error"], cases[0].time, r.started.UTC().Format("2006-01-02T15:04:05")) +
		body + "  </testsuite>\n</testsuites>\n")
}

// hanging returns a test case for each test that was still running, or one for the command if no test is known.
func (r *Report) hanging(of testcase) (cases []testcase) {
	for _, p := range r.running {
		if i := slices.IndexFunc(cases, func(c testcase) bool { return c.during == p.during }); i >= 0 {
			cases[i].text += "still running " + p.text(maxText) + "\n"
		} else {
			c := of
			c.during, c.text = p.during, "still running "+p.text(maxText)+"\n"
			cases = append(cases, c)
		}
	}
	named := slices.DeleteFunc(slices.Clone(cases), func(c testcase) bool { return c.during == "" })
	switch {
	case len(named) > 0:
		return named
	case len(cases) > 0:
		return cases
	}
	return []testcase{of}
}

func (c testcase) xml() string {
	name := strings.TrimPrefix(cmp.Or(OneLine(c.during, maxText), c.name), "test ")
	text := fmt.Sprintf("    <testcase classname=\"fini\" name=\"%s\"", inXML(name))
	if file := testFile(c.during); file != "" {
		text += fmt.Sprintf(" file=\"%s\"", inXML(file))
	}
	text += fmt.Sprintf(" time=\"%g\"", c.time)
	if c.kind == "" {
		return text + "/>\n"
	}
	return text + fmt.Sprintf(">\n      <%s message=\"%s\">%s</%[1]s>\n    </testcase>\n", c.kind,
		inXML(OneLine(c.message, maxText)), inXML(c.text))
}

// inXML escapes text for XML, which has no escapes for control characters. See section 2.2 of XML 1.0.
func inXML(text string) string {
	escaped := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = escaped.Replace(OneLine(line, maxCommandLine))
	}
	return strings.Join(lines, "\n")
}
