package report

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/orphans"
)

// OneLine is text with unprintable characters replaced, and at most limit bytes long, because a process may choose any
// name. A CI's agent doesn't take it for a command, as GitHub's would take ##[command], Azure's ##vso[command] and
// TeamCity ##teamcity[command] anywhere in a line.
func OneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	return cut(strings.ReplaceAll(text, "##", "#?"), limit)
}

// cut is text, cut to limit bytes and ending in dots if it was longer.
func cut(text string, limit int) string {
	if len(text) > limit {
		text, _ = firstBytes(text, limit-3)
		text += "..."
	}
	return text
}

// A lower age only shows that the main child has started the leftover, so a line omits it.
const worthSaying = 10 * time.Second

// Describe is the text of a line about a leftover, in about limit bytes: Describe cuts the command
// line. A leftover outside of fini's session is called detached.
func Describe(p orphans.Process, commandLine string, session int, from Lineage, limit int) string {
	var more string
	switch {
	case p.Entered:
		more += ", started from outside"
	case p.Session != session && p.Session != 0:
		more += ", detached"
	}
	if old := proc.Uptime() - p.Start; p.Start > 0 && old >= worthSaying {
		more += ", " + old.Truncate(time.Second).String() + " old"
	}
	more += startedBy(from) + whereIs(from.At)
	if p.User >= 0 && p.User != os.Geteuid() {
		more += fmt.Sprintf(", as user %d", p.User)
	}
	held, known := p.Holds.Held()
	if held != 0 {
		more += ", which holds " + Names(held)
	}
	if !known && p.State != '?' { // '?' says that nothing is known
		more += ", which may hold " + Names(p.Holds.May()&^held) + ": fini can't see its descriptors"
	}
	return described(p.Pid, commandLine, more, limit)
}

// described cuts the command line, so that the text has about limit bytes.
func described(pid int, commandLine, more string, limit int) string {
	number := strconv.Itoa(pid)
	return number + " (" + OneLine(commandLine, max(limit-len(number)-len(" ()")-len(more), 20)) + ")" + more
}

// startedBy is the text about the origin of a leftover, "" if there is nothing to say.
func startedBy(from Lineage) (text string) {
	for i, a := range from.Chain {
		text += []string{" by ", " < "}[min(i, 1)]
		if from.Owner != nil && from.Owner.Pid == a.Pid {
			text += fmt.Sprintf("%d (%s)", a.Pid, OneLine(from.Owner.Command, 60))
		} else {
			text += OneLine(a.Name, 16)
		}
	}
	if from.During != "" {
		text += " in " + OneLine(from.During, 200)
	}
	if text != "" {
		text = ", started" + text
	}
	return text
}

// whereIs is the text that helps a user find a leftover; "" if there is nothing to say.
func whereIs(at orphans.Details) string {
	text := listensOn(at.Listens, 3, 110)
	if at.OtherDir {
		text += ", in " + OneLine(at.Dir, 100)
	}
	return text
}

// listensOn is the text about the first addresses, each of at most limit bytes; "" if there are none.
func listensOn(addresses []string, most, limit int) (text string) {
	named := addresses[:min(len(addresses), most)]
	for i, address := range named {
		text += []string{", listens on ", " and "}[min(i, 1)]
		if _, err := netip.ParseAddrPort(address); err == nil {
			text += "tcp "
		}
		text += OneLine(address, limit)
	}
	if more := len(addresses) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Names are the names of streams, "" for none.
func Names(streams orphans.Streams) string {
	return [...]string{orphans.Stdout: "stdout", orphans.Stderr: "stderr", orphans.Stdout | orphans.Stderr: "stdout and stderr"}[streams]
}
