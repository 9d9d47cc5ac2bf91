// Command rooms draws the packages of the product and what imports what, as docs/rooms.svg. A package stands above all that it
// imports. An arrow that follows from two others is left out. It runs at the top of the repository: see `make rooms`.
package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// says is what each room is for, in the words that fit into its box.
var says = map[string]string{
	"main.go":          "parse, role, life, end",
	"internal/host":    "the real kernel of a life",
	"internal/cli":     "the command line",
	"internal/life":    "every decision, without a call",
	"internal/entry":   "before Go's runtime: the fork",
	"internal/report":  "the record and its words",
	"internal/files":   "files and streams to write",
	"internal/handler": "catches signals, in assembly",
	"internal/orphans": "finds and signals the tree",
	"internal/calls":   "raw system calls",
	"internal/cgroup":  "counts kills for memory",
	"internal/proc":    "reads /proc",
	"orphans":          "library: find, signal, kill",
	"reaper":           "library: start and reap",
	"signals":          "library: catch and send",
	"pdeath":           "library: parent and stdin",
}

// The size of a box, and the space between two.
const (
	wide, high  = 180, 44
	right, down = 16, 40
)

func main() {
	picture, err := draw()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
	fmt.Print(picture)
}

// rooms returns what each package of the product imports of the others.
func rooms() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.Module.Path}} {{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		room := func(path string) string {
			return strings.TrimPrefix(cmp.Or(strings.TrimPrefix(path, words[0]), "/main.go"), "/")
		}
		name := room(words[1])
		if strings.HasPrefix(name, "e2e") || strings.HasPrefix(name, "tools") || strings.HasPrefix(name, "internal/tests") {
			continue
		}
		all[name] = nil
		for _, path := range words[2:] {
			if strings.HasPrefix(path, words[0]+"/") {
				all[name] = append(all[name], room(path))
			}
		}
	}
	return all, nil
}

// draw returns the picture.
func draw() (string, error) {
	imports, err := rooms()
	if err != nil {
		return "", err
	}
	var level func(room string) int // 0 for a room that imports none of the others
	level = func(room string) (n int) {
		for _, below := range imports[room] {
			n = max(n, level(below)+1)
		}
		return n
	}
	var leads func(from, to string) bool // by one import or several
	leads = func(from, to string) bool {
		return slices.ContainsFunc(imports[from], func(next string) bool { return next == to || leads(next, to) })
	}
	rows := map[int][]string{}
	top, most := 0, 0
	for room := range imports {
		n := level(room)
		rows[n] = append(rows[n], room)
		top, most = max(top, n), max(most, len(rows[n]))
	}
	at := map[string][2]int{} // the left upper corner
	for n, row := range rows {
		slices.Sort(row)
		indent := (most - len(row)) * (wide + right) / 2
		for i, room := range row {
			at[room] = [2]int{right + indent + i*(wide+right), down/2 + (top-n)*(high+down)}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" text-anchor="middle">
<title>The rooms of fini, each above those that it imports</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8b949e"/></marker></defs>
`, right+most*(wide+right), down+top*(high+down)+high)
	for n := top; n >= 0; n-- {
		for _, room := range rows[n] {
			for _, below := range slices.Sorted(slices.Values(imports[room])) {
				if slices.ContainsFunc(imports[room], func(between string) bool { return leads(between, below) }) {
					continue
				}
				from, to := at[room], at[below]
				fmt.Fprintf(&b, `<path d="M%d %dL%d %d" stroke="#8b949e" stroke-width="1.5" marker-end="url(#tip)"/>`+"\n",
					from[0]+wide/2, from[1]+high, to[0]+wide/2, to[1])
			}
		}
	}
	for n := top; n >= 0; n-- {
		for _, room := range rows[n] {
			x, y := at[room][0], at[room][1]
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#ddf4ff" stroke="#57606a"/>
<text x="%d" y="%d" font-size="14" font-weight="bold" fill="#24292f">%s</text>
<text x="%d" y="%d" font-size="11" fill="#24292f">%s</text>
`, x, y, wide, high, x+wide/2, y+19, room, x+wide/2, y+35, says[room])
		}
	}
	return b.String() + "</svg>\n", nil
}
