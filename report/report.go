// Package report is what --report writes: the record of one life, the file or stream that it goes to,
// whose leak a leftover is, and what a line says of it. It takes facts and decides nothing; it knows no loop.
//
// What a report rests on: rename(2) replaces a file at once, for every reader; a file description
// belongs to all who have inherited it, so that O_NONBLOCK can't be set on it, while one that is opened
// by its link in /proc/self/fd is this process's own; the group bits of a file with an ACL are the
// ACL's mask. See open(2), proc_pid_fd(5), acl(5).
package report

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

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Report is the report of one life. It is nil if none was asked for: then each method does nothing.
type Report struct {
	is    record
	path  string
	place place
	seen  map[orphans.ID]struct{} // those that are listed, and the first that are not
}

// record is what docs/report.schema.json describes.
type record struct {
	Version       int         `json:"version"` // of the schema
	Fini          string      `json:"fini"`
	Command       []string    `json:"command"`
	Cut           bool        `json:"commandCut"`
	Isolated      bool        `json:"isolated"` // pids are those of its own PID namespace
	Pid           int         `json:"pid"`
	Started       time.Time   `json:"started"`
	Ended         *time.Time  `json:"ended"` // the main child; null if fini did not see it
	Finished      time.Time   `json:"finished"`
	Status        int         `json:"status"`
	Error         *string     `json:"error"` // why the command was not started
	Exit          *exit       `json:"exit"`
	Stopped       *string     `json:"stopped"` // why fini stopped the command
	Signals       []signal    `json:"signals"`
	MoreSignals   int         `json:"signalsOmitted"`
	Leftovers     []*leftover `json:"leftovers"`
	MoreLeftovers int         `json:"leftoversOmitted"`
	Reaped        int         `json:"reaped"`
	Seconds       durations   `json:"seconds"`
	Usage         usage       `json:"usage"`
}

// A report is bounded, whatever the tree does: so many of each, and so many bytes of each text.
const (
	maxSignals     = 1000
	maxLeftovers   = 250
	maxSeen        = 10_000
	maxCommand     = 256 << 10 // of fini's own command line
	maxCommandLine = 4000      // of a leftover's, fewer than orphans reads
)

type exit struct {
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	OOM    *oom    `json:"oom"`
}

type oom struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

type signal struct {
	At     time.Time `json:"at"`
	Signal string    `json:"signal"`
	Sender *sender   `json:"sender"`
}

type sender struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

// Of a leftover, nil is what could not be known, and an empty list is none.
type leftover struct {
	Pid       int        `json:"pid"`
	Command   string     `json:"command"`
	Cut       bool       `json:"commandCut"`
	Allowed   bool       `json:"allowed"`
	Started   *time.Time `json:"started"`
	StartedBy []Ancestor `json:"startedBy"`
	Owner     *Owner     `json:"owner"`
	Context   []Mark     `json:"context"`
	Group     *int       `json:"group"`
	Session   *int       `json:"session"`
	Holds     []string   `json:"holds"`
	Listens   []string   `json:"listens"`
	Dir       *string    `json:"cwd"`
	User      *int       `json:"user"`
	Sent      []string   `json:"sent"`
	Ended     *string    `json:"ended"`
	OOM       *oom       `json:"oom"`
	Age       *float64   `json:"ageSeconds"`
	Outlived  *float64   `json:"outlivedSeconds"`

	during string // what it was started in, in words
}

// durations is how long each part of a life took; nil if its begin or end was not seen.
type durations struct {
	Command   *float64 `json:"command"`
	Leftovers *float64 `json:"leftovers"`
	Total     float64  `json:"total"`
}

type usage struct {
	User   float64 `json:"userSeconds"`
	System float64 `json:"systemSeconds"`
	MaxRSS int64   `json:"maxRSSBytes"`
}

// New begins the report of a command, which the given version of fini runs. path is that of a regular
// file or of nothing yet, "-" for standard output, or /dev/stdout, /dev/stderr or /dev/fd/N for a
// descriptor that this process has inherited. Whatever else it names is an error, and so is a place
// that can't be written: it is opened now, so that nothing which the tree does to names leads the
// report elsewhere.
func New(path string, command []string, version string) (*Report, error) {
	to, err := open(path)
	if err != nil {
		return nil, cannotWrite(path, err)
	}
	r := &Report{path: path, place: to, seen: map[orphans.ID]struct{}{}}
	r.is = record{Version: 2, Fini: version, Started: time.Now(), Signals: []signal{}, Leftovers: []*leftover{}}
	r.is.Command, r.is.Cut = firstWords(command, maxCommand)
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

// Isolated says that all pids but those of senders outside are those of a PID namespace of the tree's own.
func (r *Report) Isolated() {
	if r != nil {
		r.is.Isolated = true
	}
}

// Started is the pid of the main child, 0 for none.
func (r *Report) Started(pid int) {
	if r != nil {
		r.is.Pid = pid
	}
}

// NotStarted is why there is no main child.
func (r *Report) NotStarted(why error) {
	if r != nil {
		text := why.Error()
		r.is.Error = &text
	}
}

// Signal is a signal that fini has received.
func (r *Report) Signal(got signals.Received) {
	if r == nil {
		return
	}
	if len(r.is.Signals) == maxSignals {
		r.is.MoreSignals++
		return
	}
	s := signal{At: time.Now(), Signal: signals.Name(got.Signal)}
	if got.Sender > 0 {
		s.Sender = &sender{Pid: got.Sender}
		if !got.Relayed || !r.is.Isolated { // else it is outside, and another may have its pid here
			s.Sender.Name = orphans.Name(got.Sender)
		}
	}
	r.is.Signals = append(r.is.Signals, s)
}

// Stopped is why fini stops the command, in a word of the schema. The first reason stays.
func (r *Report) Stopped(why string) {
	if r != nil && r.is.Stopped == nil {
		r.is.Stopped = &why
	}
}

// Leftover takes in a leftover that was found. asked says that it had SIGTERM before the sweep, alone or
// with its group. One that is known already stays as it was found first.
func (r *Report) Leftover(p orphans.Process, commandLine string, from Lineage, asked bool) {
	if r == nil {
		return
	}
	id := p.ID()
	if _, known := r.seen[id]; known {
		return
	}
	if len(r.seen) < maxSeen {
		r.seen[id] = struct{}{}
	}
	if len(r.is.Leftovers) == maxLeftovers {
		r.is.MoreLeftovers++
		return
	}
	left := &leftover{
		Pid: p.Pid, StartedBy: append([]Ancestor{}, from.Chain...), Owner: from.Owner, Sent: []string{},
	}
	left.Command, left.Cut = firstBytes(commandLine, maxCommandLine)
	if from.Open {
		left.Context = append([]Mark{}, from.Marks...)
	}
	left.Listens, left.during = from.At.Listens, from.During
	if p.User >= 0 {
		left.User = &p.User
	}
	if from.At.Dir != "" {
		left.Dir = &from.At.Dir
	}
	if p.Start != 0 {
		age := signals.Uptime() - p.Start
		started := time.Now().Add(-age).Round(10 * time.Millisecond)
		left.Started, left.Age = &started, seconds(age)
	}
	if p.State != '?' {
		left.Group, left.Session = &p.Group, &p.Session
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
	r.is.Leftovers = append(r.is.Leftovers, left)
}

// seconds is a duration to the millisecond.
func seconds(d time.Duration) *float64 {
	n := float64(max(d, 0).Milliseconds()) / 1000
	return &n
}

// living are the listed leftovers with a pid whose end was not seen.
func (r *Report) living(pid int) (found []*leftover) {
	for _, left := range r.is.Leftovers {
		if left.Pid == pid && left.Ended == nil {
			found = append(found, left)
		}
	}
	return found
}

// Allowed is a leftover that is left alone.
func (r *Report) Allowed(p orphans.Process) {
	if r == nil {
		return
	}
	for _, left := range r.living(p.Pid) {
		left.Allowed = true
	}
}

// Sent is a signal that a process was sent, which counts if it is a leftover.
func (r *Report) Sent(pid int, sig syscall.Signal) {
	if r == nil {
		return
	}
	for _, left := range r.living(pid) {
		if name := signals.Name(sig); !slices.Contains(left.Sent, name) {
			left.Sent = append(left.Sent, name)
		}
	}
}

// Reaped are children that were reaped, the main child among them or not.
func (r *Report) Reaped(exits []reaper.Exit, mainPid int) {
	if r == nil {
		return
	}
	for _, x := range exits {
		if !x.Ended() {
			continue
		}
		if x.Pid == mainPid && r.is.Exit == nil {
			now := time.Now()
			r.is.Ended, r.is.Exit = &now, &exit{}
			if name := signals.Name(x.Status.Signal()); x.Status.Signaled() {
				r.is.Exit.Signal = &name
			} else {
				code := x.Status.ExitStatus()
				r.is.Exit.Code = &code
			}
			continue
		}
		r.is.Reaped++
		for _, left := range r.living(x.Pid) {
			text := "exit " + strconv.Itoa(x.Status.ExitStatus())
			if x.Status.Signaled() {
				text = signals.Name(x.Status.Signal())
			}
			left.Ended = &text
			if r.is.Ended != nil {
				left.Outlived = seconds(time.Since(*r.is.Ended))
			}
		}
	}
}

// OOM is that a process which was reaped was ended by SIGKILL, not by fini, and whether it may have
// been for memory: "likely" or "unknown", and why.
func (r *Report) OOM(pid, mainPid int, verdict, reason string) {
	if r == nil {
		return
	}
	found := &oom{verdict, reason}
	if pid == mainPid && r.is.Exit != nil {
		r.is.Exit.OOM = found
	}
	for _, left := range r.is.Leftovers {
		if left.Pid == pid && left.Ended != nil {
			left.OOM = found
		}
	}
}

// TakeOver makes the report of the outer fini of a pair that of a command whose end nobody has seen.
func (r *Report) TakeOver(command int) {
	if r != nil {
		r.is.Pid, r.is.Ended, r.is.Exit = command, nil, nil
	}
}

// Write writes the report of a life that ends with this status, once, and waits no longer than 5 seconds
// for who reads a stream.
func (r *Report) Write(status int) error {
	if r == nil {
		return nil
	}
	r.is.Status, r.is.Finished = status, time.Now()
	r.is.Seconds.Total = *seconds(r.is.Finished.Sub(r.is.Started))
	if r.is.Ended != nil {
		r.is.Seconds.Command, r.is.Seconds.Leftovers = seconds(r.is.Ended.Sub(r.is.Started)), seconds(r.is.Finished.Sub(*r.is.Ended))
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err == nil {
		inSeconds := func(t unix.Timeval) float64 { return float64(t.Nano()/1000) / 1e6 }
		r.is.Usage = usage{inSeconds(used.Utime), inSeconds(used.Stime), int64(used.Maxrss) * 1024}
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	err := out.Encode(&r.is)
	if err == nil {
		err = withoutSignals(func() error { return r.place.write(text.Bytes()) })
	}
	if err != nil {
		return cannotWrite(r.path, err)
	}
	return nil
}
