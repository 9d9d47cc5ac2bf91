package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// level says how much a line matters: -q leaves only failures, -v adds details.
type level int

const (
	failure level = iota // something went wrong
	notice               // leftovers that had to be stopped
	detail               // what fini did
)

// speaker writes lines to standard error. fini never writes anywhere else.
type speaker struct{ upTo level }

// sayf writes one line, whatever the text holds, if the level is wanted. A line
// that can't be written at once is lost: fini waits for no reader.
func (s speaker) sayf(l level, format string, args ...any) {
	if l > s.upTo {
		return
	}
	line := "fini: " + oneLine(fmt.Sprintf(format, args...), maxLine)
	if coloured() {
		line = [...]string{failure: red, notice: yellow, detail: uncoloured}[l] + line + uncoloured
	}
	signals.SayLine([]byte(line + "\n"))
}

const red, yellow, uncoloured = "\x1b[31m", "\x1b[33m", "\x1b[m"

// coloured tells whether lines go to a terminal whose user has nothing against colour. See
// no-color.org.
func coloured() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminalWidth() > 0
}

// terminalWidth is that of standard error in columns, 0 where that is no terminal or one
// that does not say.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(2, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// lineWidth is how long a line about a leftover should be.
func lineWidth() int {
	if width := terminalWidth(); width > 0 {
		return width
	}
	return 200
}

// A line this long is written to a pipe as a whole. See PIPE_BUF in pipe(7).
const maxLine = 1024

// oneLine is text without what is not printed as itself, and no longer than limit bytes:
// a process may call itself anything.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit-3], "") + "..."
	}
	return text
}

// describe is what a line says of a leftover, in about limit bytes: the command line is cut to
// that.
func describe(p orphans.Process, commandLine string, group int, chain []orphans.Process, limit int) string {
	var more string
	if p.Start > 0 {
		more += ", " + age(orphans.Uptime()-p.Start) + " old"
	}
	for i, parent := range chain {
		more += []string{", started by ", " < "}[min(i, 1)] + oneLine(parent.Name, 16)
	}
	switch {
	case p.Holds&(orphans.Stdout|orphans.Stderr) == orphans.Stdout|orphans.Stderr:
		more += ", which holds stdout and stderr"
	case p.Holds&orphans.Stdout != 0:
		more += ", which holds stdout"
	case p.Holds&orphans.Stderr != 0:
		more += ", which holds stderr"
	}
	if p.Group != group && p.Session != 0 {
		more += fmt.Sprintf(", in session %d", p.Session)
	}
	pid := strconv.Itoa(p.Pid)
	return pid + " (" + oneLine(commandLine, max(limit-len(pid)-len(" ()")-len(more), 20)) + ")" + more
}

// age is a duration in the two units that matter.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return shorter(d.Truncate(time.Second))
	}
	return shorter(d.Truncate(time.Minute))
}

// shorter is a duration in whole minutes without seconds.
func shorter(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	return text
}

// A family is what a look has found: parents come before their children.
type family struct {
	all   []orphans.Process
	byPid map[int]orphans.Process
	below map[int][]orphans.Process // the children of a pid
}

func familyOf(found []orphans.Process) family {
	f := family{found, map[int]orphans.Process{}, map[int][]orphans.Process{}}
	for _, p := range found {
		f.byPid[p.Pid] = p
		f.below[p.Parent] = append(f.below[p.Parent], p)
	}
	return f
}

// ancestors are the processes above p, the nearest first, as far as they are alive.
func (f family) ancestors(p orphans.Process) (chain []orphans.Process) {
	for range f.all {
		parent, ok := f.byPid[p.Parent]
		if !ok {
			break
		}
		p = parent
		chain = append(chain, p)
	}
	return chain
}

// draw draws the family as a tree, one process on a line.
func (f family) draw(commandLine func(orphans.Process) string) (lines []string) {
	var draw func(ps []orphans.Process, indent string)
	draw = func(ps []orphans.Process, indent string) {
		for i, p := range ps {
			branch, next := "├─ ", "│  "
			if i == len(ps)-1 {
				branch, next = "└─ ", "   "
			}
			lines = append(lines, fmt.Sprintf("%s%s%d %s", indent, branch, p.Pid, oneLine(commandLine(p), 100)))
			draw(f.below[p.Pid], indent+next)
		}
	}
	var roots []orphans.Process
	for _, p := range f.all {
		if _, ok := f.byPid[p.Parent]; !ok {
			roots = append(roots, p)
		}
	}
	draw(roots, "")
	return lines
}

// annotate marks a step of GitHub's CI: the line is a workflow command to its runner.
func (s speaker) annotate(count int, leaks []string) {
	word := "leftovers"
	if count == 1 {
		word = "leftover"
	}
	text := fmt.Sprintf("stopped %d %s: %s", count, word, strings.Join(leaks, "; "))
	text = strings.ReplaceAll(oneLine(text, maxLine), "%", "%25")
	signals.SayLine([]byte("::warning title=fini::" + text + "\n"))
}
