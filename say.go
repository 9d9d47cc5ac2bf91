package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/entry"
	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/report"
	"github.com/seed-126c5d8a/fini/signals"
)

// logger writes lines to standard error. What fini has to say during a life goes nowhere else, but for
// --report and the summary of a CI step.
type logger struct{ threshold life.Level }

// sayf writes one line, whatever the text holds, if the level is wanted. A line
// that can't be written at once is lost: fini waits for no reader.
func (s logger) sayf(l life.Level, format string, args ...any) {
	if l > s.threshold {
		return
	}
	line := "fini: " + report.OneLine(fmt.Sprintf(format, args...), maxLine)
	if coloured() {
		line = [...]string{life.Failure: red, life.Warning: yellow, life.Detail: uncoloured}[l] + line + uncoloured
	}
	signals.SayLine([]byte(line + "\n"))
}

const red, yellow, uncoloured = "\x1b[31m", "\x1b[33m", "\x1b[m"

// coloured reports whether lines go to a terminal whose user has nothing against colour. See
// no-color.org.
func coloured() bool {
	return entry.Getenv("NO_COLOR") == "" && entry.Getenv("TERM") != "dumb" && terminalWidth() > 0
}

// terminalWidth is that of standard error in columns, 0 if that is no terminal or one that
// does not say.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(2, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// lineWidth is how long a line about a leftover should be.
func lineWidth() int {
	if width := terminalWidth(); width > 0 {
		return width
	}
	return 200
}

// A line this long is written to a pipe as a whole. See PIPE_BUF in pipe(7).
const maxLine = 1024

// Say says a line.
func (l *loop) Say(level life.Level, text string) { l.sayf(level, "%s", text) }

// Because says what is being done to the command or its leftovers, and why.
func (l *loop) Because(level life.Level, what string, why life.Reason) {
	l.sayf(level, "%s: %s", what, l.because(why))
	l.report.Stopped(why.String())
}

// because is why the command is being stopped, and by which flag it would not be.
func (l *loop) because(why life.Reason) string {
	switch why {
	case life.ParentDied:
		return fmt.Sprintf("its parent%s has died; -p none keeps it", l.culprit(why))
	case life.FiniDied:
		return fmt.Sprintf("its fini%s was killed", l.culprit(why))
	case life.BoundEnded:
		return fmt.Sprintf("a process that it is bound to%s has ended (--bind)", l.culprit(why))
	case life.StdinClosed:
		return "its standard input has closed (--stdin-eof)"
	case life.TimedOut:
		return fmt.Sprintf("--timeout=%v is over", l.rules.Timeout)
	case life.NotEnded:
		return fmt.Sprintf("it has not ended %v after it was asked to (--kill-after)", l.rules.KillAfter)
	}
	return ""
}

// culprit names the process whose end is the reason, as " (name, pid)"; "" if it is not known.
func (l *loop) culprit(why life.Reason) string {
	for _, w := range l.bound {
		switch {
		case w.why != why || why == life.BoundEnded && !w.ended:
		case w.name == "": // it may have ended before it could be read
			return fmt.Sprintf(" (%d)", w.pid)
		default:
			return fmt.Sprintf(" (%s, %d)", report.OneLine(w.name, 16), w.pid)
		}
	}
	return ""
}

// Tell says what is being done about a leftover.
func (l *loop) Tell(p orphans.Process, what string, quietly, asked bool) {
	silent := quietly || l.threshold < life.Warning
	if silent && !l.report.Lists() {
		return
	}
	if l.report == nil && onGitHub() && stepSummary() != "" {
		l.report = report.Unwritten()
	}
	from := l.owners.Of(p)
	l.report.Leftover(p, l.tree.CommandLine(p), from, asked)
	if silent {
		return
	}
	if len(l.told) == 0 && l.threshold >= life.Detail {
		l.sayf(life.Detail, "the command has ended and left running:")
		for _, line := range report.Draw(l.found, l.tree.CommandLine) {
			l.sayf(life.Detail, "%s", line)
		}
	}
	text := report.Describe(p, l.tree.CommandLine(p), session(), from, lineWidth()-len("fini: stopping leftover "))
	l.sayf(life.Warning, "%s leftover %s", what, text)
	if what != "killing" { // those that count were told of when they were asked to end
		l.told = append(l.told, text)
	}
}

// Leave says that a leftover is left alone, and what that means for a reader.
func (l *loop) Leave(p orphans.Process, quietly bool) {
	if l.report != nil {
		l.report.Leftover(p, l.tree.CommandLine(p), l.owners.Of(p), false)
		l.report.Allowed(p)
	}
	if quietly || l.threshold < life.Warning {
		return
	}
	who := fmt.Sprintf("leftover %d (%s)", p.Pid, report.OneLine(l.tree.CommandLine(p), lineWidth()))
	if held := report.Held(p.Holds); held != "" {
		l.sayf(life.Warning, "leaving %s alone, which holds %s: a reader waits until it closes that (--allow-orphan)", who, held)
	} else {
		l.sayf(life.Detail, "leaving %s alone (--allow-orphan)", who)
	}
}

// close is the last that fini has to say.
func (l *loop) close(end life.End) {
	if end.Stopped+end.Left > 0 && l.threshold >= life.Warning && onGitHub() {
		l.annotate(end.Leaks, l.told)
		if path, text := stepSummary(), l.report.Summary(inWords(end.Leaks), end.Stopped+end.Left); path != "" && text != "" {
			l.failed(report.AppendSummary(path, text))
		}
	}
	l.failed(l.report.Write(end.Status()))
	l.sayEnd(end)
}

// sayEnd says how fini ends, and when.
func (l *loop) sayEnd(end life.End) {
	how := fmt.Sprintf("with status %d", end.Status())
	if end.Sig != 0 && (os.Getpid() != 1 || l.isolated) {
		how = "by " + signals.Name(end.Sig)
	}
	since := func(then time.Duration) time.Duration { return (then - l.begun).Round(time.Millisecond) }
	var command string
	if l.ended > 0 {
		command = fmt.Sprintf("; the command ended after %v", since(l.ended))
	}
	l.sayf(life.Detail, "ending %s, after %v%s", how, since(signals.Uptime()), command)
}

// annotate marks a step of GitHub's CI: the line is a workflow command to its runner.
func (s logger) annotate(leaks life.Leaks, told []string) {
	level := "warning"
	if leaks.Decided {
		level = "error"
	}
	text := inWords(leaks) + ": " + strings.Join(told, "; ")
	text = strings.ReplaceAll(report.OneLine(text, maxLine), "%", "%25")
	signals.SayLine([]byte("::" + level + " title=fini::" + text + "\n"))
}

// inWords is how many leftovers there were, and what became of them.
func inWords(leaks life.Leaks) string {
	if leaks.Left > 0 {
		return "left running " + life.Leftovers(leaks.Left)
	}
	return "stopped " + life.Leftovers(leaks.Stopped)
}

// onGitHub reports whether this is a step of GitHub's CI.
func onGitHub() bool { return entry.Getenv("GITHUB_ACTIONS") == "true" }

// stepSummary is the file whose text is shown under that step, "" for none.
func stepSummary() string { return entry.Getenv("GITHUB_STEP_SUMMARY") }

// session is that of this process.
func session() int {
	id, _ := unix.Getsid(0)
	return id
}
