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

// The limits of a summary: its rows, and the bytes of a leak's command line or file. An annotation has to fit into one
// write to a pipe, even if each of its bytes becomes three: see PIPE_BUF in pipe(7).
const (
	maxRows       = 20
	maxCell       = 200
	maxAnnotation = 1200
)

// who adds to the text about a leak how many other leftovers it has started.
func (l *leftover) who(text string) string {
	if l.below > 0 {
		text += " and " + Processes(l.below) + " that it started"
	}
	return text
}

// Processes is a number of processes in words.
func Processes(count int) string {
	if count == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", count)
}

// leaks are copies of the leftovers that no other leftover has started, without leftovers that --allow-orphan or
// --orphans=pipes leaves alone. A leak also gets the test and the ports of the leftovers below it.
func (r *Report) leaks() (all []*leftover) {
	found := map[int]*leftover{} // of two with one pid, what was started is the later one's
	copies := make([]leftover, len(r.leftovers))
	for i, left := range r.leftovers {
		if copies[i] = *left; !left.mayStay() {
			found[left.Pid] = &copies[i]
		}
	}
	for i, left := range r.leftovers {
		l := &copies[i]
		top := l
		for _, a := range left.Chain { // the nearest first
			top = cmp.Or(found[a.Pid], top)
		}
		switch {
		case left.mayStay():
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

func (l *leftover) mayStay() bool { return l.Allowed || l.spared == any("pipes") }

// remedy tells the reader of a CI page how to fix the step. Such a reader may not know fini. If fini has stopped the command,
// the leftovers are no leak.
func (r *Report) remedy(all []*leftover) (text string) {
	if !r.isStopped {
		text = ". End them in the test's teardown, or allow them by --allow-orphan=NAME"
		if slices.ContainsFunc(all, func(l *leftover) bool { return l.During == "" }) {
			text += ". If a test sets FINI_TEST in its environment, its leak is named by that"
		}
	}
	return text + seeGuide("which-test-leaks")
}

// Annotations are the lines that make GitHub's runner mark a step: one line for the leaks of each test file, and one line
// for the leaks without a known file. Each line begins with the text what, a sentence without its full stop.
func (r *Report) Annotations(level, what string) []string {
	leaks := r.leaks()
	var all []entry
	for _, l := range leaks[:min(len(leaks), maxRows)] {
		all = append(all, entry{l.who(l.line), l.During})
	}
	return annotations(level, what, r.remedy(leaks), all)
}

// An entry is what an annotation says about one process, and its test.
type entry struct{ line, during string }

func annotations(level, what, remedy string, all []entry) (lines []string) {
	texts := map[string]string{}
	var files []string
	for _, e := range all {
		file := testFile(e.during)
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		texts[file] += "\n" + e.line
	}
	if len(files) > 1 {
		what = strings.Replace(what, " (below)", "", 1) // each line lists some of them
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

// testFile is the file of a test, if the test's name contains it: pytest's names are FILE::NAME.
func testFile(test string) string {
	file, _, isPath := strings.Cut(strings.TrimPrefix(test, "test "), "::")
	if !isPath || filepath.Ext(file) == "" || strings.ContainsFunc(file, unicode.IsSpace) {
		return ""
	}
	return OneLine(file, maxCell)
}

// Summary is a table of the leaks in Markdown, which GitHub shows under a step. It is "" without leaks.
func (r *Report) Summary(what string) string {
	all := r.leaks()
	if len(all) == 0 {
		return ""
	}
	text := "### fini\n\n" + what + r.remedy(all) + "\n\n| leftover | ended |\n| --- | --- |\n"
	shown := all[:min(len(all), maxRows)]
	for _, l := range shown {
		who := l.who(fmt.Sprintf("%d (%s)", l.Pid, OneLine(l.command, maxCell))) + startedBy(l.Lineage) + whereIs(l.At)
		text += "| " + inMarkdown(who) + " | " + inMarkdown(fmt.Sprint(cmp.Or(l.ended, any("is still running")))) + " |\n"
	}
	if more := len(all) - len(shown) + r.moreLeftovers; more > 0 {
		text += fmt.Sprintf("\nAnd %d more.\n", more)
	}
	return text + "\n"
}

// inMarkdown is text without Markdown markup: punctuation of ASCII that never means anything in Markdown
// stays, and all other punctuation is written as a number, which is no markup.
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

// AppendSummary appends a summary to the file that the CI has made for it. The path is this process's
// own, but the tree may be able to change the file at the path. See package files.
func AppendSummary(path, text string) error {
	err := files.Quietly(func() error {
		if !filepath.IsAbs(path) { // this process has left the working directory
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
