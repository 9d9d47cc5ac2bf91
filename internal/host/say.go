package host

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/files"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/signals"
)

// A Logger writes messages to standard error. Besides them, fini writes only reports and CI summaries.
type Logger struct{ Threshold life.Level }

// Sayf writes a one-line message, unless its level is above the threshold. It never waits for a reader, so a message
// that can't be written immediately is lost.
func (s Logger) Sayf(level life.Level, format string, args ...any) {
	if level > s.Threshold {
		return
	}
	line := "fini: " + report.OneLine(fmt.Sprintf(format, args...), maxLine)
	if coloured() {
		line = [...]string{life.Always: red, life.Normal: yellow, life.Detail: uncoloured}[level] + line + uncoloured
	}
	files.SayLine([]byte(line + "\n"))
}

const red, yellow, uncoloured = "\x1b[31m", "\x1b[33m", "\x1b[m"

// coloured reports whether messages go to a terminal and colours are not disabled. See no-color.org.
func coloured() bool {
	return entry.Getenv("NO_COLOR") == "" && entry.Getenv("TERM") != "dumb" && terminalWidth() > 0
}

// terminalWidth returns the width of the terminal that standard error is connected to. It returns 0 if standard error
// is not a terminal, or if the width is unknown.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(2, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// maxLine is short enough for a pipe to take a line in one piece. See PIPE_BUF in pipe(7).
const maxLine = 1024

// Say writes a message. why, unless it is NoReason, is the reason why fini stops or kills something.
func (k *system) Say(level life.Level, text string, why life.Reason) {
	if why == life.NoReason {
		k.Sayf(level, "%s", text)
		return
	}
	k.isStopped = k.isStopped || k.ended == 0
	if k.ended == 0 && (why == life.TimedOut || why == life.WentIdle) {
		k.outOfTime = why
	}
	k.Sayf(level, "%s: %s", text, k.because(why))
}

// because returns a reason in words, together with the flag that asks for this stop or would have prevented it.
func (k *system) because(why life.Reason) string {
	switch why {
	case life.ParentDied:
		return fmt.Sprintf("fini's parent%s has died; -p none prevents this", k.culprit(why))
	case life.FiniDied:
		return fmt.Sprintf("the outer fini%s was killed", k.culprit(why))
	case life.BoundEnded:
		return fmt.Sprintf("a process of --bind%s exited", k.culprit(why))
	case life.StdinClosed:
		return "standard input has closed (--stdin-eof)"
	case life.TimedOut:
		return fmt.Sprintf("--timeout=%v has passed", k.rules.Timeout)
	case life.WentIdle:
		return fmt.Sprintf("no process with its standard input has read or written anything for %v (--idle)", k.rules.Idle)
	case life.NotEnded:
		return fmt.Sprintf("the command did not exit within %v of the signal (--kill-after)", k.rules.KillAfter)
	case life.OutOfTime:
		return fmt.Sprintf("the command did not exit in time for --stop-within=%v", k.rules.StopWithin)
	}
	return ""
}

// culprit returns the name and pid of the process whose exit is the reason, as " (name, pid)", or "" if it is not
// known.
func (k *system) culprit(why life.Reason) string {
	for _, w := range k.bonds {
		if w.why == why && (w.fd < 0 || why != life.BoundEnded) {
			// The name is unknown if the process exited too early.
			return fmt.Sprintf(" (%s, %d)", report.OneLine(cmp.Or(w.name, "?"), 16), w.pid)
		}
	}
	return ""
}

// Tell writes a message about what fini does with a leftover, and adds the leftover to the report. The message also
// warns that a spared leftover keeps readers of its output waiting. As PID 1 it doesn't, because the kernel kills
// everything when PID 1 exits. While the command runs, top is the orphan that the process is, or from which it
// descends.
func (k *system) Tell(p orphans.Process, what, spared string, quietly bool, top int, of *life.Record) {
	shown, level, kind, why := p, life.Normal, "leftover", ""
	if k.rules.Initial && top == 0 {
		shown.Holds = orphans.Holds(0)
	}
	switch held, _ := shown.Holds.Held(); {
	case spared == life.ByName && held != 0:
		why = " (--allow-orphan): a reader waits until this leftover closes " + report.Names(held)
	case spared == life.ByName:
		level, why = life.Detail, " (--allow-orphan)"
	case spared == life.StopPipes:
		level, why = life.Detail, " (--orphans=pipes)"
	case top != 0:
		kind, why = k.orphaned(p.Pid, top, what)
	}
	if what == "stopping" && k.rules.Orphans == life.StopPipes && shown.Holds == orphans.Holds(orphans.Stderr) {
		why += "; redirect stderr too to keep it" // as after `nohup cmd >log &`
	}
	silent := quietly || k.Threshold < level
	if silent && !k.report.Lists() {
		return
	}
	var from report.Lineage
	var commandLine, text string
	if !silent || !k.report.Full() { // further leftovers are only counted, so don't read their details
		from, commandLine = k.owners.Of(p), k.tree.CommandLine(p)
		width := cmp.Or(terminalWidth(), 200) - len("fini: stopping leftover ")
		text = report.Describe(shown, commandLine, k.self.Session, from, width)
	}
	k.report.AddLeftover(p, commandLine, from, spared, top != 0, of.Signals, text)
	if !silent {
		k.Sayf(level, "%s %s %s%s", what, kind, text, why)
	}
}

// orphaned returns the noun and the reason for a message about a process that --orphan-timeout stops.
func (k *system) orphaned(pid, top int, what string) (kind, why string) {
	switch {
	case what == "killing":
		return "orphan", fmt.Sprintf(": it did not exit within %v of SIGTERM (--orphans-grace)", k.rules.OrphansGrace)
	case pid != top:
		return "process", fmt.Sprintf(": it descends from orphan %d (--orphan-timeout)", top)
	case k.rules.Pause:
		return "orphan", fmt.Sprintf(": it has been a child of fini for at least %v (--orphan-timeout)",
			k.rules.OrphanTimeout)
	}
	return "orphan", fmt.Sprintf(": its parent exited at least %v ago (--orphan-timeout)", k.rules.OrphanTimeout)
}

// close writes the report and the last messages.
func (k *system) close(end life.End) {
	k.report.SetStopped(end.Why.String(), k.isStopped)
	if k.Threshold >= life.Normal && entry.Getenv("GITHUB_ACTIONS") == "true" {
		k.failed(k.tellGitHub(end.Leaks))
	}
	k.report.OutOfTime = k.because(k.outOfTime)
	k.writeReport(end.Status())
	k.sayEnd(end)
}

func (k *system) writeReport(status int) {
	for _, err := range k.report.Write(status) {
		k.failed(err)
	}
}

// sayEnd writes the message about how fini ends, and after what time.
func (k *system) sayEnd(end life.End) {
	how := fmt.Sprintf("exiting with status %d", end.Status())
	if end.Sig != 0 && !k.rules.Initial {
		how = "dying by " + signals.Name(end.Sig)
	}
	since := func(then time.Duration) time.Duration { return (then - k.begun).Round(time.Millisecond) }
	var command string
	if k.ended > 0 && k.report.Pid != 0 && k.self.Role != entry.Heir {
		command = fmt.Sprintf("; the command ran for %v", since(k.ended))
	}
	k.Sayf(life.Detail, "%s, after %v%s", how, since(calls.Uptime()), command)
}

// tellGitHub annotates the step of a GitHub job, with commands to the runner, and appends to the step summary.
func (k *system) tellGitHub(leaks life.Leaks) error {
	var lines []string
	var text string
	if k.outOfTime != life.NoReason {
		what := "The command was stopped: " + k.because(k.outOfTime)
		lines, text = k.report.RunningAnnotations(what), k.report.RunningSummary(what)
	}
	if leaks.Count > 0 {
		level, what := "warning", "The command left %s running (below), and fini stopped what did not exit"
		switch {
		case leaks.Decided:
			level, what = "error", "The command succeeded, but left %s running (below), so this step fails (--orphans-exit)"
		case leaks.Left:
			what = "The command left %s running (below), and --orphans=leave stops nothing"
		}
		what = fmt.Sprintf(what, report.Processes(leaks.Count))
		lines, text = append(lines, k.report.Annotations(level, what)...), text+k.report.Summary(what)
	}
	for _, line := range lines {
		files.SayLine([]byte(line))
	}
	path := entry.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" || text == "" {
		return nil
	}
	return report.AppendSummary(path, text)
}
