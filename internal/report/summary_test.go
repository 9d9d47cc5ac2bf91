package report

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/reaper"
)

// table is the table of a summary as its reader sees it. ¦ is the edge of a cell, and | a character in a cell.
func table(text string) string {
	_, rows, _ := strings.Cut(text, "| leftover | ended |\n| --- | --- |\n")
	return html.UnescapeString(strings.ReplaceAll(rows, "|", "¦"))
}

func TestSummary(t *testing.T) {
	r := &Report{Pid: mainPid}
	check.Equal(t, "of none", r.Summary("none"), "")
	from := Lineage{During: "test x.py::y", At: orphans.Details{Listens: []string{"127.0.0.1:3000", "/run/a|b"}}}
	r.AddLeftover(holder, "node `a` | <b> *c* @d\n![e](f)", from, "", false, sent(), "")
	r.AddLeftover(member, "member", Lineage{}, "", false, sent(), "")
	stays := process(300, 1, "stays")
	stays.Allowed = true
	r.AddLeftover(stays, "stays", Lineage{}, "allow-orphan", false, sent(), "")
	r.AddLeftover(process(301, 1, "holds neither stream"), "may stay", Lineage{}, "pipes", false, sent(), "")
	r.AddExit(reaper.Exit{Pid: holder.Pid, Status: signaled(syscall.SIGTERM)})
	text := r.Summary("It left 2 processes running")
	const want = "¦ 204 (node `a` | <b> *c* @d?![e](f)), started in test x.py::y, listens on tcp 127.0.0.1:3000 and /run/a|b ¦ SIGTERM ¦\n" +
		"¦ 201 (member) ¦ is still running ¦\n\n"
	const explained = "### fini\n\nIt left 2 processes running. End them in the test's teardown, or allow them by --allow-orphan=NAME. " +
		"If a test sets FINI_TEST in its environment, its leak is named by that. See https://"
	check.Equal(t, text, table(text), want)
	if !strings.HasPrefix(text, explained) || strings.ContainsAny(text, "`<>*@![]") {
		t.Errorf("%s", text)
	}
	check.Equal(t, "what has failed", len(r.Write(0)), 0)
}

// What a leftover started itself is counted below it, with its test and its ports.
func TestSummaryOfFamilies(t *testing.T) {
	r := &Report{Pid: mainPid}
	command := Ancestor{mainPid, "make"}
	by := func(chain ...Ancestor) Lineage {
		return Lineage{Chain: append(chain, command), Owner: &Owner{command, "make test"}}
	}
	npm, node := Ancestor{300, "npm"}, Ancestor{301, "node"}
	worker := by(node, npm)
	worker.At.Listens = []string{"127.0.0.1:3000"}
	top := by()
	top.At.Listens = []string{"127.0.0.1:80"}
	// The look finds them in any order.
	r.AddLeftover(process(302, 301, "worker"), "worker", worker, "", false, sent(), "")
	r.AddLeftover(process(300, mainPid, "npm"), "npm run dev", top, "", false, sent(), "")
	r.AddLeftover(process(301, 300, "node"), "node server.js", by(npm), "", false, sent(), "")
	r.AddLeftover(process(400, mainPid, "redis"), "redis", by(), "", false, sent(), "")
	r.AddLeftover(process(401, 400, "child"), "child", by(Ancestor{400, "redis"}), "", false, sent(), "")
	// One whose parent is left alone is a leak of its own.
	daemon := process(500, mainPid, "daemon")
	daemon.Allowed = true
	r.AddLeftover(daemon, "daemon", by(), "", false, sent(), "")
	r.AddLeftover(process(501, 500, "job"), "job", by(Ancestor{500, "daemon"}), "", false, sent(), "")
	// The kernel has used a pid twice.
	r.AddExit(reaper.Exit{Pid: 400, Status: exited(7)})
	again := process(400, mainPid, "again")
	again.Start = 1
	r.AddLeftover(again, "again", by(), "", false, sent(), "")
	text := r.Summary("It left 7 processes running")
	check.Equal(t, text, table(text), `
¦ 300 (npm run dev) and 2 processes that it started, started by 100 (make test), listens on tcp 127.0.0.1:80 and tcp 127.0.0.1:3000 ¦ is still running ¦
¦ 400 (redis), started by 100 (make test) ¦ exit 7 ¦
¦ 501 (job), started by daemon < 100 (make test) ¦ is still running ¦
¦ 400 (again) and 1 process that it started, started by 100 (make test) ¦ is still running ¦

`[1:])
}

func TestAnnotations(t *testing.T) {
	r := &Report{Pid: mainPid}
	tell := func(pid int, line, during string) {
		r.AddLeftover(process(pid, 1, "left"), "left", Lineage{During: during}, "", false, sent(), line)
	}
	tell(300, "300 (100% left)", "test tests/x.py::y (call)")
	tell(301, "301 (left)", "test TestCheckout/100%")
	tell(302, "302 (left)", "test tests/x.py::z (call)")
	const remedied = ". End them in the test's teardown, or allow them by --allow-orphan=NAME. See https://github.com/seed-126c5d8a/fini/blob/main/docs/ci.md#which-test-leaks"
	want := []string{
		"::error title=fini,file=tests/x.py::It left 3" + remedied + "%0A300 (100%25 left)%0A302 (left)\n",
		"::error title=fini::It left 3" + remedied + "%0A301 (left)\n",
	}
	check.Equal(t, "the lines", r.Annotations("error", "It left 3 (below)"), want)
	for test, want := range map[string]string{
		"": "", "test x.py::y": "x.py", "test a/b.py::C::d[1] (call)": "a/b.py", "test module::case": "", "step 1.2": "",
		"test TestA/b.go": "", "test my tests/x.py::y": "", "test x\x1b.py::y": "x?.py",
	} {
		check.Equal(t, "the file of "+test, testFile(test), want)
	}
	for i := range 300 {
		tell(1000+i, strings.Repeat("%", 200), fmt.Sprintf("test %d.py::x", i))
	}
	lines := r.Annotations("error", "It left 303")
	if slices.ContainsFunc(lines, func(line string) bool { return len(line) > 4096 }) || len(lines) > maxRows {
		t.Errorf("%d lines, of which one is long: %q", len(lines), lines)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	r := &Report{Pid: mainPid}
	long := strings.Repeat("|", 100_000)
	at := orphans.Details{Listens: slices.Repeat([]string{long[:108]}, 16)}
	for i := range 1000 {
		r.AddLeftover(process(1000+i, 1, "left"), long, Lineage{During: long[:600], Owner: &Owner{Ancestor{1, "x"}, long[:maxText]}, At: at}, "", false, sent(), "")
	}
	text := r.Summary("It left 1000 processes running")
	if got := strings.Count(text, "is still running"); got != maxRows || len(text) > 256<<10 || !strings.HasSuffix(text, "\nAnd 980 more.\n\n") {
		t.Errorf("%d rows, %d bytes, ends in %q", got, len(text), text[len(text)-30:])
	}
}
