package report

import (
	"html"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// surveyed is a report that has seen these processes.
func surveyed(more int, seen ...orphans.Activity) *Report {
	r := &Report{Pid: mainPid}
	r.SetRunning(seen, more, NewOwners(nil, func(string) string { return "" }))
	return r
}

// doing is a process that was started so long ago.
func doing(state byte, command string, ago time.Duration, listens []string, test string) orphans.Activity {
	a := orphans.Activity{CommandLine: command, CPU: 1500 * ms}
	a.Pid, a.Parent, a.State, a.Start = 4711, 4710, state, max(calls.Uptime()-ago, 1)
	a.Listens, a.Variables = listens, map[string]string{"FINI_TEST": test}
	return a
}

func TestStillRunning(t *testing.T) {
	x := strings.Repeat("x", 500)
	for want, a := range map[string]orphans.Activity{
		"4711 (node server.js), for 12s, sleeping, listens on tcp 127.0.0.1:3000, started in test a::b": doing('S', "node server.js", 12*time.Second, []string{"127.0.0.1:3000"}, "a::b"),
		"4711 (make), for 2m2s, running": doing('R', "make", 2*time.Minute+2*time.Second, nil, ""),
		"4711 (a?::error b), disk sleep": {Process: orphans.Process{Pid: 4711, State: 'D'}, CommandLine: "a\n::error b", CPU: -1},
		"4711 (?)":                       {Process: orphans.Process{Pid: 4711, State: '?'}, CommandLine: "?", CPU: -1},
		"4711 (" + x[:141-10] + "...)":   {Process: orphans.Process{Pid: 4711}, CommandLine: x},
		"4711 (" + x[:58] + "...), started in test " + x[:52] + "...": {Process: orphans.Process{Pid: 4711}, CommandLine: x, Details: orphans.Details{Variables: map[string]string{"FINI_TEST": x}}},
		"4711 (" + x[:17] + "...), listens on tcp [::1]:1 and " + x[:37] + "... and 1 more, started in test " + x[:13] + "...": {Process: orphans.Process{Pid: 4711}, CommandLine: x,
			Details: orphans.Details{Listens: []string{"[::1]:1", x, x}, Variables: map[string]string{"FINI_TEST": x}}},
	} {
		got := surveyed(0, a).StillRunning(141)
		check.Equal(t, "the lines", got, []string{want})
		if len(got[0]) > 141 {
			t.Errorf("%d bytes: %q", len(got[0]), got[0])
		}
	}
	many := make([]orphans.Activity, 100)
	check.Equal(t, "how many lines", len(surveyed(0, many[:10]...).StillRunning(100)), 10)
	lines := surveyed(7, many...).StillRunning(100)
	check.Equal(t, "how many lines", len(lines), 10)
	check.Equal(t, "the last one", lines[9], "98 more processes")
	check.Equal(t, "the lines of none", len(surveyed(0).StillRunning(100)), 0)
}

// What is read later, for a stop of fini's own, is in the place of what was read before.
func TestReportOfWhatRuns(t *testing.T) {
	r := newTestReport(t)
	owners := NewOwners(nil, func(string) string { return "" })
	r.SetRunning([]orphans.Activity{doing('S', "before", 0, nil, ""), doing('S', "before", 0, nil, "")}, 3, owners)
	r.SetRunning([]orphans.Activity{doing('S', "node\n\xff", time.Second, []string{"@a"}, "x"), {Process: orphans.Process{Pid: 7, State: '?'}, CPU: -1}}, 1, owners)
	whole, _ := written(t, r)
	running := whole["running"].([]any)
	check.Equal(t, "how many", len(running), 2)
	first := running[0].(map[string]any)
	mustHave(t, first, `"pid":4711,"parent":4710,"command":"node\n\ufffd","commandCut":false,"cpuSeconds":1.5,"state":"sleeping","listens":["@a"],"context":[{"variable":"FINI_TEST","value":"x"}]`)
	if age := first["ageSeconds"].(float64); age < 1 {
		t.Errorf("its age is %v", age)
	}
	mustHave(t, running[1].(map[string]any), `"pid":7,"ageSeconds":null,"cpuSeconds":null,"state":null,"listens":null,"context":null`)
	mustHave(t, whole, `"runningOmitted":1`)
}

// GitHub shows the same lines. What is left of a command that was stopped is no leak of a test.
func TestStoppedOnGitHub(t *testing.T) {
	a, b := doing('S', "node `a` | <b>\n::error", time.Second, nil, "tests/x.py::y"), doing('S', "make", time.Second, nil, "")
	r := surveyed(0, a, b)
	r.isStopped = true
	const what = "The command was stopped: --timeout=3s has passed"
	const said = what + ". Still running then. See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#if-a-step-hangs"
	check.Equal(t, "the lines", r.RunningAnnotations(what), []string{
		"::error title=fini,file=tests/x.py::" + said + "%0A4711 (node `a` | <b>?::error), for 1s, sleeping, started in test tests/x.py::y\n",
		"::error title=fini::" + said + "%0A4711 (make), for 1s, sleeping\n",
	})
	text := r.RunningSummary(what)
	if strings.ContainsAny(text, "`<>") {
		t.Errorf("%s", text)
	}
	_, rows, _ := strings.Cut(text, "\n\n| still running |\n| --- |\n")
	check.Equal(t, "the rows", html.UnescapeString(strings.ReplaceAll(rows, "|", "¦")),
		"¦ 4711 (node `a` | <b>?::error), for 1s, sleeping, started in test tests/x.py::y ¦\n¦ 4711 (make), for 1s, sleeping ¦\n\n")

	r.AddLeftover(holder, "left", Lineage{}, "", false, sent(), "204 (left)")
	check.Equal(t, "of a leftover", r.Annotations("warning", "It left 1 (below)"), []string{
		"::warning title=fini::It left 1 (below). See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#which-test-leaks%0A204 (left)\n"})
}
