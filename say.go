package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// logger writes lines to standard error. During a life fini writes messages nowhere else, except to --report and the
// summary of a CI step.
type logger struct{ threshold life.Level }

// sayf writes one line, whatever the text holds, if the level is wanted. A line that can't be written at once is lost:
// fini waits for no reader.
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

// coloured reports whether lines go to a terminal whose user has nothing against colour. See no-color.org.
func coloured() bool {
	return entry.Getenv("NO_COLOR") == "" && entry.Getenv("TERM") != "dumb" && terminalWidth() > 0
}

// terminalWidth is the width of standard error in columns, 0 if standard error is no terminal or the terminal does not
// say.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(2, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// A pipe takes a line of this length as a whole. See PIPE_BUF in pipe(7).
const maxLine = 1024

// Say says a line. A reason is why fini stops or kills the command or its leftovers.
func (l *loop) Say(level life.Level, text string, why life.Reason) {
	if why == life.NoReason {
		l.sayf(level, "%s", text)
		return
	}
	l.sayf(level, "%s: %s", text, l.because(why))
	l.report.Stopped(why.String())
}

// because returns why fini stops the command, with the flag, if any, that asked for this stop or that prevents it.
func (l *loop) because(why life.Reason) string {
	switch why {
	case life.ParentDied:
		return fmt.Sprintf("its parent%s has died; -p none keeps it", l.culprit(why))
	case life.FiniDied:
		return fmt.Sprintf("the outer fini%s was killed", l.culprit(why))
	case life.BoundEnded:
		return fmt.Sprintf("a process of --bind%s exited", l.culprit(why))
	case life.StdinClosed:
		return "standard input has closed (--stdin-eof)"
	case life.TimedOut:
		return fmt.Sprintf("--timeout=%v has passed", l.rules.Timeout)
	case life.NotEnded:
		return fmt.Sprintf("the command did not exit within %v of the signal (--kill-after)", l.rules.KillAfter)
	}
	return ""
}

// culprit names the process whose exit is the reason, as " (name, pid)"; "" if the process is not known.
func (l *loop) culprit(why life.Reason) string {
	for _, w := range l.bonds {
		if w.why == why && (w.ended || why != life.BoundEnded) {
			// The process may have exited before fini could read its name.
			return fmt.Sprintf(" (%s, %d)", report.OneLine(cmp.Or(w.name, "?"), 16), w.pid)
		}
	}
	return ""
}

// Tell says what fini does about a leftover. A line about a leftover of --allow-orphan matters if a reader waits for that
// leftover. The exit of PID 1 kills the whole tree, so under PID 1 no reader waits for a leftover.
func (l *loop) Tell(p orphans.Process, what string, quietly, hadTerm bool) {
	shown, level, why := p, life.Warning, ""
	if os.Getpid() == 1 && l.line.FD < 0 {
		shown.Holds = 0
	}
	if held := report.Held(shown.Holds); p.Allowed && held != "" {
		why = " (--allow-orphan): a reader waits until this leftover closes " + held
	} else if p.Allowed {
		level, why = life.Detail, " (--allow-orphan)"
	}
	silent := quietly || l.threshold < level
	if silent && !l.report.Lists() {
		return
	}
	from, commandLine := l.owners.Of(p), l.tree.CommandLine(p)
	session, _ := unix.Getsid(0)
	width := cmp.Or(terminalWidth(), 200) - len("fini: stopping leftover ")
	line := report.Describe(shown, commandLine, session, from, width)
	l.report.Leftover(p, commandLine, from, hadTerm, line)
	if !silent {
		l.sayf(level, "%s leftover %s%s", what, line, why)
	}
}

// close writes what fini says last.
func (l *loop) close(end life.End) {
	if end.Count > 0 && l.threshold >= life.Warning && entry.Getenv("GITHUB_ACTIONS") == "true" {
		l.failed(l.tellGitHub(end.Leaks))
	}
	l.failed(l.report.Write(end.Status()))
	l.sayEnd(end)
}

// sayEnd says how fini ends, and when.
func (l *loop) sayEnd(end life.End) {
	how := fmt.Sprintf("exiting with status %d", end.Status())
	if end.Sig != 0 && (os.Getpid() != 1 || l.isolated) {
		how = "dying by " + signals.Name(end.Sig)
	}
	since := func(then time.Duration) time.Duration { return (then - l.begun).Round(time.Millisecond) }
	var command string
	if l.ended > 0 {
		command = fmt.Sprintf("; the command ran for %v", since(l.ended))
	}
	l.sayf(life.Detail, "%s, after %v%s", how, since(signals.Uptime()), command)
}

// tellGitHub marks the step of GitHub's CI, by lines that are commands to the runner, and adds to the step's summary.
func (l *loop) tellGitHub(leaks life.Leaks) error {
	level, what := "warning", "The command left %s running (below), and fini stopped what did not exit"
	switch {
	case leaks.Decided:
		level, what = "error", "The command succeeded, but left %s running (below), so this step fails (--orphans-exit)"
	case leaks.Left:
		what = "The command left %s running (below), and --orphans=leave stops nothing"
	}
	what = fmt.Sprintf(what, report.Processes(leaks.Count))
	for _, line := range l.report.Annotations(level, what) {
		signals.SayLine([]byte(line))
	}
	path, text := entry.Getenv("GITHUB_STEP_SUMMARY"), l.report.Summary(what)
	if path == "" || text == "" {
		return nil
	}
	return report.AppendSummary(path, text)
}
