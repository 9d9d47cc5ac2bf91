package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

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
	r.stopped(timedOut)
	r.leftover(member, "member", nil, false)
	r.sent(member.Pid, syscall.SIGTERM)
	r.reaped([]reaper.Exit{{Pid: mainPid, Status: exited(0)}}, mainPid)
}

func TestReportTakesTheFirstReason(t *testing.T) {
	for why, want := range map[reason]string{launcherDied: "launcher", stdinClosed: "stdin", timedOut: "timeout"} {
		r := newTestReport(t)
		r.stopped(why)
		r.stopped(launcherDied)
		if r.Stopped == nil || *r.Stopped != want {
			t.Errorf("%v: %v, want %q", why, r.Stopped, want)
		}
	}
}

// A stdin that closes when the command has ended by itself stops nothing, so it is no reason.
func TestReportTakesNoReasonThatCameLate(t *testing.T) {
	for phase, want := range map[phase]bool{running: true, lingering: false} {
		l := &loop{life: newLife(defaults(), mainPid), report: newTestReport(t)}
		l.life.phase = phase
		l.life.outer = true // which has nothing to do about it
		l.take(stop{stdinClosed})
		if got := l.report.Stopped != nil; got != want {
			t.Errorf("in phase %d: stopped is %v, want %v", phase, got, want)
		}
	}
}

func TestReportOfLeftovers(t *testing.T) {
	r := newTestReport(t)
	chain := []orphans.Process{process(11, 10, "sh"), process(10, 1, "make")}
	r.leftover(holder, "holder -v", chain, false)
	r.leftover(member, "member", nil, true)
	r.leftover(holder, "holder again", nil, true) // is known
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
	r.leftover(next, "another with its pid", nil, false)
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
	}
}

// Only the death of the inner fini by a signal lets the outer one write.
func TestReportIsTakenOver(t *testing.T) {
	for _, tt := range []struct {
		what  string
		exits []reaper.Exit
		want  bool
	}{
		{"the inner one lives", nil, false},
		{"the inner one has exited", []reaper.Exit{{Pid: mainPid, Status: exited(137)}}, false},
		{"the inner one was killed", []reaper.Exit{{Pid: mainPid, Status: signaled(syscall.SIGKILL)}}, true},
	} {
		r := newTestReport(t)
		r.reaped(tt.exits, mainPid)
		if got := r.takeOver(4242); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
		if tt.want && (r.Pid != 4242 || r.Exit != nil || r.Ended != nil) {
			t.Errorf("%s: pid %d, exit %v, ended %v", tt.what, r.Pid, r.Exit, r.Ended)
		}
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
