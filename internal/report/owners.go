package report

import (
	"slices"

	"github.com/seed-126c5d8a/fini/orphans"
)

// hints are the environment variables that tools use to name the running test, script, step or job, according to their
// documentation, the most precise first.
var hints = []struct{ variable, what string }{
	{"FINI_TEST", "test"}, // for tools that set no variable, such as go test
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

// HintNames are the variables of hints.
func HintNames() (names []string) {
	for _, m := range hints {
		names = append(names, m.variable)
	}
	return names
}

// The search for the Owner of a leftover passes over shells, because they run the commands of others.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"}

// Lineage is the origin of a leftover, as far as fini could see it when it first found the leftover.
type Lineage struct {
	Chain  []Ancestor // the live processes above it, the nearest first
	Owner  *Owner     // the first process in Chain that is no shell; nil for none
	Marks  []object   // the hints in its environment, the most precise first; nil if fini may not read the environment
	During string     // the test, script, step or job that a hint names; "" for none

	At orphans.Details // its directory and addresses
}

// Ancestor is a process above a leftover, with the pid that a user sees.
type Ancestor struct {
	Pid  int
	Name string
}

// Owner is the process that started a leftover, with the command line.
type Owner struct {
	Ancestor
	Command string
}

const (
	maxLineages  = 1000 // leftovers to remember
	maxAncestors = 16   // ancestors of each leftover
	maxMarks     = 4    // hints of each leftover
	maxText      = 512  // bytes of an owner's command line or a hint
)

// Tree gives Owners the details of processes. It is an orphans.Tree.
type Tree interface {
	CommandLine(orphans.Process) string
	Details(p orphans.Process, variables []string) orphans.Details
}

// Owners records which process started each process that a look at the tree has found: that process may have exited
// before fini reports its leftover.
type Owners struct {
	tree     Tree
	getenv   func(string) string // of fini's own environment
	main     int                 // the main child's pid
	mainLine string              // its first command line
	found    map[int]orphans.Process
	lineages map[orphans.ID]Lineage // as of the first look that found the process
}

// NewOwners returns Owners without records. getenv looks up a variable of fini's own environment: a
// variable that fini itself was started with says nothing about a part of its tree.
func NewOwners(tree Tree, getenv func(string) string) *Owners {
	return &Owners{tree: tree, getenv: getenv, lineages: map[orphans.ID]Lineage{}}
}

// Main records the main child's pid and first command line.
func (o *Owners) Main(pid int, commandLine string) { o.main, o.mainLine = pid, commandLine }

// Remember records which process started each process that no earlier look has found.
func (o *Owners) Remember(found []orphans.Process) {
	o.found = map[int]orphans.Process{}
	for _, p := range found {
		o.found[p.Pid] = p
	}
	for _, p := range found {
		if _, known := o.lineages[p.ID()]; !known && len(o.lineages) < maxLineages {
			o.lineages[p.ID()] = o.above(p)
		}
	}
}

// above is the part of a lineage that the processes above p show, as far as the last look has found them.
func (o *Owners) above(p orphans.Process) (l Lineage) {
	for range o.found { // a look is not atomic, so there may be a circle
		parent, ok := o.found[p.Parent]
		if !ok {
			break
		}
		p = parent
		a := Ancestor{p.Pid, p.Name}
		if len(l.Chain) < maxAncestors {
			l.Chain = append(l.Chain, a)
		}
		if l.Owner == nil && !slices.Contains(shells, p.Name) {
			line := o.tree.CommandLine(p)
			if p.Pid == o.main && line == p.Name { // the main child is ending, and /proc no longer shows its command line
				line = o.mainLine
			}
			text, _ := firstBytes(line, maxText)
			l.Owner = &Owner{a, text}
		}
	}
	return l
}

// Of is the lineage of a process that the last look has found.
func (o *Owners) Of(p orphans.Process) Lineage {
	l, known := o.lineages[p.ID()]
	if !known {
		l = o.above(p)
	}
	l.At = o.tree.Details(p, HintNames())
	l.Marks, l.During = o.marks(l.At.Variables)
	l.At.Variables = nil // because they may be large
	return l
}

// marks are the hints among the variables of a process, and the test, script, step or job that the most precise one names
// beyond those of fini's own environment.
func (o *Owners) marks(variables map[string]string) (found []object, during string) {
	if variables != nil {
		found = []object{}
	}
	for _, m := range hints {
		value := variables[m.variable]
		if value == "" {
			continue
		}
		text, _ := firstBytes(value, maxText)
		if during == "" && o.getenv(m.variable) != value {
			during = m.what + " " + text
		}
		if len(found) < maxMarks {
			found = append(found, object{"variable", m.variable, "value", text})
		}
	}
	return found, during
}
