// Package report is what --report writes: the record of one life, the file or stream that it goes to,
// whose leak a leftover is, and what a line says of it. It takes facts and decides nothing; it knows no loop.
//
// It relies on the kernel that a descriptor leads to the same file whatever becomes of names: see open(2).
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

// Report is the report of one life. If none was asked for it has no place, and serves for what a CI is told.
type Report struct {
	is   record
	to   Place
	seen map[orphans.ID]struct{} // leftovers: those that are listed, and the first that are not
}

// record is what docs/report.schema.json describes.
type record struct {
	Fini          string
	Command       []string
	Cut           bool
	Isolated      bool // pids are those of its own PID namespace
	Pid           int
	Started       time.Time
	Ended         *time.Time // the main child; null if fini did not see it
	Finished      time.Time
	Status        int
	Error         *string // why the command was not started
	Exit          *exit
	Stopped       *string // why fini stopped the command
	Signals       []signal
	MoreSignals   int
	Leftovers     []*leftover
	MoreLeftovers int
	Reaped        int
	Used          unix.Rusage
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

// Of a leftover, nil is what could not be known, and an empty list is none.
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

	during string // what it was started in, in words
	line   string // what the user was told of it, "" for nothing
}

// New begins the report of a command, which the given version of fini runs.
func New(to Place, command []string, version string) (r Report) {
	r.to, r.is = to, record{Fini: version, Started: time.Now(), Signals: []signal{}, Leftovers: []*leftover{}}
	r.is.Command, r.is.Cut = firstWords(command, maxCommand)
	return r
}

// Lists reports whether the report will be written, and so lists leftovers beyond those that fini says a
// line of.
func (r *Report) Lists() bool { return r.to.path != "" }

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
	for back := 1; back < utf8.UTFMax && limit > 0 && !utf8.RuneStart(text[limit]); back++ {
		limit--
	}
	return strings.Clone(text[:limit]), true
}

// Isolated says that all pids but those of senders outside are those of a PID namespace of the tree's own.
func (r *Report) Isolated() {
	r.is.Isolated = true
}

// Started is the pid of the main child, 0 for none.
func (r *Report) Started(pid int) {
	r.is.Pid = pid
}

// NotStarted is why there is no main child.
func (r *Report) NotStarted(why error) {
	text := why.Error()
	r.is.Error = &text
}

// Signal is a signal that fini has received.
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

// Stopped is why fini stops the command, in a word of the schema. The first reason stays.
func (r *Report) Stopped(why string) {
	if r.is.Stopped == nil {
		r.is.Stopped = &why
	}
}

// Leftover takes in a leftover that was found. asked says that it had SIGTERM before the sweep, alone or
// with its group; line is what the user is told of it, "" for nothing. One that is known already stays as it was found
// first.
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
	for _, left := range r.living(p.Pid) {
		left.Allowed = true
	}
}

// Sent is a signal that a process was sent, which counts if it is a leftover.
func (r *Report) Sent(pid int, sig syscall.Signal) {
	for _, left := range r.living(pid) {
		if name := signals.Name(sig); !slices.Contains(left.Sent, name) {
			left.Sent = append(left.Sent, name)
		}
	}
}

// Reaped are children that were reaped, the main child among them or not.
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

// OOM is that a process which was reaped was ended by SIGKILL, not by fini, and whether it may have
// been for memory: "likely" or "unknown", and why.
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

// TakeOver makes the report of the outer fini of a pair that of a command whose end nobody has seen.
func (r *Report) TakeOver(command int) {
	r.is.Pid, r.is.Ended, r.is.Exit = command, nil, nil
}

// Write writes the report of a life that ends with this status, once, and waits at most 5 seconds
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
