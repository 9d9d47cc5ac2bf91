package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// newTestReport is a report to a file of its own.
func newTestReport(t *testing.T) *Report {
	t.Helper()
	to, err := Open(filepath.Join(t.TempDir(), "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := New(to, []string{"command"}, "1.2.3")
	return &r
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

// Without --report nothing is written, and nobody is looked up for it.
func TestNoReport(t *testing.T) {
	r := &Report{}
	r.Signal(signals.Received{Signal: syscall.SIGHUP, Sender: os.Getpid()})
	if err := r.Write(0); err != nil || r.Lists() || r.is.Signals != nil {
		t.Errorf("%v, %+v", err, r.is.Signals)
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
	r.Leftover(holder, "holder -v", from, false, "")
	r.Leftover(member, "member", Lineage{}, true, "")
	r.Leftover(holder, "holder again", Lineage{}, true, "") // is known
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
	r.Leftover(next, "another with its pid", Lineage{}, false, "")
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
	r.Leftover(hidden, "?", Lineage{}, false, "")
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
	r.Leftover(member, "member", Lineage{}, false, "")
	r.Leftover(holder, "holder", Lineage{}, false, "")
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
		r.Leftover(left, long, from, false, "")
		if i < maxSeen {
			r.Leftover(left, "left", from, true, "") // is known
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
	if text := r.is.json(); len(text) > 3<<20 || !json.Valid(text) {
		t.Errorf("a report of %d bytes, or no JSON", len(text))
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
		{[]string{"\x80\x80\x80\x80\x80\x80\x80\x80"}, 7, []string{"\x80\x80\x80\x80"}, true},
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
	in := func(name string) string { return filepath.Join(dir, name) }
	file, link, fifo := in("file"), in("link"), in("fifo")
	for _, err := range []error{
		os.WriteFile(file, nil, 0o600), os.Link(file, in("names")), os.Symlink("nothing", link), unix.Mkfifo(fifo, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const remedy = ": want a regular file, - or /dev/fd/N"
	for path, want := range map[string]string{
		dir:                "it is a directory" + remedy,
		dir + "/":          "it is a directory" + remedy,
		fifo:               "it is a FIFO" + remedy,
		link:               "it is a symbolic link" + remedy,
		file:               "it has 2 names",
		"/dev/null":        "it is a device" + remedy,
		"/dev/stdin":       "it is a symbolic link" + remedy,
		"/dev/./stdin":     "it is a symbolic link" + remedy,
		in("none/file"):    unix.ENOENT.Error() + "; mkdir -p " + in("none") + " makes the directory",
		in("none") + "/":   unix.EISDIR.Error(),
		in("file/file"):    unix.ENOTDIR.Error(),
		"/dev/fd/x":        unix.ENOENT.Error(),
		"/dev/fd/":         unix.ENOENT.Error(),
		"/dev/fd/-1":       unix.EBADF.Error(),
		"/dev/fd/1000000":  unix.EBADF.Error(),
		"/proc/self/fd/-1": unix.EBADF.Error(),
	} {
		to, err := Open(path)
		if err == nil {
			t.Errorf("%s: no error, %+v", path, to)
			continue
		}
		if text := "--report: cannot write \"" + path + "\": " + want; err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("there is more than what was put there: %v, %v", entries, err)
	}
}

// The place is a descriptor, which another process may get: it writes the report over what was there, or over the half
// that the first one wrote before it was killed, wherever names lead by then.
func TestPlaceIsHandedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte(strings.Repeat("old ", 10_000)), 0o640); err != nil {
		t.Fatal(err)
	}
	to, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(to.FD, []byte("half of a report")); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(to.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+".moved"), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := New(At(path, fd), []string{"command"}, "1.2.3")
	if err := r.Write(5); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path + ".moved")
	if err != nil || !json.Valid(text) {
		t.Errorf("%v: %.300q", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("what has the name now was written: %v, %v", info, err)
	}
	if info, err := os.Stat(path + ".moved"); err != nil || info.Mode() != 0o640 {
		t.Errorf("the mode has changed: %v, %v", info, err)
	}
}

// A report that can't be written leaves nothing half written, and one whose file was removed says so.
func TestPlaceThatFails(t *testing.T) {
	r := newTestReport(t)
	path := r.to.path
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(0); err == nil || !strings.HasSuffix(err.Error(), ": it was removed meanwhile") {
		t.Errorf("of one that was removed: %v", err)
	}

	r = newTestReport(t)
	r.is.Command = []string{strings.Repeat("x", 100_000)}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err := r.Write(0)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	info, statErr := os.Stat(r.to.path)
	if !errors.Is(err, unix.EFBIG) || statErr != nil || info.Size() != 0 {
		t.Errorf("of one that is too large: %v, %v, %v", err, info, statErr)
	}
}

// What is written by hand is what package encoding/json reads.
func TestReportIsJSON(t *testing.T) {
	for _, text := range []string{"", `"\/`, "a\nb\t\x00\x1f\x7f", "é漢\u2028\U0001f600", "\xff\xfe", "a\xc3", "\ufffd", "<&>"} {
		j := &jsonText{}
		j.string(text)
		var got string
		if err := json.Unmarshal(j.text, &got); err != nil || got != strings.ToValidUTF8(text, "\ufffd") && text != "\xff\xfe" {
			t.Errorf("%q is %s, which is %q, %v", text, j.text, got, err)
		}
		if text == "\xff\xfe" && got != "\ufffd\ufffd" {
			t.Errorf("%q is %s: want U+FFFD for each byte", text, j.text)
		}
	}
	r := newTestReport(t)
	r.is.Signals = append(r.is.Signals, signal{Signal: "SIGHUP"}, signal{Signal: "SIGINT", Sender: &Ancestor{1, "init"}})
	r.is.Used.Utime, r.is.Used.Stime = unix.Timeval{Usec: 1}, unix.Timeval{Sec: 12345678, Usec: 500_000}
	text := r.is.json()
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if !bytes.Contains(text, []byte(`"userSeconds": 0.000001,`)) || !bytes.Contains(text, []byte(`"systemSeconds": 12345678.5,`)) {
		t.Errorf("the processor time in %s", text)
	}
	// Its lines are those of json.Indent.
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(text), "", "  "); err != nil || indented.String()+"\n" != string(text) {
		t.Errorf("%v:\n%s\nwant\n%s", err, text, &indented)
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
