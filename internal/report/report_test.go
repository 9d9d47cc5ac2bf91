package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
	"golang.org/x/sys/unix"
)

// newTestReport is a report to a file of its own.
func newTestReport(t *testing.T) *Report {
	t.Helper()
	to, err := Open(filepath.Join(t.TempDir(), "report.json"), [3]bool{})
	check.NoError(t, err)
	r := New([]Place{to}, []string{"command"}, "1.2.3")
	r.Pid = mainPid
	r.started = r.started.Add(-time.Hour)
	return &r
}

const (
	mainPid = 100
	ms      = time.Millisecond
)

var (
	member = orphans.Process{Pid: 201, Parent: 1, PGID: mainPid, Session: 1, Name: "member", State: 'S', Start: 10 * ms, Holds: orphans.Holds(0)}
	holder = orphans.Process{Pid: 204, Parent: 1, PGID: 204, Session: 204, Name: "holder", State: 'S', Start: 20 * ms, Holds: orphans.Holds(orphans.Stdout)}
)

func exited(code int) syscall.WaitStatus             { return syscall.WaitStatus(code << 8) }
func signaled(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }

// process is one that was started by another, in the command's group.
func process(pid, parent int, name string) orphans.Process {
	return orphans.Process{Pid: pid, Parent: parent, PGID: mainPid, Session: 1, Name: name, State: 'S', Holds: orphans.Holds(0), User: os.Geteuid()}
}

// Without --report nothing is written, and nobody is looked up for it.
func TestNoReport(t *testing.T) {
	r := &Report{}
	r.AddSignal(signals.Received{Signal: syscall.SIGHUP, Sender: os.Getpid()})
	check.Equal(t, "what has failed", len(r.Write(0)), 0)
	check.Equal(t, "it lists something", r.Lists() || r.signals != nil, false)
}

func TestReportOfLeftovers(t *testing.T) {
	r := newTestReport(t)
	from := Lineage{Chain: []Ancestor{{11, "sh"}, {10, "make"}}, Owner: &Owner{Ancestor{10, "make"}, "make -j"}, Marks: []Mark{}}
	toHolder := []syscall.Signal{syscall.SIGTERM}
	r.AddLeftover(holder, "holder -v", from, "", false, func() []syscall.Signal { return toHolder }, "")
	r.AddLeftover(member, "member", Lineage{}, "", true, sent(syscall.SIGTERM), "")
	r.AddLeftover(holder, "holder again", Lineage{}, "", false, func() []syscall.Signal { return toHolder }, "") // is known
	next := holder
	next.Start += 10 * ms
	toHolder = append(toHolder, syscall.SIGKILL)
	r.AddExit(reaper.Exit{Pid: holder.Pid, Status: signaled(syscall.SIGKILL)})
	r.AddExit(reaper.Exit{Pid: mainPid, Status: exited(3)})
	r.AddExit(reaper.Exit{Pid: member.Pid, Status: exited(7)})
	r.AddExit(reaper.Exit{Pid: 999, Status: exited(0)})
	r.AddLeftover(next, "another with its pid", Lineage{}, "", false, sent(syscall.SIGTERM), "")
	r.SetStopped("timeout", true)

	whole, left := written(t, r)
	mustHave(t, whole, `"stopped":"timeout","reaped":3,"exit":{"code":3,"signal":null,"oom":null}`)
	for name, took := range whole["seconds"].(map[string]any) {
		check.Equal(t, fmt.Sprintf("the seconds of %s are known", name), took != nil, true)
	}
	if len(left) != 3 {
		t.Fatalf("%d leftovers, want 3", len(left))
	}
	for i, want := range []string{
		`"pid":204,"command":"holder -v","startedBy":[{"name":"sh","pid":11},{"name":"make","pid":10}],"holds":["stdout"],"sent":["SIGTERM","SIGKILL"],"ended":"SIGKILL","context":[]`,
		`"pid":201,"command":"member","startedBy":[],"owner":null,"holds":[],"sent":["SIGTERM"],"ended":"exit 7","context":null,"group":100,"session":1,"during":true`,
		`"pid":204,"command":"another with its pid","startedBy":[],"holds":["stdout"],"sent":["SIGTERM"],"ended":null,"outlivedSeconds":null,"during":false`,
	} {
		mustHave(t, left[i], want)
		if left[i]["started"] == nil || left[i]["ageSeconds"] == nil {
			t.Errorf("leftover %d: %v", i, left[i])
		}
	}
}

func sent(to ...syscall.Signal) func() []syscall.Signal {
	return func() []syscall.Signal { return to }
}

// written is a report as its reader sees it, and its leftovers.
func written(t *testing.T, r *Report) (whole map[string]any, leftovers []map[string]any) {
	t.Helper()
	text := r.json(0)
	check.MustParse(t, text, &whole)
	check.MustParse(t, text, &struct{ Leftovers *[]map[string]any }{&leftovers})
	return whole, leftovers
}

// mustHave compares some fields of an object, and knows null from what is empty.
func mustHave(t *testing.T, got map[string]any, fields string) {
	t.Helper()
	var want map[string]any
	check.MustParse(t, []byte("{"+fields+"}"), &want)
	for name, value := range want {
		check.Equal(t, name, got[name], value)
	}
}

// What can't be seen is null, and not what it would be by default.
func TestReportOfWhatIsNotKnown(t *testing.T) {
	r := newTestReport(t)
	hidden := orphans.Process{Pid: 300, State: '?', Name: "?", User: -1}
	r.AddLeftover(hidden, "?", Lineage{}, "", false, sent(), "")
	hidden.Allowed = true // since it has another name
	r.AddLeftover(hidden, "?", Lineage{}, "allow-orphan", false, sent(), "")
	_, left := written(t, r)
	mustHave(t, left[0], `"started":null,"ageSeconds":null,"group":null,"session":null,"user":null,"cwd":null,
		"holds":null,"listens":null,"context":null,"owner":null,"oom":null,"allowed":true,"spared":"allow-orphan"`)
}

func TestReportOfMemory(t *testing.T) {
	r := newTestReport(t)
	r.AddOOM(mainPid, "likely", "why") // the outer fini of a pair has seen no end
	r.AddLeftover(member, "member", Lineage{}, "", false, sent(), "")
	r.AddLeftover(holder, "holder", Lineage{}, "", false, sent(), "")
	r.AddExit(reaper.Exit{Pid: mainPid, Status: signaled(syscall.SIGKILL)})
	r.AddExit(reaper.Exit{Pid: member.Pid, Status: signaled(syscall.SIGKILL)})
	r.AddOOM(mainPid, "likely", "why")
	r.AddOOM(member.Pid, "unknown", "no count")
	r.AddOOM(999, "likely", "nobody's")
	r.AddOOM(holder.Pid, "likely", "it lives")
	whole, left := written(t, r)
	mustHave(t, whole, `"exit":{"code":null,"signal":"SIGKILL","oom":{"verdict":"likely","reason":"why"}}`)
	mustHave(t, left[0], `"oom":{"verdict":"unknown","reason":"no count"}`)
	if outlived, ok := left[0]["outlivedSeconds"].(float64); !ok || outlived > 3000 { // the start was an hour ago
		t.Errorf("the leftover: %v", left[0])
	}
	mustHave(t, left[1], `"oom":null,"outlivedSeconds":null`)
}

// A report does not grow with what is reported, and says what it leaves out.
func TestReportIsBounded(t *testing.T) {
	r := newTestReport(t)
	const most = 143_500
	got := signals.Received{Signal: syscall.SIGHUP, Sender: os.Getpid()}
	for range maxSignals {
		r.AddSignal(got)
	}
	allocs := testing.AllocsPerRun(most-maxSignals-1, func() { r.AddSignal(got) }) // which runs it once more
	check.Equal(t, "the allocations of a signal too many", allocs, 0.0)
	check.Equal(t, "signals, and more", [2]int{len(r.signals), r.moreSignals}, [2]int{maxSignals, most - maxSignals})

	long := strings.Repeat("é", 100_000)
	at := orphans.Details{Variables: map[string]string{}, Listens: slices.Repeat([]string{long[:108]}, 16), Dir: long[:1024]}
	for _, name := range HintNames() {
		at.Variables[name] = long
	}
	owners := NewOwners(fakeTree{long, at}, func(string) string { return "" })
	chain := below(slices.Repeat([]string{"owner"}, 2*maxAncestors)...)
	owners.Remember(chain)
	for i := range 12_000 {
		left := process(1000+i, chain[1].Pid, "left")
		from := owners.Of(left)
		r.AddLeftover(left, long, from, "", false, sent(), "")
		if i < maxSeen {
			r.AddLeftover(left, "left", from, "", false, sent(syscall.SIGTERM), "") // is known
		}
	}
	check.Equal(t, "leftovers, more, and those that are known", [3]int{len(r.leftovers), r.moreLeftovers, len(r.seen)},
		[3]int{maxLeftovers, 12_000 - maxLeftovers, maxSeen})
	notCut := func(m Mark) bool { return len(m.Value) != maxText }
	for i, left := range r.leftovers {
		if len(left.command) != maxCommandLine || !left.isCut || len(left.Owner.Command) != maxText || len(left.Chain) != maxAncestors ||
			len(left.Marks) != maxMarks || slices.ContainsFunc(left.Marks, notCut) || left.At.Variables != nil {
			t.Fatalf("leftover %d is not cut: %.300v", i, *left)
		}
	}
	var is struct{ SignalsOmitted, LeftoversOmitted int }
	text := r.json(0)
	check.MustParse(t, text, &is)
	if len(text) > 3<<20 || is.SignalsOmitted != most-maxSignals || is.LeftoversOmitted != 12_000-maxLeftovers {
		t.Errorf("a report of %d bytes, which omits %+v", len(text), is)
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
		got, isCut := firstWords(tt.words, tt.room)
		check.Equal(t, fmt.Sprintf("the first %d bytes of %q, and whether that cuts them", tt.room, tt.words), []any{got, isCut}, []any{tt.want, tt.isCut})
	}
}

// The place is a descriptor, which another process may get: it writes the report over what was there, or over the half
// that the first one wrote before it was killed.
func TestPlaceIsHandedOver(t *testing.T) {
	r := newTestReport(t)
	half := append(r.json(0)[:100], bytes.Repeat([]byte("half of a report"), 1000)...)
	_, err := unix.Write(r.To[0].FD, half)
	check.NoError(t, err)
	check.Equal(t, "what has failed", len(r.Write(5)), 0)
	check.MustParse(t, []byte(check.ReadFile(t, r.To[0].Path)), new(any))
}

// The file has a name, but not the one by which it was opened.
func TestPlaceHasLostItsName(t *testing.T) {
	r := newTestReport(t)
	other := filepath.Join(t.TempDir(), "other")
	check.NoError(t, errors.Join(os.Link(r.To[0].Path, other), os.Remove(r.To[0].Path)))
	if err := errors.Join(r.Write(5)...); err == nil || !strings.HasSuffix(err.Error(), ": it was removed meanwhile") {
		t.Errorf("%v", err)
	}
	check.Equal(t, "the file", check.ReadFile(t, other), "")
}

// Whoever reads the text gets what was written, and obeys nothing of it.
func TestReportIsJSON(t *testing.T) {
	for _, text := range []string{"", `"\/`, "a\nb\t\x00\x1f\x7f", "é漢\u2028\U0001f600", "\xff\xfe", "a\xc3", "\ufffd", "<&>", "\u0080\u009b\u009f\u00a0", "# ## ### ##[add-mask]a"} {
		j := encode(text)
		var got string
		check.MustParse(t, j, &got)
		check.Equal(t, string(j), got, string([]rune(text))) // with U+FFFD for each byte that is not UTF-8
		if odd := strings.IndexFunc(strings.TrimSuffix(string(j), "\n"), unicode.IsControl); odd >= 0 || strings.Contains(string(j), "##") {
			t.Errorf("%q is %q, which a terminal or a CI's agent obeys", text, j)
		}
	}
	r := newTestReport(t)
	r.AddSignal(signals.Received{Signal: syscall.SIGHUP})
	r.AddSignal(signals.Received{Signal: syscall.SIGINT, Sender: 1})
	text := r.json(0)
	// Its lines are those of json.Indent.
	var indented bytes.Buffer
	check.NoError(t, json.Indent(&indented, text, "", "  "))
	check.Equal(t, "the report", string(text), indented.String())
}

func TestNoDescriptor(t *testing.T) {
	defer self.PutAt(t, 0, self.Open(t, os.DevNull, os.O_RDWR))()
	for path, closed := range map[string][3]bool{
		// The Go runtime opens /dev/null for a stream that was closed at the start.
		"-": {1: true}, "/dev/stderr": {2: true}, "/dev/fd/0": {true},
		"/dev/fd/": {}, "/dev/fd/x": {}, "/dev/fd/-1": {}, "/dev/fd/1000000": {}, "/proc/self/fd/-1": {},
	} {
		_, err := Open(path, closed)
		check.Equal(t, path+" is no descriptor", errors.Is(err, unix.EBADF), true)
	}
}
