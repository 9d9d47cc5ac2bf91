// Package report makes the output of --report: the record of one run of fini, the file or stream for the record, the
// owner of each leftover, and the line about it. The package takes facts and never decides, and doesn't know the loop.
//
// It relies on the kernel's promise that a descriptor keeps its file when names change: see open(2).
package report

import (
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/seed-126c5d8a/fini/internal/files"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Report is the report of one run of fini. Without --report it has no Places, and only serves the output for a CI.
// docs/report.schema.json describes the fields. A field of type any is nil for null.
type Report struct {
	To        []Place
	Pid       int    // of the main child, 0 for none
	Fini      int    // the pid by which the parent process knows fini
	Err       any    // why the main child was not started
	OutOfTime string // the reason, if the time for the main child was up

	seen map[orphans.ID]struct{} // all listed leftovers, and the first unlisted leftovers

	fini          string
	command       []string
	isCut         bool
	started       time.Time
	ended         time.Time // the end of the main child; zero if fini did not see it
	code, signal  any       // the status of the main child
	oom           any
	stopped       any // why fini stopped the main child or its leftovers
	signals       []object
	moreSignals   int
	isStopped     bool      // fini has stopped the main child
	running       []running // what it was doing then
	moreRunning   int
	leftovers     []*leftover
	moreLeftovers int
	reaped        int
}

// The limits of a report, whatever the tree does: the number of items, and the bytes of each text.
const (
	maxSignals     = 1000
	maxLeftovers   = 250
	maxSeen        = 10_000
	maxCommand     = 256 << 10 // of fini's own command line
	maxCommandLine = 4000      // of a leftover's command line, fewer than orphans reads
)

// A leftover is a process as fini found it, and its end.
type leftover struct {
	orphans.Process
	Lineage

	command  string
	isCut    bool
	found    time.Time
	age      time.Duration
	sent     func() []syscall.Signal
	ended    any // how it ended, in words
	oom      any
	spared   any    // why fini has left it alone, in a word of the schema
	outlived any    // for how many seconds it outlived the main child
	line     string // about it: see Describe
	below    int    // of a leak: see leaks
}

// New begins the report of a command, which the given version of fini runs.
func New(to []Place, command []string, version string) Report {
	first, isCut := firstWords(command, maxCommand)
	return Report{To: to, fini: version, command: first, isCut: isCut, started: time.Now(), signals: []object{}}
}

// Lists reports whether the report will be written. Then it also lists leftovers that fini doesn't print a line about.
func (r *Report) Lists() bool { return len(r.To) > 0 }

// Full reports whether the report only counts further leftovers.
func (r *Report) Full() bool { return len(r.leftovers) == maxLeftovers }

// firstWords are the first words that fit into room bytes. The last word may be cut.
func firstWords(words []string, room int) (first []string, isCut bool) {
	first = []string{}
	for _, word := range words {
		if isCut || room <= 0 {
			return first, true
		}
		word, isCut = firstBytes(word, room)
		first = append(first, word)
		room -= len(word) + 1 // an empty word takes room too
	}
	return first, isCut
}

// firstBytes is text cut to at most limit bytes, but never inside a rune.
func firstBytes(text string, limit int) (first string, isCut bool) {
	if len(text) <= limit {
		return text, false
	}
	for back := 1; back < utf8.UTFMax && limit > 0 && !utf8.RuneStart(text[limit]); back++ {
		limit--
	}
	return strings.Clone(text[:limit]), true
}

// Signal records a signal that fini has received.
func (r *Report) Signal(got signals.Received) {
	if !r.Lists() || len(r.signals) == maxSignals {
		r.moreSignals++
		return
	}
	var sender any
	if got.Sender > 0 {
		sender = Ancestor{got.Sender, proc.Name(got.Sender)}.json()
	}
	r.signals = append(r.signals, object{"at", time.Now(), "signal", signals.Name(got.Signal), "sender", sender})
}

// Stopped records why fini has stopped the main child or its leftovers, in a word of the schema; "" if it has not. main says
// that it has stopped the main child.
func (r *Report) Stopped(why string, main bool) {
	if why != "" {
		r.stopped, r.isStopped = why, main
	}
}

// Leftover records a leftover. spared is why fini spares it, "" if it doesn't. sent returns the signals that fini has sent
// it until then, and line is the line about it. If the leftover is known already, the rest of the first record stays.
func (r *Report) Leftover(p orphans.Process, commandLine string, from Lineage, spared string, sent func() []syscall.Signal, line string) {
	id := p.ID()
	if _, known := r.seen[id]; known {
		for _, left := range r.living(p.Pid) {
			left.Allowed = left.Allowed || p.Allowed // it may have got its name since
			left.spared, left.sent = orNull(spared != "", spared), sent
		}
		return
	}
	if r.seen == nil {
		r.seen = map[orphans.ID]struct{}{}
	}
	if len(r.seen) < maxSeen {
		r.seen[id] = struct{}{}
	}
	if r.Full() {
		r.moreLeftovers++
		return
	}
	left := &leftover{Lineage: from, found: time.Now(), age: proc.Uptime() - p.Start, sent: sent, spared: orNull(spared != "", spared), line: line}
	// Without the details that package orphans keeps of a process, because they may be large.
	left.Process = orphans.Process{Pid: p.Pid, Group: p.Group, Session: p.Session, State: p.State, User: p.User, Start: p.Start, Holds: p.Holds, Allowed: p.Allowed}
	left.command, left.isCut = firstBytes(commandLine, maxCommandLine)
	r.leftovers = append(r.leftovers, left)
}

// living are the listed leftovers with a pid whose end fini has not seen.
func (r *Report) living(pid int) (found []*leftover) {
	for _, left := range r.leftovers {
		if left.Pid == pid && left.ended == nil {
			found = append(found, left)
		}
	}
	return found
}

// Reaped records a child that was reaped: the main child or any other.
func (r *Report) Reaped(x reaper.Exit) {
	if x.Pid == r.Pid && r.ended.IsZero() {
		r.ended = time.Now()
		if x.Status.Signaled() {
			r.signal = signals.Name(x.Status.Signal())
		} else {
			r.code = x.Status.ExitStatus()
		}
		return
	}
	r.reaped++
	for _, left := range r.living(x.Pid) {
		left.ended = "exit " + strconv.Itoa(x.Status.ExitStatus())
		if x.Status.Signaled() {
			left.ended = signals.Name(x.Status.Signal())
		}
		if !r.ended.IsZero() {
			left.outlived = seconds(time.Since(r.ended))
		}
	}
}

// OOM records that a reaped process was killed by SIGKILL, but not by fini. verdict says whether the cause may be a
// lack of memory: "likely" or "unknown". reason explains that.
func (r *Report) OOM(pid int, verdict, reason string) {
	found := object{"verdict", verdict, "reason", reason}
	if pid == r.Pid {
		r.oom = found
	}
	for _, left := range r.leftovers {
		if left.Pid == pid && left.ended != nil {
			left.oom = found
		}
	}
}

// Write writes the report of a run that ends with this status, once to each place, and waits at most 5 seconds for the
// reader of a stream.
func (r *Report) Write(status int) (failed []error) {
	for _, to := range r.To {
		text := r.json(status)
		if to.isXML() {
			text = r.junit()
		}
		if err := files.Quietly(func() error { return to.write(text) }); err != nil {
			failed = append(failed, cannotWrite(to.Path, err))
		}
	}
	return failed
}
