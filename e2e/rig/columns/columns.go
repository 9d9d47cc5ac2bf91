// Package columns runs a case under fini, and with FINI_FULL=1 without a wrapper and under tini too, and makes a table of
// what each leaves behind, which -v prints. Only fini's column is checked.
package columns

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// An outcome is what a case saw after its fault.
type Outcome struct {
	Survivors int           // processes of the case that are alive
	Eof       time.Duration // from the fault to the end of the case's output
	Never     bool          // the output had no end within the window, or the reader did not wait for it any longer
	Waited    time.Duration // that is how long such a reader has waited
}

// Window is how long a case without fini is watched before what is alive is called a
// survivor, and an output without an end endless. Under fini nothing waits for it.
const Window = 6 * time.Second

var table = struct {
	sync.Mutex
	cells map[string]map[string]Outcome // by row and column
}{cells: map[string]map[string]Outcome{}}

func init() {
	rig.AtEnd = func() {
		if testing.Verbose() && rig.Full() {
			printTable()
		}
	}
}

// tableColumns are all with FINI_FULL, and else the one that is checked.
func tableColumns() []string {
	if rig.Full() {
		return strings.Split("without,tini -s,fini", ",")
	}
	return []string{"fini"}
}

// Run runs a case under fini with the given flags, and with FINI_FULL=1 also without a wrapper and under tini, puts the
// outcomes into the table, and asserts that fini left nothing. wrap is what goes before the command. name is the row's.
func Run(t *testing.T, name string, flags []string, run func(t *testing.T, wrap []string) Outcome) {
	t.Helper()
	for _, column := range tableColumns() {
		t.Run(column, func(t *testing.T) {
			var wrap []string
			switch column {
			case "tini -s":
				wrap = []string{need.Program(t, "tini"), "-s", "--"}
			case "fini":
				wrap = append(append([]string{rig.Fini}, flags...), "--")
			}
			o := run(t, wrap)
			if t.Failed() {
				return
			}
			if column == "fini" && (o.Survivors > 0 || o.Never) {
				t.Errorf("under fini: %s", o)
			}
			table.Lock()
			defer table.Unlock()
			if table.cells[name] == nil {
				table.cells[name] = map[string]Outcome{}
			}
			table.cells[name][column] = o
		})
	}
}

func (o Outcome) String() string {
	switch {
	case o.Never && o.Waited > 0:
		return fmt.Sprintf("%d, the reader goes on after %v", o.Survivors, o.Waited)
	case o.Never:
		return fmt.Sprintf("%d, no EOF", o.Survivors)
	}
	return fmt.Sprintf("%d, EOF after %.1f s", o.Survivors, o.Eof.Seconds())
}

// printTable writes the table as Markdown.
func printTable() {
	if len(table.cells) == 0 {
		return
	}
	fmt.Printf("\n| survivors, and the reader's EOF | %s |\n| ---%s |\n", strings.Join(tableColumns(), " | "), strings.Repeat(" | ---", len(tableColumns())))
	for _, name := range slices.Sorted(maps.Keys(table.cells)) {
		fmt.Print("| ", name)
		for _, column := range tableColumns() {
			cell := "-"
			if o, ok := table.cells[name][column]; ok {
				cell = o.String()
			}
			fmt.Print(" | ", cell)
		}
		fmt.Println(" |")
	}
}

// UnderFini reports whether fini goes before the command.
func UnderFini(wrap []string) bool { return slices.Contains(wrap, rig.Fini) }

// Watch watches a case's output, and what is alive of it, from now on, which is the moment after the fault. Only what has no
// fini is given up after the window.
func Watch(wrap []string, out *rig.Lines, alive func() int) (o Outcome) {
	return WatchFor(0, wrap, out, alive)
}

// WatchFor is Watch with a reader who goes on after a time, as GitHub's runner does.
func WatchFor(wait time.Duration, wrap []string, out *rig.Lines, alive func() int) (o Outcome) {
	limit := Window
	if UnderFini(wrap) {
		limit = rig.EnoughNow()
	}
	start := time.Now()
	o.Never, o.Waited = !rig.Poll(limit, out.EOF), wait
	o.Eof = time.Since(start)
	rig.Poll(time.Until(start.Add(limit)), func() bool { return alive() == 0 })
	o.Survivors = alive()
	return o
}
