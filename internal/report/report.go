// Package report writes the --report of a run. It records what happened, finds out which process started each leftover,
// and composes the message about it. It takes facts from its caller and decides nothing.
//
// Because a descriptor keeps referring to its file when names change (see open(2)), reports survive a rename.
package report

import (
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/files"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// Report collects what the report of one run contains. Without --report, To is empty and only CI output uses it. The
// fields are described in docs/report.schema.json. A nil field of type any becomes null.
type Report struct {
	To        []Place
	Pid       int    // pid of the main child, or 0
	Fini      int    // pid of fini as its parent process sees it
	Err       any    // why the main child could not be started
	OutOfTime string // the message, if the main child exceeded its time

	seen map[orphans.ID]struct{} // listed leftovers, and the first ones that are only counted

	fini          string
	command       []string
	isCut         bool
	started       time.Time
	ended         time.Time // when the main child ended; zero if fini did not see that
	code, signal  any       // exit status of the main child
	oom           *oom
	stopped       any // why fini stopped the main child or its leftovers
	signals       []signal
	moreSignals   int
	isStopped     bool      // whether fini stopped the main child
	running       []running // the processes that were running at that time
	moreRunning   int
	leftovers     []*leftover
	moreLeftovers int
	moreLeaks     int // of those, without the ones that --allow-orphan or --orphans=pipes spares
	reaped        int
}

// These limits keep a command from making the report arbitrarily large.
const (
	maxSignals     = 1000
	maxLeftovers   = 250
	maxSeen        = 10_000
	maxCommand     = 256 << 10 // the command line that fini runs
	maxCommandLine = 4000      // a leftover's command line; orphans reads more than that
)

// A leftover is a process as fini found it, together with how it ended.
type leftover struct {
	orphans.Process
	Lineage

	command  string
	isCut    bool
	found    time.Time
	age      time.Duration
	sent     func() []syscall.Signal
	ended    any // exit status or signal, in words
	oom      *oom
	spared   any    // the schema's word for why fini spared it
	during   bool   // fini stopped it while the main child ran
	outlived any    // seconds between the end of the main child and its own
	text     string // the text of the message about it: see Describe
	below    int    // number of leaked descendants: see leaks
}

// New returns an empty report about a command that was started by the given version of fini.
func New(to []Place, command []string, version string) Report {
	first, isCut := firstWords(command, maxCommand)
	return Report{To: to, fini: version, command: first, isCut: isCut, started: time.Now(), signals: []signal{}}
}

// Lists reports whether there is a --report to write, which also lists leftovers that no message mentions.
func (r *Report) Lists() bool { return len(r.To) > 0 }

// Full reports whether the list of leftovers is full. Further leftovers are only counted.
func (r *Report) Full() bool { return len(r.leftovers) == maxLeftovers }

// firstWords returns as many words as fit into limit bytes. The last of them may be cut.
func firstWords(words []string, limit int) (first []string, isCut bool) {
	first = []string{}
	for _, word := range words {
		if isCut || limit <= 0 {
			return first, true
		}
		word, isCut = firstBytes(word, limit)
		first = append(first, word)
		limit -= len(word) + 1 // count empty words too
	}
	return first, isCut
}

// firstBytes cuts text to at most limit bytes without splitting a UTF-8 sequence.
func firstBytes(text string, limit int) (first string, isCut bool) {
	if len(text) <= limit {
		return text, false
	}
	for back := 1; back < utf8.UTFMax && limit > 0 && !utf8.RuneStart(text[limit]); back++ {
		limit--
	}
	return strings.Clone(text[:limit]), true
}

// AddSignal records a signal that fini received.
func (r *Report) AddSignal(got signals.Received) {
	if !r.Lists() || len(r.signals) == maxSignals {
		r.moreSignals++
		return
	}
	var sender *Ancestor
	if got.Sender > 0 {
		sender = &Ancestor{got.Sender, proc.Name(got.Sender)}
	}
	r.signals = append(r.signals, signal{time.Now().UTC(), signals.Name(got.Signal), sender})
}

// SetStopped records why fini stopped the command or its leftovers, as a word of the schema. It ignores an empty word.
// If main is true, the main child was among the stopped processes.
func (r *Report) SetStopped(why string, main bool) {
	if why != "" {
		r.stopped, r.isStopped = why, main
	}
}

// AddLeftover records a leftover. spared is the reason why fini spares it, or empty. sent returns the signals that fini
// has sent to it so far, and text is the message about it. For a known leftover, only Allowed, spared and sent are
// updated. during means that the main child still runs.
func (r *Report) AddLeftover(p orphans.Process, commandLine string, from Lineage, spared string, during bool,
	sent func() []syscall.Signal, text string) {
	id := p.ID()
	if _, known := r.seen[id]; known {
		for _, left := range r.living(p.Pid) {
			left.Allowed = left.Allowed || p.Allowed // it may have changed its name since
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
	left := &leftover{Lineage: from, found: time.Now(), age: calls.Uptime() - p.Start, sent: sent,
		spared: orNull(spared != "", spared), during: during, text: text}
	// Copy only the fields that are needed, because the details that package orphans keeps may be large.
	left.Process = orphans.Process{Pid: p.Pid, PGID: p.PGID, Session: p.Session, State: p.State, User: p.User,
		Start: p.Start, Holds: p.Holds, Allowed: p.Allowed}
	if r.Full() {
		r.moreLeftovers++
		if !left.isSpared() {
			r.moreLeaks++
		}
		return
	}
	left.command, left.isCut = firstBytes(commandLine, maxCommandLine)
	r.leftovers = append(r.leftovers, left)
}

// living returns the listed leftovers with this pid that have not been reaped.
func (r *Report) living(pid int) (found []*leftover) {
	for _, left := range r.leftovers {
		if left.Pid == pid && left.ended == nil {
			found = append(found, left)
		}
	}
	return found
}

// AddExit records the exit of a child, which is either the main child or any other process.
func (r *Report) AddExit(x reaper.Exit) {
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

// AddOOM records that a reaped process was killed with SIGKILL, but not by fini. verdict says whether a lack of memory
// was the cause, as "likely" or "unknown", and reason explains the verdict.
func (r *Report) AddOOM(pid int, verdict, reason string) {
	found := &oom{verdict, reason}
	if pid == r.Pid {
		r.oom = found
	}
	for _, left := range r.leftovers {
		if left.Pid == pid && left.ended != nil {
			left.oom = found
		}
	}
}

// Write writes the report to every place, with the exit status that fini will end with. For each stream it waits up to
// five seconds for a reader.
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
