package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/cli"
	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// report is what --report writes: docs/report.schema.json describes it. Its methods do nothing on
// nil, which is no report.
type report struct {
	Version       int               `json:"version"` // of the schema
	Fini          string            `json:"fini"`
	Command       []string          `json:"command"`
	Cut           bool              `json:"commandCut"`
	Pid           int               `json:"pid"`
	Started       time.Time         `json:"started"`
	Ended         *time.Time        `json:"ended"` // the main child; null if fini did not see it
	Finished      time.Time         `json:"finished"`
	Status        int               `json:"status"`
	Error         *string           `json:"error"` // why the command was not started
	Exit          *exitReport       `json:"exit"`
	Stopped       *string           `json:"stopped"` // why fini stopped the command
	Signals       []signalReport    `json:"signals"`
	MoreSignals   int               `json:"signalsOmitted"`
	Leftovers     []*leftoverReport `json:"leftovers"`
	MoreLeftovers int               `json:"leftoversOmitted"`
	Reaped        int               `json:"reaped"`
	Seconds       secondsReport     `json:"seconds"`
	Usage         usageReport       `json:"usage"`

	path string
	file *reportFile

	outside *orphans.Outside        // whose pids a user sees
	room    int                     // for command lines of leftovers, in bytes
	seen    map[orphans.ID]struct{} // those that are listed, and the first that are not
}

// A report is bounded, whatever the tree does.
const (
	maxSignals     = 1000
	maxLeftovers   = 1000
	maxCommand     = 256 << 10 // bytes of fini's own command line
	maxCommandLine = 4000      // bytes of a leftover's, fewer than orphans reads,
	maxMark        = 512       // of who started one, and of what says in which test,
	maxAllLines    = 256 << 10 // and of all of that; then each has minCommandLine
	minCommandLine = 64
)

type exitReport struct {
	Code   *int       `json:"code"`
	Signal *string    `json:"signal"`
	OOM    *oomReport `json:"oom"`
}

type oomReport struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

type signalReport struct {
	At     time.Time     `json:"at"`
	Signal string        `json:"signal"`
	Sender *senderReport `json:"sender"`
}

type senderReport struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

// Of a leftover, nil is what could not be known, and an empty list is none.
type leftoverReport struct {
	Pid       int        `json:"pid"`
	Command   string     `json:"command"`
	Cut       bool       `json:"commandCut"`
	Allowed   bool       `json:"allowed"`
	Started   *time.Time `json:"started"`
	StartedBy []ancestor `json:"startedBy"`
	Owner     *owner     `json:"owner"`
	Context   []marked   `json:"context"`
	Group     *int       `json:"group"`
	Session   *int       `json:"session"`
	Holds     []string   `json:"holds"`
	Sent      []string   `json:"sent"`
	Ended     *string    `json:"ended"`
	OOM       *oomReport `json:"oom"`
	Age       *float64   `json:"ageSeconds"`
	Outlived  *float64   `json:"outlivedSeconds"`

	pid int // as this process sees it
}

// secondsReport is how long each part of a life took; nil if its begin or end was not seen.
type secondsReport struct {
	Command   *float64 `json:"command"`
	Leftovers *float64 `json:"leftovers"`
	Total     float64  `json:"total"`
}

type usageReport struct {
	User   float64 `json:"userSeconds"`
	System float64 `json:"systemSeconds"`
	MaxRSS int64   `json:"maxRSSBytes"`
}

// newReport prepares a report. An error says that the file can't be written, before
// anything else has happened.
func newReport(path string, command []string) (*report, error) {
	file, err := openReportFile(path)
	if err != nil {
		return nil, cannotWrite(path, err)
	}
	r := &report{
		Version: 2, Fini: cli.VersionNumber(), Started: time.Now(),
		Signals: []signalReport{}, Leftovers: []*leftoverReport{},
		path: path, file: file, room: maxAllLines, seen: map[orphans.ID]struct{}{},
	}
	r.Command, r.Cut = firstWords(command, maxCommand)
	return r, nil
}

// firstWords are those words that have room in so many bytes, the last of them cut if need be.
func firstWords(words []string, room int) (first []string, isCut bool) {
	first = []string{}
	for _, word := range words {
		if isCut || room <= 0 {
			return first, true
		}
		word, isCut = firstBytes(word, room)
		first = append(first, word)
		room -= len(word) + 1 // an empty one takes room too
	}
	return first, isCut
}

// firstBytes is text up to about a limit, which cuts no rune in two.
func firstBytes(text string, limit int) (first string, isCut bool) {
	if len(text) <= limit {
		return text, false
	}
	for end := limit; end >= 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			limit = end
			break
		}
	}
	return strings.Clone(text[:limit]), true
}

func cannotWrite(path string, err error) error {
	return fmt.Errorf("--report: cannot write %q: %w", path, err)
}

// signal is one that fini has received.
func (r *report) signal(got signals.Received) {
	if r == nil {
		return
	}
	if len(r.Signals) == maxSignals {
		r.MoreSignals++
		return
	}
	s := signalReport{At: time.Now(), Signal: signals.Name(got.Signal)}
	if got.Sender > 0 {
		sender := got.Sender
		if !got.Relayed {
			sender = r.outside.Pid(sender)
		}
		s.Sender = &senderReport{sender, r.outside.Name(sender)}
	}
	r.Signals = append(r.Signals, s)
}

func (r *report) stopped(why life.Reason) {
	if r != nil && r.Stopped == nil {
		text := why.String()
		r.Stopped = &text
	}
}

// leftover is one that was found; asked reports whether it had SIGTERM already, with its
// group.
func (r *report) leftover(p orphans.Process, commandLine string, from lineage, asked bool) {
	if r == nil {
		return
	}
	id := p.ID()
	if _, known := r.seen[id]; known {
		return
	}
	if len(r.seen) < 10*maxLeftovers {
		r.seen[id] = struct{}{}
	}
	if len(r.Leftovers) == maxLeftovers {
		r.MoreLeftovers++
		return
	}
	seen := r.outside.Process(p)
	left := &leftoverReport{
		pid: p.Pid, Pid: seen.Pid, StartedBy: append([]ancestor{}, from.chain...), Sent: []string{},
	}
	left.Command = r.text(commandLine, maxCommandLine)
	left.Cut = len(left.Command) < len(commandLine)
	if from.owner != nil {
		left.Owner = &owner{ancestor: from.owner.ancestor}
		left.Owner.Command = r.text(from.owner.Command, maxMark)
	}
	if from.open {
		left.Context = []marked{}
	}
	for i, m := range from.marks {
		if i == 0 || r.room > 0 { // the first is the most telling
			left.Context = append(left.Context, marked{m.Variable, r.text(m.Value, maxMark)})
		}
	}
	if p.State != '?' {
		age := signals.Uptime() - p.Start
		started := time.Now().Add(-age).Round(10 * time.Millisecond)
		left.Started, left.Age = &started, seconds(age)
		left.Group, left.Session = &seen.Group, &seen.Session
	}
	if p.Holds != orphans.Unknown {
		left.Holds = []string{}
	}
	for i, name := range []string{"stdout", "stderr"} {
		if p.Holds&(orphans.Stdout<<i) != 0 {
			left.Holds = append(left.Holds, name)
		}
	}
	if asked {
		left.Sent = append(left.Sent, signals.Name(syscall.SIGTERM))
	}
	r.Leftovers = append(r.Leftovers, left)
}

// text is as much of a text as there is room for, and no more than most bytes.
func (r *report) text(text string, most int) string {
	text, _ = firstBytes(text, max(min(most, r.room), minCommandLine))
	r.room -= len(text)
	return text
}

// seconds is a duration to the millisecond.
func seconds(d time.Duration) *float64 {
	n := float64(max(d, 0).Milliseconds()) / 1000
	return &n
}

// allowed is a leftover that is left alone.
func (r *report) allowed(p orphans.Process) {
	for _, left := range r.Leftovers {
		if left.pid == p.Pid && left.Ended == nil {
			left.Allowed = true
		}
	}
}

// oom is that a process was ended by SIGKILL, not by fini, and whether it may have been for
// memory.
func (r *report) oom(pid, mainPid int, verdict, reason string) {
	if r == nil {
		return
	}
	oom := &oomReport{verdict, reason}
	if pid == mainPid && r.Exit != nil {
		r.Exit.OOM = oom
	}
	for _, left := range r.Leftovers {
		if left.pid == pid && left.Ended != nil {
			left.OOM = oom
		}
	}
}

// sent is a signal that a leftover was sent.
func (r *report) sent(pid int, sig syscall.Signal) {
	if r == nil {
		return
	}
	name := signals.Name(sig)
	for _, left := range r.Leftovers {
		if left.pid == pid && left.Ended == nil && !slices.Contains(left.Sent, name) {
			left.Sent = append(left.Sent, name)
		}
	}
}

// reaped is what fini has seen of ends: its children's.
func (r *report) reaped(exits []reaper.Exit, mainPid int) {
	if r == nil {
		return
	}
	for _, x := range exits {
		if !x.Ended() {
			continue
		}
		if x.Pid == mainPid && r.Exit == nil {
			now := time.Now()
			r.Ended, r.Exit = &now, &exitReport{}
			if name := signals.Name(x.Status.Signal()); x.Status.Signaled() {
				r.Exit.Signal = &name
			} else {
				code := x.Status.ExitStatus()
				r.Exit.Code = &code
			}
			continue
		}
		r.Reaped++
		for _, left := range r.Leftovers {
			if left.pid == x.Pid && left.Ended == nil {
				text := "exit " + strconv.Itoa(x.Status.ExitStatus())
				if x.Status.Signaled() {
					text = signals.Name(x.Status.Signal())
				}
				left.Ended = &text
				if r.Ended != nil {
					left.Outlived = seconds(time.Since(*r.Ended))
				}
			}
		}
	}
}

// takeOver makes the report of the outer fini of a pair that of a command whose end nobody
// has seen.
func (r *report) takeOver(command int) {
	if r != nil {
		r.Pid, r.Ended, r.Exit = command, nil, nil
	}
}

// write writes the report.
func (r *report) write(status int) error {
	r.Status, r.Finished = status, time.Now()
	r.Seconds.Total = *seconds(r.Finished.Sub(r.Started))
	if r.Ended != nil {
		r.Seconds.Command, r.Seconds.Leftovers = seconds(r.Ended.Sub(r.Started)), seconds(r.Finished.Sub(*r.Ended))
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err == nil {
		used := func(t unix.Timeval) float64 { return float64(t.Nano()/1000) / 1e6 }
		r.Usage = usageReport{used(usage.Utime), used(usage.Stime), int64(usage.Maxrss) * 1024}
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	err := out.Encode(r)
	if err == nil {
		err = r.file.write(text.Bytes())
	}
	if err != nil {
		return cannotWrite(r.path, err)
	}
	return nil
}
