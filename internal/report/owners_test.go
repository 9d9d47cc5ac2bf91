package report

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// fakeTree is a tree in which all processes have these details. A process shows this command line, or with "" its name.
type fakeTree struct {
	commandLine string
	details     orphans.Details
}

func (f fakeTree) CommandLine(p orphans.Process) string { return cmp.Or(f.commandLine, p.Name) }

func (f fakeTree) Details(orphans.Process, []string) orphans.Details { return f.details }

func ownedBy() *Owners { return NewOwners(fakeTree{}, func(string) string { return "" }) }

// below are processes of these names, each of them started by the next one; the first is the leftover.
func below(names ...string) (all []orphans.Process) {
	for i, name := range append([]string{"left"}, names...) {
		all = append(all, process(1<<30+i, 1<<30+i+1, name))
	}
	return all
}

func TestOwner(t *testing.T) {
	for above, want := range map[string]string{
		"": "", "make": "make", "sh bash npm node": "npm", "sshd sh": "sshd", strings.Repeat("sh ", 100) + "make": "make",
		"sh bash dash ash zsh ksh mksh fish csh tcsh": "",
	} {
		o, names := ownedBy(), strings.Fields(above)
		all := below(names...)
		o.Remember(all)
		l, got := o.Of(all[0]), ""
		if l.Owner != nil {
			got = l.Owner.Command
		}
		check.Equal(t, "the owner below "+above, got, want)
		check.Equal(t, "the number of ancestors below "+above, len(l.Chain), min(len(names), maxAncestors))
	}
}

// What a leftover's ancestors were is remembered from the first look at it: later they may have ended.
func TestAncestorsAreRemembered(t *testing.T) {
	l, all := ownedBy(), below("sh", "pytest")
	l.Remember(all)
	low, pytest := all[0], Ancestor{all[2].Pid, "pytest"}
	low.Parent = 1
	l.Remember([]orphans.Process{low})
	check.Equal(t, "of it", l.Of(low), Lineage{Chain: []Ancestor{{all[1].Pid, "sh"}, pytest}, Owner: &Owner{pytest, "pytest"}})
	again := low
	again.Start += 10 * ms // another with its pid
	check.Equal(t, "of another", l.Of(again), Lineage{})
	var crowd []orphans.Process
	for i := range 3 * maxLineages {
		crowd = append(crowd, process(1<<20+i, 1, fmt.Sprint("x", i)))
	}
	l.Remember(crowd)
	check.Equal(t, "what it remembers", len(l.lineages), maxLineages)
}

// A look is not atomic and pids are used again, so the processes above one may be a circle.
func TestCircle(t *testing.T) {
	o := ownedBy()
	all := []orphans.Process{process(30, 31, "a"), process(31, 30, "b"), process(40, 40, "self")}
	o.Remember(all)
	for _, p := range all {
		check.Equal(t, "it has more ancestors than there are", len(o.Of(p).Chain) > len(all), false)
	}
}

func TestDuring(t *testing.T) {
	own := func(name string) string {
		return map[string]string{"GITHUB_ACTION": "__run_2", "npm_lifecycle_event": "test"}[name]
	}
	long := strings.Repeat("long ", 999)
	for want, found := range map[string]map[string]string{
		"":                         {"GITHUB_ACTION": "__run_2", "npm_lifecycle_event": "test"}, // fini has them too
		"step __run_3":             {"GITHUB_ACTION": "__run_3"},
		"npm script dev":           {"npm_lifecycle_event": "dev", "GITHUB_ACTION": "__run_2"},
		"test a.py::test_b (call)": {"PYTEST_CURRENT_TEST": "a.py::test_b (call)", "JEST_WORKER_ID": "1"},
		"Jest worker 3":            {"JEST_WORKER_ID": "3", "npm_lifecycle_event": "test"},
		"test " + long[:maxText]:   {"FINI_TEST": long},
	} {
		l := NewOwners(fakeTree{details: orphans.Details{Variables: found}}, own).Of(member)
		if l.During != want || l.Marks == nil || len(l.Marks) != len(found) {
			t.Errorf("%v: %+v, want %q", found, l, want)
		}
	}
	// The most telling come first, and what is beyond the first few can still say where it was.
	many, same := map[string]string{"CIRCLE_JOB": "mine"}, map[string]string{}
	for _, name := range HintNames()[:maxMarks] {
		many[name], same[name] = "same", "same"
	}
	l := NewOwners(fakeTree{details: orphans.Details{Variables: many}}, func(name string) string { return same[name] }).Of(member)
	if l.During != "job mine" || len(l.Marks) != maxMarks || l.Marks[0].Variable != "FINI_TEST" {
		t.Errorf("%+v", l)
	}
}
