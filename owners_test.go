package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/orphans"
)

// ownedBy is a loop that looks at processes that are not there: a command line is then the name.
func ownedBy() *loop { return &loop{tree: orphans.New()} }

func TestOwner(t *testing.T) {
	chain := func(names ...string) (all []orphans.Process) {
		for i, name := range names {
			all = append(all, process(1<<30+i, 1, name))
		}
		return all
	}
	for what, c := range map[string]struct {
		chain []orphans.Process
		want  string
	}{
		"nobody":        {nil, ""},
		"shells alone":  {chain("sh", "bash", "dash", "ash", "zsh", "ksh", "fish"), ""},
		"one":           {chain("make"), "make"},
		"behind shells": {chain("sh", "bash", "npm", "node"), "npm"},
		"like a shell":  {chain("sshd", "sh"), "sshd"},
	} {
		o := ownedBy().above(c.chain)
		got := ""
		if o.owner != nil {
			got = o.owner.Command
		}
		if got != c.want || len(o.chain) != len(c.chain) {
			t.Errorf("%s: %q, and %d ancestors", what, got, len(o.chain))
		}
	}
	var deep []string
	for range 100 {
		deep = append(deep, "sh")
	}
	if o := ownedBy().above(chain(append(deep, "make")...)); len(o.chain) != maxAncestors || o.owner == nil || o.owner.Name != "make" {
		t.Errorf("behind %d shells: %d ancestors, %+v", len(deep), len(o.chain), o.owner)
	}
}

// What a leftover's ancestors were is remembered from the first look at it.
func TestRemember(t *testing.T) {
	l := ownedBy()
	top, middle, low := process(1<<30, 1, "pytest"), process(1<<30+1, 1<<30, "sh"), process(1<<30+2, 1<<30+1, "server")
	l.remember([]orphans.Process{top, middle, low})
	low.Parent = 1
	l.found = familyOf([]orphans.Process{low})
	l.remember([]orphans.Process{low})
	if o := l.lineage(low); len(o.chain) != 2 || o.owner == nil || o.owner.Name != "pytest" || o.open {
		t.Errorf("%+v", o)
	}
	again := low
	again.Start += 10 * ms // another with its pid
	if o := l.lineage(again); len(o.chain) != 0 || o.owner != nil {
		t.Errorf("of another: %+v", o)
	}
	var crowd []orphans.Process
	for i := range 3 * maxLineages {
		crowd = append(crowd, process(1<<20+i, 1, fmt.Sprint("x", i)))
	}
	l.remember(crowd)
	if len(l.lineages) != maxLineages {
		t.Errorf("remembers %d", len(l.lineages))
	}
}

func TestDuring(t *testing.T) {
	own := func(name string) string {
		return map[string]string{"GITHUB_ACTION": "__run_2", "npm_lifecycle_event": "test"}[name]
	}
	for want, found := range map[string][]marked{
		"":                                    {{"GITHUB_ACTION", "__run_2"}, {"npm_lifecycle_event", "test"}}, // fini has them too
		"step __run_3":                        {{"GITHUB_ACTION", "__run_3"}},
		"npm script dev":                      {{"npm_lifecycle_event", "dev"}, {"GITHUB_ACTION", "__run_2"}},
		"test a.py::test_b (call)":            {{"PYTEST_CURRENT_TEST", "a.py::test_b (call)"}, {"JEST_WORKER_ID", "1"}},
		"Jest worker 3":                       {{"JEST_WORKER_ID", "3"}, {"npm_lifecycle_event", "test"}},
		"test " + strings.Repeat("long ", 99): {{"FINI_TEST", strings.Repeat("long ", 99)}},
	} {
		if got := during(found, own); got != want {
			t.Errorf("%v: %q, want %q", found, got, want)
		}
	}
	for want, o := range map[string]lineage{
		"":                     {},
		", started in step x":  {during: "step x"},
		", started by sh < sh": {chain: []ancestor{{7, "sh"}, {6, "sh"}}},
		", started by sh < 6 (npm run dev) < node in test a?b": {
			chain: []ancestor{{7, "sh"}, {6, "npm"}, {5, "node"}}, owner: &owner{ancestor{6, "npm"}, "npm run dev"},
			during: "test a\nb",
		},
	} {
		if got := o.String(); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
	if got := (lineage{during: strings.Repeat("x", 999)}).String(); len(got) > 250 {
		t.Errorf("%d bytes of a line", len(got))
	}
}

func TestHints(t *testing.T) {
	names := hintNames()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(hints) {
		t.Errorf("one comes twice: %v", names)
	}
}
