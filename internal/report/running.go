package report

import (
	"fmt"
	"time"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// MaxRunning is the maximum number of running processes in a report.
const MaxRunning = 100

// maxLines limits the number of lines about running processes, and MaxLine the length of each line in bytes.
const (
	maxLines = 10
	MaxLine  = 160
)

// A running describes a process that was running when fini stopped the command.
type running struct {
	pid, parent int
	command     string
	isCut       bool
	age, cpu    time.Duration // -1 if unknown
	state       string        // "" if unknown
	listens     []string
	marks       []Mark
	during      string // see Lineage
}

// states maps the state of a process to the word that proc_pid_status(5) uses for it.
var states = map[byte]string{'R': "running", 'S': "sleeping", 'D': "disk sleep", 'T': "stopped", 't': "tracing stop",
	'I': "idle"}

// SetRunning records what the processes of the tree were doing when the command was stopped. more counts the processes
// that are not in seen. SetRunning replaces the result of an earlier call.
func (r *Report) SetRunning(seen []orphans.Activity, more int, by *Owners) {
	r.running, r.moreRunning = nil, more
	now := calls.Uptime()
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

// StillRunning returns up to ten lines about running processes, each of them at most room bytes long.
func (r *Report) StillRunning(room int) (lines []string) {
	for _, e := range r.stillRunning(room) {
		lines = append(lines, e.text)
	}
	return lines
}

func (r *Report) stillRunning(room int) (all []entry) {
	for _, p := range r.running[:min(len(r.running), maxLines)] {
		all = append(all, entry{p.text(room), p.during})
	}
	if more := len(r.running) + r.moreRunning - maxLines; more > 0 {
		all[maxLines-1] = entry{text: fmt.Sprintf("%d more processes", more+1)}
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
		more += ", started in " + OneLine(p.during, 60)
	}
	return cut(described(p.pid, p.command, more, room), room)
}

func (p *running) record() runningRecord {
	return runningRecord{
		Pid: p.pid, Parent: p.parent, Command: p.command, CommandCut: p.isCut,
		AgeSeconds: orNull(p.age >= 0, seconds(p.age)), CPUSeconds: orNull(p.cpu >= 0, seconds(p.cpu)),
		State: orNull(p.state != "", p.state), Listens: p.listens, Context: p.marks,
	}
}

// RunningAnnotations returns GitHub annotations that list the processes that were running. what is the first line, such
// as "stopping sh: no input or output for 1m".
func (r *Report) RunningAnnotations(what string) []string {
	return annotations("error", what+". Still running then (below)", seeGuide("if-a-step-hangs"), r.stillRunning(MaxLine))
}

// RunningSummary returns a Markdown table of the running processes for GitHub's step summary.
func (r *Report) RunningSummary(what string) string {
	text := "### fini\n\n" + what + ". Still running then" + seeGuide("if-a-step-hangs") +
		"\n\n| still running |\n| --- |\n"
	for _, e := range r.stillRunning(MaxLine) {
		text += "| " + inMarkdown(e.text) + " |\n"
	}
	return text + "\n"
}

// seeGuide returns a sentence that refers the reader to a section of docs/ci.md, preceded by a full stop.
func seeGuide(part string) string {
	return ". See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#" + part
}
