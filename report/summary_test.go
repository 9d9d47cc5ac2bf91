package report

import (
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

// cells are those of the rows of a table in Markdown, as a reader sees them.
func cells(t *testing.T, text string) (rows [][]string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line, ok := strings.CutPrefix(line, "| "); ok && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "leftover") {
			cells := strings.Split(strings.TrimSuffix(line, " |\n"), " | ")
			for i := range cells {
				cells[i] = html.UnescapeString(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

func TestSummary(t *testing.T) {
	r := Unwritten()
	if text := r.Summary("none", 0); text != "" {
		t.Errorf("of none: %q", text)
	}
	from := Lineage{
		Owner: &Owner{Ancestor{10, "npm"}, "npm test"}, During: "test x.py::y",
		At: orphans.Details{Listens: []string{"127.0.0.1:3000", "/run/a|b"}},
	}
	r.Leftover(holder, "node `a` | <b> *c* @d\n![e](f)", from, false)
	r.Leftover(member, "member", Lineage{}, false)
	r.Leftover(process(300, 1, "stays"), "stays", Lineage{}, false)
	r.Allowed(process(300, 1, "stays"))
	r.Reaped([]reaper.Exit{{Pid: holder.Pid, Status: signaled(syscall.SIGTERM)}}, mainPid)
	text := r.Summary("stopped 2 leftovers", 2)
	want := [][]string{
		{"node `a` | <b> *c* @d?![e](f) (204)", "npm test (10)", "test x.py::y", "127.0.0.1:3000 /run/a|b", "SIGTERM"},
		{"member (201)", "", "", "", "is still running"},
	}
	if got := cells(t, text); len(got) != 2 || !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
		t.Errorf("%q from %s, want %q", got, text, want)
	}
	if !strings.HasPrefix(text, "### fini: stopped 2 leftovers\n\n| ") || strings.ContainsAny(text, "`<>*@![]") {
		t.Errorf("%s", text)
	}
	if err := r.Write(0); err != nil {
		t.Error(err)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	r := Unwritten()
	long := strings.Repeat("|", 100_000)
	at := orphans.Details{Listens: slices.Repeat([]string{long[:108]}, 16)}
	for i := range 1000 {
		r.Leftover(process(1000+i, 1, "left"), long, Lineage{During: long[:600], Owner: &Owner{Ancestor{1, "x"}, long[:maxText]}, At: at}, false)
	}
	text := r.Summary("stopped 1000 leftovers", 1000)
	if got := len(cells(t, text)); got != maxRows || len(text) > 256<<10 || !strings.HasSuffix(text, "\nAnd 980 more.\n\n") {
		t.Errorf("%d rows, %d bytes, ends in %q", got, len(text), text[len(text)-30:])
	}
}

func TestAppendSummary(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	made := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	made(os.WriteFile(in("file"), []byte("before\n"), 0o600))
	made(os.WriteFile(in("victim"), []byte("secret\n"), 0o600))
	made(os.WriteFile(in("twice"), nil, 0o600))
	made(os.Link(in("twice"), in("again")))
	made(os.Symlink("victim", in("link")))
	made(os.Symlink(dir, in("linked")))
	made(unix.Mkfifo(in("fifo"), 0o600))
	if err := AppendSummary(in("file"), "table\n"); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(in("file")); string(text) != "before\ntable\n" {
		t.Errorf("the file has %q", text)
	}
	refused := []string{in("link"), in("twice"), in("fifo"), in("none"), dir, "file", "/dev/null", ""}
	if os.Geteuid() == 0 {
		refused = append(refused, in("linked/victim"))
	}
	for _, path := range refused {
		if err := AppendSummary(path, "table\n"); err == nil || !strings.Contains(err.Error(), "cannot write the step's summary to ") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if text, _ := os.ReadFile(in("victim")); string(text) != "secret\n" {
		t.Errorf("the victim has %q", text)
	}
	if _, err := os.Stat(in("none")); err == nil {
		t.Error("a file was made")
	}
}

// What a leftover listens on is looked at before anybody is sent a signal, for all that one look has found,
