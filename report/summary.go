package report

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
)

// Unwritten is a report that is kept for its summary alone, and is written nowhere.
func Unwritten() *Report {
	return &Report{seen: map[orphans.ID]struct{}{}, place: Place{FD: -1, to: nowhere{}}}
}

// Lists reports whether the report will be written, and so lists leftovers beyond those that fini says a
// line of.
func (r *Report) Lists() bool { return r != nil && r.place.FD >= 0 }

// A nowhere is no place.
type nowhere struct{}

func (nowhere) write([]byte) error { return nil }

// A summary has so many rows, and so many bytes of what a tree has chosen in each cell.
const (
	maxRows = 20
	maxCell = 200
)

// Summary is a table of the leftovers in Markdown, as GitHub shows it under a step: who, of which
// test, on which ports, and how it ended; "" for none. The title is of so many.
func (r *Report) Summary(title string, of int) string {
	if r == nil || len(r.is.Leftovers) == 0 {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "### fini: %s\n\n", inMarkdown(title))
	text.WriteString("| leftover | started by | started in | listens on | ended |\n| --- | --- | --- | --- | --- |\n")
	rows := 0
	for _, left := range r.is.Leftovers {
		if left.Allowed {
			continue
		}
		if rows++; rows > maxRows {
			break
		}
		owner := ""
		if left.Owner != nil {
			owner = fmt.Sprintf("%s (%d)", left.Owner.Command, left.Owner.Pid)
		}
		ended := "is still running"
		if left.Ended != nil {
			ended = *left.Ended
		}
		cells := []string{fmt.Sprintf("%s (%d)", cut(left.Command), left.Pid), cut(owner), cut(left.during), cut(strings.Join(left.Listens, " ")), ended}
		for i := range cells {
			cells[i] = inMarkdown(cells[i])
		}
		fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | "))
	}
	if more := of - maxRows; more > 0 && rows > maxRows {
		fmt.Fprintf(&text, "\nAnd %d more.\n", more)
	}
	text.WriteString("\n")
	return text.String()
}

func cut(text string) string {
	text, isCut := firstBytes(text, maxCell)
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
	err := withoutSignals(func() error { return appendTo(path, []byte(text)) })
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
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return wrongKind(st.Mode)
	}
	if st.Nlink > 1 {
		return fmt.Errorf("it has %d names", st.Nlink)
	}
	return writeWhole(fd, text)
}
