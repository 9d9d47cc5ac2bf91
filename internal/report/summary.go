package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/files"
)

// maxRows limits the rows of a summary, and maxCell the bytes of a command line or file name. maxAnnotation leaves room
// for escapes of three bytes each, because an annotation must be written to a pipe in one piece. See PIPE_BUF in
// pipe(7).
const (
	maxRows       = 20
	maxCell       = 200
	maxAnnotation = 1200
)

// withStarted adds the number of leaked processes that this leftover has started to a text about it.
func (l *leftover) withStarted(text string) string {
	if l.below > 0 {
		text += " and " + Processes(l.below) + " that it started"
	}
	return text
}

// Processes returns a number of processes in words.
func Processes(count int) string {
	if count == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", count)
}

// leaks returns copies of the leaks that no other leak has started. They include the ports and the test of leaks below.
// Leftovers that --allow-orphan or --orphans=pipes spares are not leaks.
func (r *Report) leaks() (all []*leftover) {
	found := map[int]*leftover{} // if a pid was reused, keep the later process
	copies := make([]leftover, len(r.leftovers))
	for i, left := range r.leftovers {
		if copies[i] = *left; !left.isSpared() {
			found[left.Pid] = &copies[i]
		}
	}
	for i, left := range r.leftovers {
		l := &copies[i]
		top := l
		for _, a := range left.Chain { // nearest first
			top = cmp.Or(found[a.Pid], top)
		}
		switch {
		case left.isSpared():
		case top == l:
			all = append(all, l)
		default:
			top.below++
			top.During = cmp.Or(top.During, left.During)
			top.At.Listens = slices.Concat(top.At.Listens, left.At.Listens)
		}
	}
	return all
}

func (l *leftover) isSpared() bool { return l.Allowed || l.spared == any("pipes") }

// remedy tells readers of a CI page how to fix the step, because they may not know fini. There is nothing to fix if
// fini stopped the command, because its leftovers are then expected.
func (r *Report) remedy(all []*leftover) (text string) {
	if !r.isStopped {
		text = ". End them in the test's teardown, or allow them by --allow-orphan=NAME"
		if slices.ContainsFunc(all, func(l *leftover) bool { return l.During == "" }) {
			text += ". If a test sets FINI_TEST in its environment, its leak is named by that"
		}
	}
	return text + seeGuide("which-test-leaks")
}

// Annotations returns the lines with which GitHub's runner annotates a step. There is one line for each test file that
// has leaks, and one for all other leaks. Each begins with the sentence in what, which has no full stop.
func (r *Report) Annotations(level, what string) []string {
	leaks := r.leaks()
	var all []entry
	for _, l := range leaks[:min(len(leaks), maxRows)] {
		all = append(all, entry{l.withStarted(l.text), l.During})
	}
	return annotations(level, what, r.remedy(leaks), all)
}

// An entry contains a line about a process, and the name of the test that started the process.
type entry struct{ text, during string }

func annotations(level, what, remedy string, all []entry) (lines []string) {
	texts := map[string]string{}
	var files []string
	for _, e := range all {
		file := testFile(e.during)
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		texts[file] += "\n" + e.text
	}
	if len(files) > 1 {
		what = strings.Replace(what, " (below)", "", 1) // each annotation lists only some of them
	}
	for _, file := range files {
		title := "title=fini"
		if file != "" {
			title += ",file=" + strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(file)
		}
		text := cut(what+remedy+texts[file], maxAnnotation)
		lines = append(lines, "::"+level+" "+title+"::"+strings.NewReplacer("%", "%25", "\n", "%0A").Replace(text)+"\n")
	}
	return lines
}

// testFile returns the file name in the name of a test, or "". Only pytest's names contain one, as in FILE::NAME.
func testFile(test string) string {
	file, _, isPath := strings.Cut(strings.TrimPrefix(test, "test "), "::")
	if !isPath || filepath.Ext(file) == "" || strings.ContainsFunc(file, unicode.IsSpace) {
		return ""
	}
	return OneLine(file, maxCell)
}

// Summary returns a Markdown table of the leaks for GitHub's step summary, or "" if there are none.
func (r *Report) Summary(what string) string {
	all := r.leaks()
	if len(all) == 0 {
		return ""
	}
	text := "### fini\n\n" + what + r.remedy(all) + "\n\n| leftover | ended |\n| --- | --- |\n"
	shown := all[:min(len(all), maxRows)]
	for _, l := range shown {
		who := l.withStarted(fmt.Sprintf("%d (%s)", l.Pid, OneLine(l.command, maxCell))) + startedBy(l.Lineage) +
			whereIs(l.At)
		text += "| " + inMarkdown(who) + " | " + inMarkdown(fmt.Sprint(cmp.Or(l.ended, any("is still running")))) + " |\n"
	}
	if more := len(all) - len(shown) + r.moreLeaks; more > 0 {
		text += fmt.Sprintf("\nAnd %d more.\n", more)
	}
	return text + "\n"
}

// inMarkdown escapes text for Markdown. It replaces ASCII punctuation with numeric character references, except for a
// few characters that never have a special meaning.
func inMarkdown(text string) string {
	var out strings.Builder
	for _, c := range text {
		if c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" ,./=()-", c) {
			fmt.Fprintf(&out, "&#%d;", c)
		} else {
			out.WriteRune(c)
		}
	}
	return out.String()
}

// AppendSummary appends text to the step summary, a file that the CI has created. path comes from fini's environment,
// but the tree may have replaced the file. See package files.
func AppendSummary(path, text string) error {
	err := files.Quietly(func() error {
		if !filepath.IsAbs(path) { // this process has left the working directory, so a relative path is useless
			return unix.ENOENT
		}
		fd, err := files.Open(path, unix.O_WRONLY|unix.O_APPEND, wrongFile)
		if err != nil {
			return err
		}
		return cmp.Or(writeAll(fd, []byte(text)), unix.Close(fd))
	})
	if err != nil {
		return fmt.Errorf("cannot write the step's summary to %q: %w", path, err)
	}
	return nil
}
