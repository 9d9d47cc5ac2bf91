package report

import (
	"maps"
	"slices"

	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// hints lists the environment variables that tools set to name the running test, script, step or job, according to
// their documentation. The most specific ones come first.
var hints = []struct{ variable, what string }{
	{"FINI_TEST", "test"}, // for tools that set no variable themselves, such as go test
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

// HintNames returns the names of all variables in hints.
func HintNames() (names []string) {
	for _, m := range hints {
		names = append(names, m.variable)
	}
	return names
}

// shells are skipped in the search for an Owner, because they only run the commands of other programs.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"}

// Lineage is where a leftover comes from, as far as fini could tell when it first found it.
type Lineage struct {
	Chain  []Ancestor // the living ancestors, nearest first
	Owner  *Owner     // the first process in Chain that is not a shell, or nil
	Marks  []Mark     // hints from its environment, most specific first; nil if fini may not read the environment
	During string     // the test, script, step or job that a hint names, or ""

	At orphans.Details // its working directory and listening addresses
}

// Ancestor is a process above a leftover in the tree. Its pid is the one that a user sees.
type Ancestor struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

// Owner is the process that most likely started a leftover.
type Owner struct {
	Ancestor
	Command string `json:"command"`
}

// Mark is a hint in the environment of a leftover.
type Mark struct {
	Variable string `json:"variable"`
	Value    string `json:"value"`
}

const (
	maxLineages  = 1000 // number of leftovers
	maxAncestors = 16   // for each leftover
	maxMarks     = 4    // for each leftover
	maxText      = 512  // length of a command line or a hint, in bytes
)

// Tree is the part of orphans.Tree that Owners uses.
type Tree interface {
	CommandLine(orphans.Process) string
	Details(p orphans.Process, variables []string) orphans.Details
}

// Owners remembers which process started each process of the tree. When fini reports a leftover, the process that
// started it has often exited.
type Owners struct {
	tree        Tree
	getenv      func(string) string // looks up a variable in the environment of fini
	main        int                 // pid of the main child
	mainCommand string              // command line of the main child when it started
	found       map[int]orphans.Process
	lineages    map[orphans.ID]Lineage // as of the look that first found the process
}

// NewOwners returns an empty Owners. getenv looks up a variable in fini's own environment. Hints with the same value
// there are ignored, because they say nothing about a particular part of the tree.
func NewOwners(tree Tree, getenv func(string) string) *Owners {
	return &Owners{tree: tree, getenv: getenv, lineages: map[orphans.ID]Lineage{}}
}

// Main records the pid of the main child and the command line that it started with.
func (o *Owners) Main(pid int, commandLine string) { o.main, o.mainCommand = pid, commandLine }

// Remember records the lineage of every process that no earlier look has found.
func (o *Owners) Remember(found []orphans.Process) {
	o.found = map[int]orphans.Process{}
	for _, p := range found {
		o.found[p.Pid] = p
	}
	if len(o.lineages) == maxLineages { // while the command runs, --orphan-timeout looks again and again
		maps.DeleteFunc(o.lineages, func(id orphans.ID, _ Lineage) bool { return o.found[id.Pid].ID() != id })
	}
	for _, p := range found {
		if _, known := o.lineages[p.ID()]; !known && len(o.lineages) < maxLineages {
			o.lineages[p.ID()] = o.above(p)
		}
	}
}

// above returns the lineage of p as far as its ancestors show it. It knows only processes that the last look found.
func (o *Owners) above(p orphans.Process) (l Lineage) {
	for range o.found { // a look is not atomic, so the parents may form a cycle
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
			commandLine := o.tree.CommandLine(p)
			if p.Pid == o.main && commandLine == p.Name { // it is exiting, so /proc shows only its name
				commandLine = o.mainCommand
			}
			text, _ := firstBytes(commandLine, maxText)
			l.Owner = &Owner{a, text}
		}
	}
	return l
}

// Of returns the lineage of a process that the last look found.
func (o *Owners) Of(p orphans.Process) Lineage {
	l, known := o.lineages[p.ID()]
	if !known {
		l = o.above(p)
	}
	l.At = o.tree.Details(p, HintNames())
	l.Marks, l.During = o.marks(l.At.Variables)
	l.At.Variables = nil // they may be large
	return l
}

// marks returns the hints among the variables of a process. The second result names the test, script, step or job of
// the most specific hint whose value differs from the one in fini's own environment.
func (o *Owners) marks(variables map[string]string) (found []Mark, during string) {
	if variables != nil {
		found = []Mark{}
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
			found = append(found, Mark{m.variable, text})
		}
	}
	return found, during
}
