package report

import (
	"slices"

	"github.com/seed-126c5d8a/fini/orphans"
)

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

// Lineage is where a leftover comes from, as far as that was to be seen when it was seen first.
type Lineage struct {
	Chain  []Ancestor // those above it that were alive, the nearest first
	Owner  *Owner     // the first of them that is no shell; nil for none
	Marks  []Mark     // what its environment says, the most telling first
	Open   bool       // its environment could be looked at
	During string     // what the marks say, in words; "" for nothing

	At orphans.Details // where it is
}

// Ancestor is a process above a leftover, by the pid that a user sees.
type Ancestor struct {
	Pid  int
	Name string
}

// Owner is who started a leftover, with the command line.
type Owner struct {
	Ancestor
	Command string
}

// Mark is a variable of a leftover's environment that says in which test, script, step or job it was
// started.
type Mark struct {
	Variable string
	Value    string
}

const (
	maxLineages  = 1000 // so many leftovers are remembered,
	maxAncestors = 16   // so many ancestors
	maxMarks     = 4    // and marks of each,
	maxText      = 512  // and so many bytes of an owner's command line or a mark
)

// Tree is what Owners has the details of processes from: an orphans.Tree.
type Tree interface {
	CommandLine(orphans.Process) string
	Details(p orphans.Process, variables []string) orphans.Details
}

// Owners remembers who started what a look at the tree has found: who did may have ended by the time
// that a leftover is told of.
type Owners struct {
	tree     Tree
	getenv   func(string) string // of fini's own environment
	main     int                 // the main child's pid
	mainLine string              // what it was started as
	found    map[int]orphans.Process
	lineages map[orphans.ID]Lineage // when they were first found
	owners   map[orphans.ID]*Owner  // who started some of them
}

// NewOwners remembers nobody yet. getenv looks up a variable of fini's own environment: what fini was
// started with itself tells nothing about a part of its tree.
func NewOwners(tree Tree, getenv func(string) string) *Owners {
	return &Owners{tree: tree, getenv: getenv, lineages: map[orphans.ID]Lineage{}, owners: map[orphans.ID]*Owner{}}
}

// Main says what the main child was started as.
func (o *Owners) Main(pid int, commandLine string) { o.main, o.mainLine = pid, commandLine }

// Remember notes who started those that a look has found and none before it.
func (o *Owners) Remember(found []orphans.Process) {
	o.found = map[int]orphans.Process{}
	for _, p := range found {
		o.found[p.Pid] = p
	}
	for _, p := range found {
		if _, known := o.lineages[p.ID()]; !known && len(o.lineages) < maxLineages {
			o.lineages[p.ID()] = o.above(o.ancestors(p))
		}
	}
}

// ancestors are the processes above p, the nearest first, as far as the last look has found them.
func (o *Owners) ancestors(p orphans.Process) (chain []orphans.Process) {
	for range o.found {
		parent, ok := o.found[p.Parent]
		if !ok {
			break
		}
		p = parent
		chain = append(chain, p)
	}
	return chain
}

// above is the part of a lineage that a chain of ancestors shows.
func (o *Owners) above(chain []orphans.Process) (l Lineage) {
	for i, p := range chain {
		a := Ancestor{p.Pid, p.Name}
		if i < maxAncestors {
			l.Chain = append(l.Chain, a)
		}
		if l.Owner == nil && !slices.Contains(shells, p.Name) {
			if l.Owner = o.owners[p.ID()]; l.Owner == nil {
				line := o.tree.CommandLine(p)
				if p.Pid == o.main && line == p.Name { // it is ending, and has nothing to show any more
					line = o.mainLine
				}
				text, _ := firstBytes(line, maxText)
				l.Owner = &Owner{a, text}
				if len(o.owners) < maxLineages {
					o.owners[p.ID()] = l.Owner
				}
			}
		}
	}
	return l
}

// Of is the lineage of a process which the last look has found.
func (o *Owners) Of(p orphans.Process) Lineage {
	l, known := o.lineages[p.ID()]
	if !known {
		l = o.above(o.ancestors(p))
	}
	l.At = o.tree.Details(p, hintNames())
	variables := l.At.Variables
	l.Open = variables != nil
	for _, m := range hints {
		value := variables[m.variable]
		if value == "" || len(l.Marks) == maxMarks && l.During != "" {
			continue
		}
		text, _ := firstBytes(value, maxText)
		if l.During == "" && o.getenv(m.variable) != value {
			l.During = m.what + " " + text
		}
		if len(l.Marks) < maxMarks {
			l.Marks = append(l.Marks, Mark{m.variable, text})
		}
	}
	return l
}
