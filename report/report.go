// Package report makes the output of --report: the record of one run of fini, the file or stream for the record,
// the owner of each leftover, and the line about it. The package takes facts and decides nothing; it knows no loop.
//
// It relies on the kernel's promise that a descriptor keeps its file when names change: see open(2).
package report

import (
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

// Report is the report of one run of fini. Without --report it has no place, and only serves the output for a CI.
type Report struct {
	is   record
	to   Place
	seen map[orphans.ID]struct{} // all listed leftovers, and the first unlisted leftovers
}

// record holds the fields that docs/report.schema.json describes.
type record struct {
	Fini          string
	Command       []string
	Cut           bool
	Isolated      bool // pids belong to the tree's own PID namespace
	Pid           int
	Started       time.Time
	Ended         *time.Time // the end of the main child; null if fini did not see it
	Finished      time.Time
	Status        int
	Error         *string // why the main child was not started
	Exit          *exit
	Stopped       *string // why fini stopped the main child
	Signals       []signal
	MoreSignals   int
	Leftovers     []*leftover
	MoreLeftovers int
	Reaped        int
	Used          unix.Rusage
}

// The limits of a report, whatever the tree does: the number of items, and the bytes of each text.
const (
	maxSignals     = 1000
	maxLeftovers   = 250
	maxSeen        = 10_000
	maxCommand     = 256 << 10 // of fini's own command line
	maxCommandLine = 4000      // of a leftover's command line, fewer than orphans reads
)

type exit struct {
	Code   *int
	Signal *string
	OOM    *oom
}

type oom struct {
	Verdict string
	Reason  string
}

type signal struct {
	At     time.Time
	Signal string
	Sender *Ancestor
}

// In a leftover, nil means unknown, and an empty list means none.
type leftover struct {
	Pid       int
	Command   string
	Cut       bool
	Allowed   bool
	Started   *time.Time
	StartedBy []Ancestor
	Owner     *Owner
	Context   []Mark
	Group     *int
	Session   *int
	Holds     []string
	Listens   []string
	Dir       *string
	User      *int
	Sent      []string
	Ended     *string
	OOM       *oom
	Age       *float64
	Outlived  *float64

	during string // its test, script, step or job, in words
	line   string // the line that fini printed about it, "" for none
}

// New begins the report of a command, which the given version of fini runs.
func New(to Place, command []string, version string) (r Report) {
	r.to, r.is = to, record{Fini: version, Started: time.Now(), Signals: []signal{}, Leftovers: []*leftover{}}
	r.is.Command, r.is.Cut = firstWords(command, maxCommand)
	return r
}

// Lists reports whether the report will be written. Then it also lists leftovers about which fini prints no
// line.
func (r *Report) Lists() bool { return r.to.path != "" }

// firstWords are the first words that have room in room bytes. The last word is cut if need be.
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

// firstBytes is text cut at about limit bytes, but never inside a rune.
func firstBytes(text string, limit int) (first string, isCut bool) {
	if len(text) <= limit {
		return text, false
	}
	for back := 1; back < utf8.UTFMax && limit > 0 && !utf8.RuneStart(text[limit]); back++ {
		limit--
	}
	return strings.Clone(text[:limit]), true
}

// Isolated says that all pids, except the pids of senders outside, belong to the tree's own PID namespace.
func (r *Report) Isolated() {
	r.is.Isolated = true
}

// Started records the pid of the main child, 0 for none.
func (r *Report) Started(pid int) {
	r.is.Pid = pid
}

// NotStarted records why there is no main child.
func (r *Report) NotStarted(why error) {
	text := why.Error()
	r.is.Error = &text
}

// Signal records a signal that fini has received.
func (r *Report) Signal(got signals.Received) {
	if !r.Lists() || len(r.is.Signals) == maxSignals {
		r.is.MoreSignals++
		return
	}
	s := signal{At: time.Now(), Signal: signals.Name(got.Signal)}
	if got.Sender > 0 {
		s.Sender = &Ancestor{Pid: got.Sender, Name: orphans.Name(got.Sender)}
	}
	r.is.Signals = append(r.is.Signals, s)
}

// Stopped records why fini stops the main child, in a word of the schema. The first reason stays.
func (r *Report) Stopped(why string) {
	if r.is.Stopped == nil {
		r.is.Stopped = &why
	}
}

// Leftover records a leftover. asked says that the leftover got SIGTERM before the sweep, alone or with
// its group; line is the line that fini prints about the leftover, "" for none. If the leftover is known already, the
// first record stays.
func (r *Report) Leftover(p orphans.Process, commandLine string, from Lineage, asked bool, line string) {
	id := p.ID()
	if _, known := r.seen[id]; known {
		return
	}
	if r.seen == nil {
		r.seen = map[orphans.ID]struct{}{}
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
	left.Listens, left.during, left.line = from.At.Listens, from.During, line
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

// seconds is a duration in seconds, to the millisecond.
func seconds(d time.Duration) *float64 {
	n := float64(max(d, 0).Milliseconds()) / 1000
	return &n
}

// living are the listed leftovers with a pid whose end fini has not seen.
func (r *Report) living(pid int) (found []*leftover) {
	for _, left := range r.is.Leftovers {
		if left.Pid == pid && left.Ended == nil {
			found = append(found, left)
		}
	}
	return found
}

// Allowed records that fini leaves a leftover alone.
func (r *Report) Allowed(p orphans.Process) {
	for _, left := range r.living(p.Pid) {
		left.Allowed = true
	}
}

// Sent records a signal that fini sent to a process, if the process is a leftover.
func (r *Report) Sent(pid int, sig syscall.Signal) {
	for _, left := range r.living(pid) {
		if name := signals.Name(sig); !slices.Contains(left.Sent, name) {
			left.Sent = append(left.Sent, name)
		}
	}
}

// Reaped records the reaped children, which may include the main child.
func (r *Report) Reaped(exits []reaper.Exit, mainPid int) {
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

// OOM records that a reaped process was killed by SIGKILL, but not by fini. verdict says whether the
// cause may be a lack of memory: "likely" or "unknown". reason says why.
func (r *Report) OOM(pid, mainPid int, verdict, reason string) {
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

// TakeOver makes this the report of an outer fini: no process has seen the end of the main child.
func (r *Report) TakeOver(command int) {
	r.is.Pid, r.is.Ended, r.is.Exit = command, nil, nil
}

// Write writes the report of a run that ends with this status, once, and waits at most 5 seconds
// for the reader of a stream.
func (r *Report) Write(status int) error {
	if !r.Lists() {
		return nil
	}
	r.is.Status, r.is.Finished = status, time.Now()
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &r.is.Used)
	text := r.is.json()
	if err := signals.Quietly(func() error { return r.to.write(text) }); err != nil {
		return cannotWrite(r.to.path, err)
	}
	return nil
}
