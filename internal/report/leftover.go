package report

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/orphans"
)

// OneLine makes text from other processes safe to print, because a process may choose any name. It replaces unprintable
// characters and cuts the text to limit bytes. It also breaks up "##", because GitHub (##[command]), Azure (##vso[...])
// and TeamCity (##teamcity[...]) execute commands that they find anywhere in a line.
func OneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	return cut(strings.ReplaceAll(text, "##", "#?"), limit)
}

// cut shortens text to limit bytes and marks the cut with dots.
func cut(text string, limit int) string {
	if len(text) > limit {
		text, _ = firstBytes(text, limit-3)
		text += "..."
	}
	return text
}

// worthSaying is the shortest run time that a line mentions. Less would only say that the command started the leftover.
const worthSaying = 10 * time.Second

// Describe returns the text that a message contains about a leftover. It cuts the command line so that the text has
// about limit bytes. It calls a leftover detached if it is in another session than fini.
func Describe(p orphans.Process, commandLine string, session int, from Lineage, limit int) string {
	var more string
	switch {
	case p.Entered:
		more += ", started from outside"
	case p.Session != session && p.Session != 0:
		more += ", detached"
	}
	if old := calls.Uptime() - p.Start; p.Start > 0 && old >= worthSaying {
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
	if !known && p.State != '?' { // for state '?' nothing is known at all
		more += ", which may hold " + Names(p.Holds.May()&^held) + ": fini can't see its descriptors"
	}
	return described(p.Pid, commandLine, more, limit)
}

// described combines the parts of a description, and cuts the command line to keep the text within about limit bytes.
func described(pid int, commandLine, more string, limit int) string {
	number := strconv.Itoa(pid)
	return number + " (" + OneLine(commandLine, max(limit-len(number)-len(" ()")-len(more), 20)) + ")" + more
}

// startedBy describes who started a leftover. It returns "" if that is not known.
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

// whereIs describes the addresses and the directory of a leftover, which help a user to find it.
func whereIs(at orphans.Details) string {
	text := listensOn(at.Listens, 3, 110)
	if at.OtherDir {
		text += ", in " + OneLine(at.Dir, 100)
	}
	return text
}

// listensOn describes the first few addresses, up to limit bytes each, and counts the others.
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

// Names returns the names of the given streams, or "" if there are none.
func Names(streams orphans.Streams) string {
	return [...]string{orphans.Stdout: "stdout", orphans.Stderr: "stderr",
		orphans.Stdout | orphans.Stderr: "stdout and stderr"}[streams]
}
