package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// Unwritten is a report that is kept for what the CI is told alone, and is written nowhere.
func Unwritten(mainPid int) *Report {
	r := &Report{seen: map[orphans.ID]struct{}{}, to: Place{FD: -1}}
	r.Started(mainPid)
	return r
}

// Lists reports whether the report will be written, and so lists leftovers beyond those that fini says a
// line of.
func (r *Report) Lists() bool { return r != nil && r.to.FD >= 0 }

// A summary has so many rows, and so many bytes of what a tree has chosen in each cell. An annotation is written to a
// pipe as a whole, even if each of its bytes becomes three: see PIPE_BUF in pipe(7).
const (
	maxRows       = 20
	maxCell       = 200
	maxAnnotation = 1200
)

// A leak is a leftover that none of the others has started, with what those below it add.
type leak struct {
	*leftover
	below   int
	during  string
	listens []string
}

// who names a leak in words.
func (l *leak) who(text string) string {
	switch l.below {
	case 0:
		return text
	case 1:
		return text + " and 1 process that it started"
	}
	return fmt.Sprintf("%s and %d processes that it started", text, l.below)
}

// leaks are those that were not left alone by --allow-orphan.
func (r *Report) leaks() (all []*leak) {
	if r == nil {
		return nil
	}
	listed, of := map[int]bool{}, map[int]*leak{}
	for _, left := range r.is.Leftovers {
		listed[left.Pid] = !left.Allowed
	}
	for _, left := range r.is.Leftovers {
		root := left.Pid
		for _, a := range left.StartedBy {
			if listed[a.Pid] {
				root = a.Pid // the last one is the farthest
			}
		}
		if left.Allowed {
			continue
		}
		l := of[root]
		if l == nil {
			l = &leak{below: -1}
			of[root] = l
			all = append(all, l)
		}
		if left.Pid == root || l.leftover == nil {
			l.leftover = left
		}
		l.below++
		l.during = cmp.Or(l.during, left.during)
		l.listens = append(l.listens, left.Listens...)
	}
	return all
}

// remedy is what a reader of a CI's page, who has never heard of fini, can do.
func remedy(all []*leak) string {
	text := ". End them in the test's teardown, or allow them by --allow-orphan=NAME."
	if slices.ContainsFunc(all, func(l *leak) bool { return l.during == "" }) {
		text += " If a test sets FINI_TEST in its environment, what it leaves is named by that."
	}
	return text + " See https://github.com/seed-126c5d8a/fini/blob/main/docs/recipes.md#which-test-leaks"
}

// Annotations are the lines by which GitHub's runner marks a step: one for the leaks of each test file, and one for those
// whose file is not known. The first begins with what has happened.
func (r *Report) Annotations(level, what string) (lines []string) {
	all := r.leaks()
	texts := map[string]string{}
	var files []string
	untold := 0
	for _, l := range all {
		if l.line == "" {
			untold++
			continue
		}
		file := testFile(l.during)
		if _, known := texts[file]; !known {
			files = append(files, file)
		}
		texts[file] += "\n" + l.who(l.line)
	}
	for i, file := range files {
		text := strings.TrimPrefix(texts[file], "\n")
		if i == 0 {
			text = what + remedy(all) + texts[file]
		}
		if untold > 0 && i == len(files)-1 {
			text += fmt.Sprintf("\nAnd %d more.", untold)
		}
		title := "title=fini"
		if file != "" {
			title += ",file=" + strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(file)
		}
		text = strings.NewReplacer("%", "%25", "\n", "%0A").Replace(cut(text, maxAnnotation))
		lines = append(lines, "::"+level+" "+title+"::"+text+"\n")
	}
	return lines
}

// testFile is the file that a test is in, as far as its name says so: pytest's are FILE::NAME.
func testFile(test string) string {
	file, _, isPath := strings.Cut(strings.TrimPrefix(test, "test "), "::")
	if !isPath || filepath.Ext(file) == "" || strings.ContainsFunc(file, unicode.IsSpace) {
		return ""
	}
	return OneLine(file, maxCell)
}

// Summary is a table of the leaks in Markdown, as GitHub shows it under a step: which process, of which
// test, on which ports, and how it ended; "" for none. A column is there if it says something.
func (r *Report) Summary(what string) string {
	all := r.leaks()
	if len(all) == 0 {
		return ""
	}
	columns := []string{"leftover", "started by", "started in", "listens on", "ended"}
	var rows [][]string
	for _, l := range all[:min(len(all), maxRows)] {
		owner := ""
		if l.Owner != nil && l.Owner.Pid != r.is.Pid { // else that is the command
			owner = cut(fmt.Sprintf("%s (%d)", l.Owner.Command, l.Owner.Pid), maxCell)
		}
		ended := "is still running"
		if l.Ended != nil {
			ended = *l.Ended
		}
		who := l.who(fmt.Sprintf("%s (%d)", cut(l.Command, maxCell), l.Pid))
		rows = append(rows, []string{who, owner, cut(l.during, maxCell), cut(strings.Join(l.listens, " "), maxCell), ended})
	}
	for i := len(columns) - 1; i > 0; i-- {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			columns = slices.Delete(columns, i, i+1)
			for j := range rows {
				rows[j] = slices.Delete(rows[j], i, i+1)
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "### fini\n\n%s%s\n\n| %s |\n|%s\n", what, remedy(all), strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for _, row := range rows {
		for i := range row {
			row[i] = inMarkdown(row[i])
		}
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
	}
	if more := len(all) - len(rows) + r.is.MoreLeftovers; more > 0 {
		fmt.Fprintf(&text, "\nAnd %d more.\n", more)
	}
	text.WriteString("\n")
	return text.String()
}

func cut(text string, limit int) string {
	text, isCut := firstBytes(text, limit)
	if isCut {
		text += "..."
	}
	return text
}

// inMarkdown is text that Markdown takes for nothing else: of ASCII's punctuation only what never means
// anything stays, and the rest is written as a number, which is no markup.
func inMarkdown(text string) string {
	var out strings.Builder
	for _, c := range text {
		switch {
		case !unicode.IsPrint(c):
			out.WriteByte('?')
		case c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" ,./=()-", c):
			fmt.Fprintf(&out, "&#%d;", c)
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}

// AppendSummary appends a summary to the file that the CI has made for it. The path is this process's
// own, but what it leads to may be the tree's to change: only a regular file is written, no link is
// followed to it, and by a privileged process none on the way there either.
func AppendSummary(path, text string) error {
	err := signals.Quietly(func() error { return appendTo(path, []byte(text)) })
	if err != nil {
		return fmt.Errorf("cannot write the step's summary to %q: %w", path, err)
	}
	return nil
}

func appendTo(path string, text []byte) error {
	if !filepath.IsAbs(path) { // the working directory was left
		return unix.ENOENT
	}
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC}
	var fd int
	var err error
	if unix.Geteuid() == 0 {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
		fd, err = unix.Openat2(unix.AT_FDCWD, path, &how)
	} else {
		fd, err = unix.Open(path, int(how.Flags), 0)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := wrongFile(&st); err != nil {
		return err
	}
	return writeAll(fd, text)
}
