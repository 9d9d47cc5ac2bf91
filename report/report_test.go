package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// newTestReport is a report to a file of its own.
func newTestReport(t *testing.T) *Report {
	t.Helper()
	r, err := New(filepath.Join(t.TempDir(), "report.json"), []string{"command"}, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	mainPid = 100
	ms      = time.Millisecond
)

var (
	member = orphans.Process{Pid: 201, Parent: 1, Group: mainPid, Session: 1, Name: "member", State: 'S', Start: 10 * ms}
	holder = orphans.Process{Pid: 204, Parent: 1, Group: 204, Session: 204, Name: "holder", State: 'S', Start: 20 * ms, Holds: orphans.Stdout}
)

func exited(code int) syscall.WaitStatus             { return syscall.WaitStatus(code << 8) }
func signaled(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }

// process is one that was started by another, in the command's group.
func process(pid, parent int, name string) orphans.Process {
	return orphans.Process{Pid: pid, Parent: parent, Group: mainPid, Session: 1, Name: name, State: 'S', User: os.Geteuid()}
}

// Without --report there is none, and nothing that tells it of something must mind: no method, whatever
// it is called with.
func TestNoReport(t *testing.T) {
	none := reflect.ValueOf((*Report)(nil))
	if none.NumMethod() < 10 {
		t.Errorf("only %d methods", none.NumMethod())
	}
	for i := range none.NumMethod() {
		var args []reflect.Value
		for arg := range none.Method(i).Type().Ins() {
			args = append(args, reflect.Zero(arg))
		}
		for _, result := range none.Method(i).Call(args) {
			if !result.IsZero() {
				t.Errorf("%s returns %v", none.Type().Method(i).Name, result)
			}
		}
	}
}

func TestReportTakesTheFirstReason(t *testing.T) {
	r := newTestReport(t)
	r.Stopped("timeout")
	r.Stopped("launcher")
	if r.is.Stopped == nil || *r.is.Stopped != "timeout" {
		t.Errorf("%v, want the timeout", r.is.Stopped)
	}
}

func TestReportOfLeftovers(t *testing.T) {
	r := newTestReport(t)
	from := Lineage{Chain: []Ancestor{{11, "sh"}, {10, "make"}}, Owner: &Owner{Ancestor{10, "make"}, "make -j"}, Open: true}
	r.Leftover(holder, "holder -v", from, false)
	r.Leftover(member, "member", Lineage{}, true)
	r.Leftover(holder, "holder again", Lineage{}, true) // is known
	next := holder
	next.Start += 10 * ms
	r.Sent(holder.Pid, syscall.SIGTERM)
	r.Sent(holder.Pid, syscall.SIGTERM)
	r.Sent(holder.Pid, syscall.SIGKILL)
	r.Sent(999, syscall.SIGKILL) // nobody's
	r.Reaped([]reaper.Exit{
		{Pid: holder.Pid, Status: signaled(syscall.SIGKILL)},
		{Pid: mainPid, Status: syscall.WaitStatus(int(syscall.SIGTSTP)<<8 | 0x7f)}, // stopped
		{Pid: mainPid, Status: exited(3)},
		{Pid: member.Pid, Status: exited(7)},
		{Pid: 999, Status: exited(0)},
	}, mainPid)
	r.Leftover(next, "another with its pid", Lineage{}, false)
	r.Sent(next.Pid, syscall.SIGTERM)

	if r.is.Exit == nil || r.is.Exit.Signal != nil || r.is.Exit.Code == nil || *r.is.Exit.Code != 3 || r.is.Ended == nil {
		t.Errorf("the main child: %+v, ended %v", r.is.Exit, r.is.Ended)
	}
	if r.is.Reaped != 3 {
		t.Errorf("reaped %d, want 3", r.is.Reaped)
	}
	if len(r.is.Leftovers) != 3 {
		t.Fatalf("%d leftovers, want 3", len(r.is.Leftovers))
	}
	ended := func(text string) *string { return &text }
	for i, want := range []leftover{
		{Pid: holder.Pid, Command: "holder -v", StartedBy: []Ancestor{{11, "sh"}, {10, "make"}}, Holds: []string{"stdout"}, Sent: []string{"SIGTERM", "SIGKILL"}, Ended: ended("SIGKILL")},
		{Pid: member.Pid, Command: "member", Sent: []string{"SIGTERM"}, Ended: ended("exit 7")},
		{Pid: next.Pid, Command: "another with its pid", Holds: []string{"stdout"}, Sent: []string{"SIGTERM"}},
	} {
		got := r.is.Leftovers[i]
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
	r.Leftover(hidden, "?", Lineage{}, false)
	r.Allowed(hidden)
	r.Allowed(orphans.Process{Pid: 301}) // is not known
	got := *r.is.Leftovers[0]
	if got.Started != nil || got.Age != nil || got.Group != nil || got.Session != nil || got.Holds != nil || got.Context != nil || !got.Allowed {
		t.Errorf("%+v", got)
	}
}

func TestReportOfMemory(t *testing.T) {
	r := newTestReport(t)
	r.OOM(mainPid, mainPid, "likely", "why") // the outer fini of a pair has seen no end
	r.Leftover(member, "member", Lineage{}, false)
	r.Leftover(holder, "holder", Lineage{}, false)
	r.Reaped([]reaper.Exit{{Pid: mainPid, Status: signaled(syscall.SIGKILL)}, {Pid: member.Pid, Status: signaled(syscall.SIGKILL)}}, mainPid)
	r.OOM(mainPid, mainPid, "likely", "why")
	r.OOM(member.Pid, mainPid, "unknown", "no count")
	r.OOM(999, mainPid, "likely", "nobody's")
	if got := r.is.Exit.OOM; got == nil || *got != (oom{"likely", "why"}) {
		t.Errorf("the command: %+v", got)
	}
	if got := r.is.Leftovers[0]; got.OOM == nil || *got.OOM != (oom{"unknown", "no count"}) || got.Outlived == nil {
		t.Errorf("the leftover: %+v", *got)
	}
	if got := r.is.Leftovers[1]; got.OOM != nil || got.Outlived != nil {
		t.Errorf("one that lives: %+v", *got)
	}
}

// A report does not grow with what is reported, and says what it leaves out.
func TestReportIsBounded(t *testing.T) {
	r := newTestReport(t)
	const most = 143_500
	got := signals.Received{Signal: syscall.SIGHUP, Sender: os.Getpid()}
	for range maxSignals {
		r.Signal(got)
	}
	if allocs := testing.AllocsPerRun(most-maxSignals-1, func() { r.Signal(got) }); allocs > 0 { // which runs it once more
		t.Errorf("a signal too many costs %v allocations", allocs)
	}
	if len(r.is.Signals) != maxSignals || r.is.MoreSignals != most-maxSignals {
		t.Errorf("%d signals and %d more, want %d in all", len(r.is.Signals), r.is.MoreSignals, most)
	}

	long := strings.Repeat("é", 100_000)
	owners := NewOwners(fakeTree{long}, func(string) string { return "" })
	var chain []orphans.Process
	for i := range 2 * maxAncestors {
		chain = append(chain, process(100+i, 99+i, "owner"))
	}
	owners.Remember(chain)
	for i := range 12_000 {
		left := process(1000+i, 100+2*maxAncestors-1, "left")
		from := owners.Of(left)
		r.Leftover(left, long, from, false)
		if i < maxSeen {
			r.Leftover(left, "left", from, true) // is known
		}
	}
	if len(r.is.Leftovers) != maxLeftovers || r.is.MoreLeftovers != 12_000-maxLeftovers || len(r.seen) != maxSeen {
		t.Errorf("%d leftovers and %d more, %d known", len(r.is.Leftovers), r.is.MoreLeftovers, len(r.seen))
	}
	for i, left := range r.is.Leftovers {
		if len(left.Command) != maxCommandLine || !left.Cut || len(left.Owner.Command) != maxText ||
			len(left.Context) != maxMarks || len(left.StartedBy) != maxAncestors {
			t.Fatalf("leftover %d is not cut: %.300v", i, *left)
		}
		for _, m := range left.Context {
			if len(m.Value) != maxText {
				t.Fatalf("leftover %d has %d bytes of %s", i, len(m.Value), m.Variable)
			}
		}
	}
	if text, err := json.MarshalIndent(&r.is, "", "  "); err != nil || len(text) > 3<<20 {
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
	r.Reaped([]reaper.Exit{{Pid: mainPid, Status: signaled(syscall.SIGKILL)}}, mainPid)
	r.TakeOver(4242)
	if r.is.Pid != 4242 || r.is.Exit != nil || r.is.Ended != nil {
		t.Errorf("pid %d, exit %v, ended %v", r.is.Pid, r.is.Exit, r.is.Ended)
	}
}

func TestReportNeedsAPlace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const remedy = ": want a regular file, - or /dev/fd/N"
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                                "it is a directory" + remedy,
		dir + "/":                          "it is a directory" + remedy,
		fifo:                               "it is a FIFO" + remedy,
		"/dev/null":                        "it is a device" + remedy,
		"/dev/stdin":                       "it is a device" + remedy,
		"/dev/./stdin":                     "it is a device" + remedy,
		filepath.Join(dir, "none", "file"): unix.ENOENT.Error(),
		filepath.Join(dir, "none") + "/":   unix.ENOENT.Error(),
		filepath.Join(file, "file"):        unix.ENOTDIR.Error(),
		"/dev/fd/x":                        unix.ENOENT.Error(),
		"/dev/fd/":                         unix.ENOENT.Error(),
		"/dev/fd/-1":                       unix.EBADF.Error(),
		"/dev/fd/1000000":                  unix.EBADF.Error(),
	} {
		r, err := New(path, nil, "1.2.3")
		if err == nil {
			t.Errorf("%s: no error, %+v", path, r)
			continue
		}
		if text := "--report: cannot write \"" + path + "\": " + want; err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("there is more than the file and the FIFO: %v, %v", entries, err)
	}
}

// Whoever ends fini while it tries the place leaves no file behind, for there is none with a name.
func TestPlaceIsTriedWithoutAName(t *testing.T) {
	dir := t.TempDir()
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
		need.That(t, false, "a file system with O_TMPFILE for temporary files")
	} else {
		_ = unix.Close(fd)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(watch) }()
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	if _, err := New(filepath.Join(dir, "report.json"), nil, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("a name came: %d bytes of events, %v", n, err)
	}
}

// The names in a report are those that the flags take.
func TestReportNamesSignals(t *testing.T) {
	r := newTestReport(t)
	for n := syscall.Signal(1); n <= 64; n++ {
		r.Signal(signals.Received{Signal: n})
		if sig, err := signals.Parse(r.is.Signals[len(r.is.Signals)-1].Signal); err != nil || sig != n {
			t.Errorf("signal %d is %q, which is %d, %v", n, r.is.Signals[len(r.is.Signals)-1].Signal, sig, err)
		}
	}
}
