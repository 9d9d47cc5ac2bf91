package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// newTestReport is a report to a file of its own.
func newTestReport(t *testing.T) *report {
	t.Helper()
	r, err := newReport(filepath.Join(t.TempDir(), "report.json"), []string{"command"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Without --report there is none, and nothing that tells it of something must mind.
func TestNoReport(t *testing.T) {
	var r *report
	r.signal(signals.Received{Signal: syscall.SIGTERM})
	r.stopped(life.TimedOut)
	r.leftover(member, "member", lineage{}, false)
	r.sent(member.Pid, syscall.SIGTERM)
	r.reaped([]reaper.Exit{{Pid: mainPid, Status: exited(0)}}, mainPid)
}

func TestReportTakesTheFirstReason(t *testing.T) {
	for why, want := range map[life.Reason]string{life.ParentDied: "launcher", life.StdinClosed: "stdin", life.TimedOut: "timeout"} {
		r := newTestReport(t)
		r.stopped(why)
		r.stopped(life.ParentDied)
		if r.Stopped == nil || *r.Stopped != want {
			t.Errorf("%v: %v, want %q", why, r.Stopped, want)
		}
	}
}

func TestReportOfLeftovers(t *testing.T) {
	r := newTestReport(t)
	from := lineage{chain: []ancestor{{11, "sh"}, {10, "make"}}, owner: &owner{ancestor{10, "make"}, "make -j"}, open: true}
	r.leftover(holder, "holder -v", from, false)
	r.leftover(member, "member", lineage{}, true)
	r.leftover(holder, "holder again", lineage{}, true) // is known
	next := holder
	next.Start += 10 * ms
	r.sent(holder.Pid, syscall.SIGTERM)
	r.sent(holder.Pid, syscall.SIGTERM)
	r.sent(holder.Pid, syscall.SIGKILL)
	r.sent(999, syscall.SIGKILL) // nobody's
	r.reaped([]reaper.Exit{
		{Pid: holder.Pid, Status: signaled(syscall.SIGKILL)},
		{Pid: mainPid, Status: syscall.WaitStatus(int(syscall.SIGTSTP)<<8 | 0x7f)}, // stopped
		{Pid: mainPid, Status: exited(3)},
		{Pid: member.Pid, Status: exited(7)},
		{Pid: 999, Status: exited(0)},
	}, mainPid)
	r.leftover(next, "another with its pid", lineage{}, false)
	r.sent(next.Pid, syscall.SIGTERM)

	if r.Exit == nil || r.Exit.Signal != nil || r.Exit.Code == nil || *r.Exit.Code != 3 || r.Ended == nil {
		t.Errorf("the main child: %+v, ended %v", r.Exit, r.Ended)
	}
	if r.Reaped != 3 {
		t.Errorf("reaped %d, want 3", r.Reaped)
	}
	if len(r.Leftovers) != 3 {
		t.Fatalf("%d leftovers, want 3", len(r.Leftovers))
	}
	ended := func(text string) *string { return &text }
	for i, want := range []leftoverReport{
		{Pid: holder.Pid, Command: "holder -v", StartedBy: []ancestor{{11, "sh"}, {10, "make"}}, Holds: []string{"stdout"}, Sent: []string{"SIGTERM", "SIGKILL"}, Ended: ended("SIGKILL")},
		{Pid: member.Pid, Command: "member", Sent: []string{"SIGTERM"}, Ended: ended("exit 7")},
		{Pid: next.Pid, Command: "another with its pid", Holds: []string{"stdout"}, Sent: []string{"SIGTERM"}},
	} {
		got := r.Leftovers[i]
		if got.Pid != want.Pid || got.Command != want.Command || !slices.Equal(got.StartedBy, want.StartedBy) ||
			!slices.Equal(got.Holds, want.Holds) || !slices.Equal(got.Sent, want.Sent) {
			t.Errorf("leftover %d: %+v, want %+v", i, *got, want)
		}
		if (got.Ended == nil) != (want.Ended == nil) || got.Ended != nil && *got.Ended != *want.Ended {
			t.Errorf("leftover %d ended %v", i, got.Ended)
		}
		// An empty list is [] for a reader and not null.
		if got.StartedBy == nil || got.Holds == nil || got.Sent == nil {
			t.Errorf("leftover %d has a list that is null: %+v", i, *got)
		}
		// But null is what is not known.
		if (got.Context == nil) != (i > 0) || (got.Owner == nil) != (i > 0) || got.Started == nil || got.Group == nil || got.Age == nil {
			t.Errorf("leftover %d: %+v", i, *got)
		}
	}
}

// What can't be seen is null, and not what it would be by default.
func TestReportOfWhatIsNotKnown(t *testing.T) {
	r := newTestReport(t)
	hidden := orphans.Process{Pid: 300, State: '?', Name: "?", Holds: orphans.Unknown}
	r.leftover(hidden, "?", lineage{}, false)
	r.allowed(hidden)
	r.allowed(orphans.Process{Pid: 301}) // is not known
	got := *r.Leftovers[0]
	if got.Started != nil || got.Age != nil || got.Group != nil || got.Session != nil || got.Holds != nil || got.Context != nil || !got.Allowed {
		t.Errorf("%+v", got)
	}
}

func TestReportOfMemory(t *testing.T) {
	r := newTestReport(t)
	r.oom(mainPid, mainPid, "likely", "why") // the outer fini of a pair has seen no end
	r.leftover(member, "member", lineage{}, false)
	r.leftover(holder, "holder", lineage{}, false)
	r.reaped([]reaper.Exit{{Pid: mainPid, Status: signaled(syscall.SIGKILL)}, {Pid: member.Pid, Status: signaled(syscall.SIGKILL)}}, mainPid)
	r.oom(mainPid, mainPid, "likely", "why")
	r.oom(member.Pid, mainPid, "unknown", "no count")
	r.oom(999, mainPid, "likely", "nobody's")
	if got := r.Exit.OOM; got == nil || *got != (oomReport{"likely", "why"}) {
		t.Errorf("the command: %+v", got)
	}
	if got := r.Leftovers[0]; got.OOM == nil || *got.OOM != (oomReport{"unknown", "no count"}) || got.Outlived == nil {
		t.Errorf("the leftover: %+v", *got)
	}
	if got := r.Leftovers[1]; got.OOM != nil || got.Outlived != nil {
		t.Errorf("one that lives: %+v", *got)
	}
}

// A report does not grow with what is reported, and says what it leaves out.
func TestReportIsBounded(t *testing.T) {
	r := newTestReport(t)
	const most = 143_500
	got := signals.Received{Signal: syscall.SIGHUP, Sender: os.Getpid()}
	for range maxSignals {
		r.signal(got)
	}
	if allocs := testing.AllocsPerRun(most-maxSignals-1, func() { r.signal(got) }); allocs > 0 { // which runs it once more
		t.Errorf("a signal too many costs %v allocations", allocs)
	}
	if len(r.Signals) != maxSignals || r.MoreSignals != most-maxSignals {
		t.Errorf("%d signals and %d more, want %d in all", len(r.Signals), r.MoreSignals, most)
	}

	long := strings.Repeat("é", 100_000)
	from := lineage{chain: make([]ancestor, maxAncestors), owner: &owner{Command: long}, open: true}
	for range hints {
		from.marks = append(from.marks, marked{"VARIABLE", long})
	}
	for i := range 12_000 {
		left := process(1000+i, 1, "left")
		r.leftover(left, long, from, false)
		if i < 10_000 {
			r.leftover(left, "left", from, true) // is known
		}
	}
	if len(r.Leftovers) != maxLeftovers || r.MoreLeftovers != 11_000 || len(r.seen) != 10*maxLeftovers {
		t.Errorf("%d leftovers and %d more, %d known", len(r.Leftovers), r.MoreLeftovers, len(r.seen))
	}
	bytes := 0
	for i, left := range r.Leftovers {
		if want := max(min(maxCommandLine, maxAllLines-bytes), minCommandLine); len(left.Command) != want || !left.Cut {
			t.Fatalf("leftover %d has %d bytes of its command line, cut is %v, want %d", i, len(left.Command), left.Cut, want)
		}
		bytes += len(left.Command) + len(left.Owner.Command)
		for _, m := range left.Context {
			bytes += len(m.Value)
		}
		if wide := bytes < maxAllLines; (len(left.Context) == len(hints)) != wide && len(left.Context) != 1 {
			t.Fatalf("leftover %d has %d marks after %d bytes", i, len(left.Context), bytes)
		}
		if len(left.StartedBy) != maxAncestors {
			t.Fatalf("leftover %d has %d ancestors", i, len(left.StartedBy))
		}
	}
	if text, err := json.MarshalIndent(r, "", "  "); err != nil || len(text) > 3<<20 {
		t.Errorf("a report of %d bytes, %v", len(text), err)
	}
}

func TestReportCutsTheCommand(t *testing.T) {
	for _, tt := range []struct {
		words []string
		room  int
		want  []string
		isCut bool
	}{
		{nil, 4, []string{}, false},
		{[]string{"abcd"}, 4, []string{"abcd"}, false},
		{[]string{"abcde"}, 4, []string{"abcd"}, true},
		{[]string{"ab", "c"}, 4, []string{"ab", "c"}, false},
		{[]string{"ab", "cd"}, 4, []string{"ab", "c"}, true},
		{[]string{"abcd", ""}, 4, []string{"abcd"}, true},
		{[]string{"", "", ""}, 2, []string{"", ""}, true},
		{[]string{"abé"}, 3, []string{"ab"}, true},
		{[]string{"\x80\x80\x80\x80\x80\x80\x80\x80"}, 7, []string{"\x80\x80\x80\x80\x80\x80\x80"}, true},
		{[]string{"漢"}, 1, []string{""}, true},
	} {
		if got, isCut := firstWords(tt.words, tt.room); !slices.Equal(got, tt.want) || isCut != tt.isCut {
			t.Errorf("the first %d bytes of %q: %q, %v", tt.room, tt.words, got, isCut)
		}
	}
}

// Of a command whose fini was killed nobody has seen the end.
func TestReportIsTakenOver(t *testing.T) {
	r := newTestReport(t)
	r.reaped([]reaper.Exit{{Pid: mainPid, Status: signaled(syscall.SIGKILL)}}, mainPid)
	r.takeOver(4242)
	if r.Pid != 4242 || r.Exit != nil || r.Ended != nil {
		t.Errorf("pid %d, exit %v, ended %v", r.Pid, r.Exit, r.Ended)
	}
}

func TestReportNeedsAPlace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Errno{
		dir:                                unix.EISDIR,
		dir + "/":                          unix.EISDIR,
		filepath.Join(dir, "none", "file"): unix.ENOENT,
		filepath.Join(dir, "none") + "/":   unix.ENOENT,
		filepath.Join(file, "file"):        unix.ENOTDIR,
		"/dev/fd/x":                        unix.ENOENT,
		"/dev/fd/":                         unix.ENOENT,
		"/dev/fd/-1":                       unix.EBADF,
		"/dev/fd/1000000":                  unix.EBADF,
	} {
		r, err := newReport(path, nil)
		if err == nil {
			t.Errorf("%s: no error, %+v", path, r)
			continue
		}
		if text := "--report: cannot write \"" + path + "\": " + want.Error(); err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("there is more than the one file: %v, %v", entries, err)
	}
}

// The names in a report are those that the flags take.
func TestReportNamesSignals(t *testing.T) {
	r := newTestReport(t)
	for n := syscall.Signal(1); n <= 64; n++ {
		r.signal(signals.Received{Signal: n})
		if sig, err := signals.Parse(r.Signals[len(r.Signals)-1].Signal); err != nil || sig != n {
			t.Errorf("signal %d is %q, which is %d, %v", n, r.Signals[len(r.Signals)-1].Signal, sig, err)
		}
	}
}
