package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// The table of what is left behind without fini, under tini and under fini. Each case
// fills in its row; TestMain prints them, and the README carries what was measured.

// An outcome is what a case saw after its fault.
type Outcome struct {
	Survivors int           // processes of the case that are alive
	Eof       time.Duration // from the fault to the end of the case's output
	Never     bool          // the output had no end within the window
}

// Window is how long a case without fini is watched before what is alive is called a
// survivor, and an output without an end endless. Under fini nothing waits for it.
const Window = 6 * time.Second

var table struct {
	sync.Mutex
	rows  []string
	cells map[string]map[string]Outcome
}

var tableColumns = []string{"without", "tini -s", "fini"}

// InColumns runs a case under fini with the given flags, and in make test-all also without a wrapper and under
// tini, puts the outcomes into the table, and asserts that fini left nothing. wrap is what goes
// before the command. name is the row's, in words for a reader of the README.
func InColumns(t *testing.T, name string, flags []string, run func(t *testing.T, wrap []string) Outcome) {
	t.Helper()
	AddRow(name)
	for _, column := range tableColumns {
		Case(t, column == "fini", column, func(t *testing.T) {
			var wrap []string
			switch column {
			case "tini -s":
				wrap = []string{need.Program(t, "tini"), "-s", "--"}
			case "fini":
				wrap = append(append([]string{Fini}, flags...), "--")
			}
			o := run(t, wrap)
			if t.Failed() {
				return
			}
			if column == "fini" && (o.Survivors > 0 || o.Never) {
				t.Errorf("under fini: %s", o)
			}
			record(name, column, o)
		})
	}
}

// AddRow puts a row into the table, in the order of the calls.
func AddRow(name string) {
	table.Lock()
	defer table.Unlock()
	if table.cells == nil {
		table.cells = map[string]map[string]Outcome{}
	}
	if table.cells[name] == nil {
		table.cells[name] = map[string]Outcome{}
		table.rows = append(table.rows, name)
	}
}

func record(name, column string, o Outcome) {
	table.Lock()
	defer table.Unlock()
	table.cells[name][column] = o
}

func (o Outcome) String() string {
	if o.Never {
		return fmt.Sprintf("%d, no EOF", o.Survivors)
	}
	return fmt.Sprintf("%d, EOF after %.1f s", o.Survivors, o.Eof.Seconds())
}

// printTable writes the table as Markdown.
func printTable(w io.Writer) {
	if len(table.rows) == 0 {
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(out, "\n| survivors, and the reader's EOF\t| %s\t|\n", strings.Join(tableColumns, "\t| "))
	fmt.Fprintf(out, "| ---%s\t|\n", strings.Repeat("\t| ---", len(tableColumns)))
	for _, name := range table.rows {
		fmt.Fprintf(out, "| %s", name)
		for _, column := range tableColumns {
			cell := "-"
			if o, ok := table.cells[name][column]; ok {
				cell = o.String()
			}
			fmt.Fprintf(out, "\t| %s", cell)
		}
		fmt.Fprintln(out, "\t|")
	}
	_ = out.Flush()
}

// A cgroup is everything that a case has started: a cgroup, which no process leaves by
// another parent, session, process group, set of descriptors or environment.
type Cgroup struct {
	t   testing.TB
	Dir string
}

// NewCgroup makes a cgroup; what is alive in it when the test ends is killed.
func NewCgroup(t testing.TB) *Cgroup {
	t.Helper()
	root := "/sys/fs/cgroup/pids" // version 1 has a tree for each controller
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	return newCgroupBelow(t, root)
}

func newCgroupBelow(t testing.TB, root string) *Cgroup {
	t.Helper()
	dir, err := os.MkdirTemp(root, "fini-e2e-")
	need.That(t, err == nil, fmt.Sprintf("the right to make a cgroup (%v)", errors.Unwrap(err)))
	h := &Cgroup{t, dir}
	t.Cleanup(func() {
		Until(t, "the case's cgroup is empty", func() bool {
			h.Kill()
			return os.Remove(dir) == nil
		})
	})
	return h
}

// NewFreezer is NewCgroup, for Freeze.
func NewFreezer(t testing.TB) *Cgroup {
	t.Helper()
	const root = "/sys/fs/cgroup/freezer" // version 1
	if _, err := os.Stat(root); err != nil {
		return NewCgroup(t)
	}
	return newCgroupBelow(t, root)
}

// Freeze freezes all of the cgroup, or lets it go on, as docker pause does.
func (c *Cgroup) Freeze(on bool) {
	c.t.Helper()
	if _, err := os.Stat(filepath.Join(c.Dir, "freezer.state")); err != nil {
		c.Limit("cgroup.freeze", map[bool]string{true: "1", false: "0"}[on])
		return
	}
	state := map[bool]string{true: "FROZEN", false: "THAWED"}[on]
	c.Limit("freezer.state", state)
	Until(c.t, "the cgroup is "+state, func() bool {
		is, _ := os.ReadFile(filepath.Join(c.Dir, "freezer.state"))
		return strings.TrimSpace(string(is)) == state
	})
}

// Wrap is a command line that runs argv in the cgroup.
func (c *Cgroup) Wrap(argv ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.Dir, "cgroup.procs")}, argv...)
}

// Alive lists the pids of the cgroup, without zombies, but with those of which only the first
// thread has ended.
func (c *Cgroup) Alive() []int {
	text, _ := os.ReadFile(filepath.Join(c.Dir, "cgroup.procs"))
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, _ := strconv.Atoi(field)
		switch state := ProcStatus(pid, "State"); {
		case state == "", state[0] == 'X', state[0] == 'Z' && ProcStatus(pid, "Threads") == "1":
		default:
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// Names is what is alive, for a message.
func (c *Cgroup) Names() (names []string) {
	for _, pid := range c.Alive() {
		names = append(names, fmt.Sprintf("%d %s", pid, ProcStatus(pid, "Name")))
	}
	return names
}

// Survivors waits for the cgroup's end, or to the end of the window, and counts.
func (c *Cgroup) Survivors() int { return c.survivorsWithin(Window) }

func (c *Cgroup) survivorsWithin(limit time.Duration) int {
	Poll(limit, func() bool { return len(c.Alive()) == 0 })
	return len(c.Alive())
}

// OutcomeWithin watches the cgroup and the case's output from now on, which is the moment after
// the fault.
func (c *Cgroup) OutcomeWithin(limit time.Duration, out *Lines) (o Outcome) {
	start := time.Now()
	deadline := time.After(limit)
	for open := true; open; {
		select {
		case _, open = <-out.C:
		case <-deadline:
			o.Never, open = true, false
		}
	}
	o.Eof = time.Since(start)
	o.Survivors = c.survivorsWithin(time.Until(start.Add(limit)))
	return o
}
