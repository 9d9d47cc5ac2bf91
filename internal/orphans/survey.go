package orphans

import (
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads what the processes of the tree are doing, in a limited time even if there are many.

// An Activity is what a process was doing at one moment.
type Activity struct {
	Process                   // State is 'R' if any thread is running
	CommandLine string        // see Tree.CommandLine
	CPU         time.Duration // processor time used, or -1 if unknown
	Details
}

// A survey takes at most 100 ms because somebody waits for the signal that follows it. The last try begins 4 ms after
// readBound at the latest, and a reader that is stuck has heldShortly. On a machine that is too busy, the walk and the
// reads may each use leastWork of processor time, which is enough for a small tree.
const (
	walkBound   = 40 * time.Millisecond
	readBound   = 65 * time.Millisecond
	surveyTries = 3 // after 2 and 4 ms: see persist
	heldShortly = 25 * time.Millisecond
	leastWork   = 25 * time.Millisecond
)

// A surveyTime is the time limit for the walk or the reads of a survey.
type surveyTime struct {
	until time.Time     // zero if there is no survey
	work  time.Duration // limit of processor time: see used
	over  bool          // the result of late, because the processor's clock is slow and a walk asks often
}

// used returns the processor time that this process has used, or -1 if it is unknown.
func used() time.Duration {
	var at unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &at) != nil {
		return -1
	}
	return time.Duration(at.Nano())
}

// late reports whether the time is over.
func (s *surveyTime) late() bool {
	if s.is() && !s.over && time.Now().After(s.until) {
		at := used()
		s.over = at < 0 || at > s.work
	}
	return s.over
}

func (s *surveyTime) is() bool { return !s.until.IsZero() }

// Survey returns what the live processes of the tree are doing, with the given variables of their environments. It
// returns at most the given number, and in more how many are left out. Processes without children come first. Those
// with a single child come last, because they usually wait for it. In a tree of thousands, a Survey may miss some. It
// does not affect what Signal may signal.
func (t *Tree) Survey(most int, variables []string) (seen []Activity, more int) {
	t.prepare()
	begun := time.Now()
	defer func() { t.surveyTime = surveyTime{} }()
	t.surveyTime = surveyTime{until: begun.Add(walkBound), work: used() + leastWork}
	found := slices.DeleteFunc(t.walk(), func(p Process) bool { return !p.Alive() })
	children := map[int]int{}
	for _, p := range found {
		children[p.Parent]++
	}
	rank := func(p Process) int { return [...]int{0, 2, 1}[min(children[p.Pid], 2)] }
	slices.SortStableFunc(found, func(a, b Process) int { return rank(a) - rank(b) })
	more = max(len(found)-most, 0)
	found = found[:len(found)-more]

	t.surveyTime = surveyTime{until: begun.Add(readBound), work: used() + leastWork}
	read := map[int]Activity{}
	var listening map[string]string
	t.persist(surveyTries, found, func(quiet []Process) {
		for i, one := range ask(t, quiet, func(f *files,
			p Process) Activity {
			return f.activity(p, variables, &listening)
		}) {
			read[quiet[i].Pid] = one
		}
	}, func(p Process) bool {
		_, is := read[p.Pid]
		return is
	})
	for _, p := range found {
		one, is := read[p.Pid]
		if !is {
			one = Activity{CommandLine: p.Name, CPU: -1}
		}
		p.Start = one.Start
		if p.kept.runs {
			p.State = 'R'
		}
		one.Process = p
		seen = append(seen, one)
	}
	return seen, more
}

// activity reads everything about one process.
func (f *files) activity(p Process, variables []string, listening *map[string]string) Activity {
	a := Activity{CommandLine: p.Name, CPU: -1}
	stat, _ := f.Read(strconv.Itoa(p.Pid) + "/stat")
	a.Start, a.CPU = proc.ParseStart(stat), proc.ParseCPU(stat)
	if line := f.commandLine(p); line != "" {
		a.CommandLine = line
	}
	a.Details = f.details(p.dir(), variables, "", listening)
	return a
}
