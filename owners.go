package main

import (
	"fmt"
	"slices"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// This file finds out whose leftover one is: who started it, and in which test or step.

// A hint is a variable of the environment in which a tool says what is running.
type hint struct{ variable, what string }

// hints are what tools set according to their documentation, the most telling first.
var hints = []hint{
	{"FINI_TEST", "test"}, // for those that set nothing, such as go test
	{"PYTEST_CURRENT_TEST", "test"},
	{"NEXTEST_TEST_NAME", "test"}, // cargo-nextest 0.9.116 and later
	{"BATS_TEST_NAME", "test"},
	{"TEST_TARGET", "target"}, // Bazel
	{"NEXTEST_BINARY_ID", "test binary"},
	{"TEST_WORKER_INDEX", "Playwright worker"},
	{"VITEST_POOL_ID", "Vitest worker"},
	{"JEST_WORKER_ID", "Jest worker"},
	{"CARGO_PKG_NAME", "crate"},
	{"npm_lifecycle_event", "npm script"},
	{"npm_package_name", "npm package"},
	{"GITHUB_ACTION", "step"},
	{"BUILDKITE_LABEL", "step"},
	{"GITHUB_JOB", "job"},
	{"CI_JOB_NAME", "job"}, // GitLab
	{"CIRCLE_JOB", "job"},
}

// hintNames are the variables of hints.
func hintNames() (names []string) {
	for _, m := range hints {
		names = append(names, m.variable)
	}
	return names
}

// shells are passed over in the search for who started a leftover: they run what others say.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"}

// leftovers is what is known of leftovers, by the looks so far.
type leftovers struct {
	found    family                 // by the last look
	lineages map[orphans.ID]lineage // when they were first found
	owners   map[orphans.ID]*owner  // who started some of them
	told     []string               // those that were told of
	allow    []string               // names of those that are left alone
	outside  *orphans.Outside       // of an inner fini that is isolated
}

// A lineage is where a leftover comes from, as far as that was to be seen when it was seen first.
type lineage struct {
	chain  []ancestor // those above it that were alive, the nearest first
	owner  *owner     // the first of them that is no shell; nil for none
	marks  []marked   // in the order of hints
	open   bool       // its environment could be looked at
	during string     // what the marks say, in words; "" for nothing
}

type ancestor struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

type owner struct {
	ancestor
	Command string `json:"command"`
}

type marked struct {
	Variable string `json:"variable"`
	Value    string `json:"value"`
}

const (
	maxLineages  = 1000 // so many leftovers are remembered
	maxAncestors = 16   // so many ancestors of each
)

// remember notes who started the leftovers that a look has found and none before it: who did
// may have ended by the time they are told of.
func (l *loop) remember(found []orphans.Process) {
	f := familyOf(found)
	if l.lineages == nil {
		l.lineages = map[orphans.ID]lineage{}
	}
	for _, p := range found {
		if _, known := l.lineages[p.ID()]; !known && len(l.lineages) < maxLineages {
			l.lineages[p.ID()] = l.above(f.ancestors(p))
		}
	}
}

// above is the part of a lineage that a chain of ancestors shows.
func (l *loop) above(chain []orphans.Process) (o lineage) {
	for i, p := range chain {
		a := ancestor{l.outside.Pid(p.Pid), p.Name}
		if i < maxAncestors {
			o.chain = append(o.chain, a)
		}
		if o.owner == nil && !slices.Contains(shells, p.Name) {
			o.owner = l.owners[p.ID()]
			if o.owner == nil {
				o.owner = &owner{a, l.tree.CommandLine(p)}
				if l.owners == nil {
					l.owners = map[orphans.ID]*owner{}
				}
				l.owners[p.ID()] = o.owner
			}
		}
	}
	return o
}

// lineage is that of a leftover which the last look has found.
func (l *loop) lineage(p orphans.Process) lineage {
	o, known := l.lineages[p.ID()]
	if !known {
		o = l.above(l.found.ancestors(p))
	}
	variables, err := l.tree.Environ(p, hintNames())
	o.open = err == nil
	for _, m := range hints {
		if value := variables[m.variable]; value != "" {
			o.marks = append(o.marks, marked{m.variable, value})
		}
	}
	o.during = during(o.marks, reaper.Getenv)
	return o
}

// during is the most telling mark, in words. What fini was started with itself tells nothing
// about a part of its tree.
func during(found []marked, own func(string) string) string {
	for _, m := range found {
		if own(m.Variable) != m.Value {
			at := slices.IndexFunc(hints, func(known hint) bool { return known.variable == m.Variable })
			return hints[at].what + " " + m.Value
		}
	}
	return ""
}

// String is what a line says of it, "" for nothing.
func (o lineage) String() (text string) {
	for i, a := range o.chain {
		text += []string{" by ", " < "}[min(i, 1)]
		if o.owner != nil && o.owner.Pid == a.Pid {
			text += fmt.Sprintf("%d (%s)", a.Pid, oneLine(o.owner.Command, 60))
		} else {
			text += oneLine(a.Name, 16)
		}
	}
	if o.during != "" {
		text += " in " + oneLine(o.during, 200)
	}
	if text != "" {
		text = ", started" + text
	}
	return text
}
