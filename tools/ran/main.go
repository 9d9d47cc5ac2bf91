// Ran reads what `go test -json` says, shows of it what go test would show, and adds what go test keeps to itself: what was
// skipped and why, what was tried again, and how long each package took. With -whole it compares what there is with
// what ran: a test that did not run is an error, and so is a row of a table. A test that takes longer than -each would take on
// an idle machine ends its package: see late.go.
//
//	go test -json -timeout 0 ./... | ran [-budget SECONDS] [-each DURATION] [-whole]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

func main() {
	budget := flag.Float64("budget", 0, "seconds that a package may take; 0 for any time")
	each := flag.Duration("each", 0, "time that a test may take on an idle machine; 0 for any time")
	whole := flag.Bool("whole", false, "all tests and all rows of their tables have to have run")
	flag.Parse()
	r := newRun()
	err := r.readUnlessLate(os.Stdin, os.Stdout, *each, quit)
	r.summary(os.Stdout)
	bad := r.overBudget(*budget)
	if *whole && err == nil {
		var there []source
		there, err = sources()
		bad = append(bad, r.unrun(there)...)
	}
	if err != nil {
		bad = append(bad, fmt.Sprint("ran: ", err))
	}
	for _, line := range bad {
		fmt.Println(line)
	}
	if len(bad) > 0 || r.failed {
		os.Exit(1)
	}
}

// An event is one line of go test -json: see go doc test2json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// A test is a test or subtest of a package.
type test struct{ pkg, name string }

// A run is what tests have come to.
type run struct {
	verdict map[test]string // pass, fail or skip
	output  map[test]string // of those that have no verdict yet
	why     map[test]string // of a skip; "" where package need was not asked
	took    map[string]float64
	notes   map[string]map[string]int // what was noted, and how often
	since   map[test]time.Duration    // what clock showed when it began, or its last subtest ended
	clock   check.Wait                // it shows how long this would have taken on an idle machine
	failed  bool
}

func newRun() *run {
	return &run{verdict: map[test]string{}, output: map[test]string{}, why: map[test]string{}, took: map[string]float64{},
		notes: map[string]map[string]int{"TRIED AGAIN": {}, "CUT SHORT": {}}, since: map[test]time.Duration{}}
}

// What tests say to be found here.
var (
	missing = regexp.MustCompile(`SKIPPED, (?:for this is missing: )?(.*)`)
	noted   = regexp.MustCompile(`(TRIED AGAIN|CUT SHORT): (.*)`)
)

// read takes in all that go test says, and shows what failed.
func (r *run) read(from io.Reader, to io.Writer) error {
	return r.readUnlessLate(from, to, 0, nil)
}

// line takes in one line.
func (r *run) line(line []byte, to io.Writer) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = to.Write(line)
	} else {
		r.take(e, to)
	}
}

func (r *run) take(e event, to io.Writer) {
	of := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(to, e.Output)
	case "output":
		if found := noted.FindStringSubmatch(e.Output); found != nil {
			r.notes[found[1]][found[2]]++
		}
		if e.Test != "" {
			r.output[of] += e.Output
		} else if e.Output != "PASS\n" {
			fmt.Fprint(to, e.Output)
		}
	case "run", "cont":
		r.runs(of)
	case "pause":
		delete(r.since, of)
	case "pass", "fail", "skip":
		r.ended(of)
		if e.Action == "fail" {
			r.failed = true
		}
		ended := []test{of}
		if e.Test == "" { // the package has ended, and with it the tests that had no end
			r.took[e.Package] = e.Elapsed
			ended = slices.DeleteFunc(slices.Collect(maps.Keys(r.output)), func(of test) bool { return of.pkg != e.Package })
		} else {
			r.verdict[of] = e.Action
			if found := missing.FindStringSubmatch(r.output[of]); e.Action == "skip" && found != nil {
				r.why[of] = found[1]
			}
		}
		for _, of := range ended {
			if e.Action == "fail" {
				fmt.Fprint(to, r.output[of])
			}
			delete(r.output, of)
		}
	case "build-fail":
		r.failed = true
	}
}

// short is a package's name within the module.
func short(pkg string) string {
	_, name, _ := strings.Cut(pkg, "/fini")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "/"), "e2e/")
	if name == "" {
		return "fini"
	}
	return name
}

// summary tells what go test keeps to itself.
func (r *run) summary(to io.Writer) {
	lacks, count, lacking := map[string]int{}, map[string]int{}, 0
	for of, verdict := range r.verdict {
		count[verdict]++
		if verdict == "skip" && r.why[of] != "" {
			lacks[r.why[of]]++
			lacking++
		}
	}
	most := func(title string, of map[string]int) {
		if len(of) == 0 {
			return
		}
		fmt.Fprintln(to, title)
		for _, what := range slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			if of[a] != of[b] {
				return of[b] - of[a]
			}
			return strings.Compare(a, b)
		}) {
			fmt.Fprintf(to, "%7d %s\n", of[what], what)
		}
	}
	most("Skipped because something is missing (number of tests, what; make deps installs it):", lacks)
	most("Tried again (how often, what):", r.notes["TRIED AGAIN"])
	for _, what := range slices.Sorted(maps.Keys(r.notes["CUT SHORT"])) {
		fmt.Fprintln(to, "Cut short:", what)
	}
	var took []string
	for _, pkg := range slices.Sorted(maps.Keys(r.took)) {
		if r.took[pkg] >= 0.5 {
			took = append(took, fmt.Sprintf("%s %.0f", short(pkg), r.took[pkg]))
		}
	}
	fmt.Fprintln(to, "Seconds that each package took:", strings.Join(took, ", "))
	if count["skip"] > 0 {
		fmt.Fprintf(to, "Of the skipped, %d lack something, and %d are not quick: make test-all runs them\n", lacking, count["skip"]-lacking)
	}
	fmt.Fprintf(to, "cases: %d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
}

// overBudget names the packages that took too long.
func (r *run) overBudget(seconds float64) (bad []string) {
	for _, pkg := range slices.Sorted(maps.Keys(r.took)) {
		if seconds > 0 && r.took[pkg] > seconds {
			bad = append(bad, fmt.Sprintf("%s took %.0f s, more than its budget of %.0f s", short(pkg), r.took[pkg], seconds))
		}
	}
	return bad
}
