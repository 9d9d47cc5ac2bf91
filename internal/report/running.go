package report

import (
	"fmt"
	"time"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/orphans"
)

// MaxRunning is how many processes the report lists that were running when the command was stopped.
const MaxRunning = 100

// The lines about these processes: how many at most, and how many bytes each may have.
const (
	maxLines = 10
	MaxLine  = 160
)

// A running is a process that was running when the command was stopped, and what it was doing.
type running struct {
	pid, parent int
	command     string
	isCut       bool
	age, cpu    time.Duration // -1 if unknown
	state       string        // "" if unknown
	listens     []string
	marks       []object
	during      string // as in Lineage
}

// The words for the states of a process, as in proc_pid_status(5).
var states = map[byte]string{'R': "running", 'S': "sleeping", 'D': "disk sleep", 'T': "stopped", 't': "tracing stop", 'I': "idle"}

// Running records what the processes of the tree were doing just before or after the stop signal, and how many more there
// were. It replaces what an earlier signal has left.
func (r *Report) Running(seen []orphans.Activity, more int, by *Owners) {
	r.running, r.moreRunning = nil, more
	now := proc.Uptime()
	for _, a := range seen {
		p := running{pid: a.Pid, parent: a.Parent, age: -1, cpu: a.CPU, state: states[a.State], listens: a.Listens}
		if a.Start > 0 {
			p.age = max(now-a.Start, 0)
		}
		p.command, p.isCut = firstBytes(a.CommandLine, maxCommandLine)
		p.marks, p.during = by.marks(a.Variables)
		r.running = append(r.running, p)
	}
}

// StillRunning returns a text for each of these processes, in at most room bytes each, and at most ten texts.
func (r *Report) StillRunning(room int) (lines []string) {
	for _, e := range r.stillRunning(room) {
		lines = append(lines, e.line)
	}
	return lines
}

func (r *Report) stillRunning(room int) (all []entry) {
	for _, p := range r.running[:min(len(r.running), maxLines)] {
		all = append(all, entry{p.text(room), p.during})
	}
	if more := len(r.running) + r.moreRunning - maxLines; more > 0 {
		all[maxLines-1] = entry{line: fmt.Sprintf("%d more processes", more+1)}
	}
	return all
}

func (p *running) text(room int) string {
	var more string
	if p.age >= 0 {
		more += ", for " + p.age.Truncate(time.Second).String()
	}
	if p.state != "" {
		more += ", " + p.state
	}
	more += listensOn(p.listens, 2, 40)
	if p.during != "" {
		more += ", started by " + OneLine(p.during, 60)
	}
	return cut(described(p.pid, p.command, more, room), room)
}

func (p *running) json() object {
	return object{
		"pid", p.pid,
		"parent", p.parent,
		"command", p.command,
		"commandCut", p.isCut,
		"ageSeconds", orNull(p.age >= 0, seconds(p.age)),
		"cpuSeconds", orNull(p.cpu >= 0, seconds(p.cpu)),
		"state", orNull(p.state != "", p.state),
		"listens", p.listens,
		"context", p.marks,
	}
}

// RunningAnnotations show these processes on GitHub: see Annotations. The text what is a sentence without its full stop.
func (r *Report) RunningAnnotations(what string) []string {
	return annotations("error", what+". Still running then (below)", seeGuide("if-a-step-hangs"), r.stillRunning(MaxLine))
}

// RunningSummary shows the same under the step: see Summary.
func (r *Report) RunningSummary(what string) string {
	text := "### fini\n\n" + what + ". Still running then" + seeGuide("if-a-step-hangs") + "\n\n| still running |\n| --- |\n"
	for _, e := range r.stillRunning(MaxLine) {
		text += "| " + inMarkdown(e.line) + " |\n"
	}
	return text + "\n"
}

// seeGuide ends a sentence, and names a part of the guide.
func seeGuide(part string) string {
	return ". See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#" + part
}
