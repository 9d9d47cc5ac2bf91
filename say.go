package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// level says how much a line matters: -q leaves only failures, -v adds details.
type level int

const (
	failure level = iota // something went wrong
	notice               // leftovers that had to be stopped
	detail               // what fini did
)

// speaker writes lines to standard error. fini never writes anywhere else.
type speaker struct{ upTo level }

// sayf writes one line, whatever the text holds, if the level is wanted. A line
// that can't be written at once is lost: fini waits for no reader.
func (s speaker) sayf(l level, format string, args ...any) {
	if l <= s.upTo {
		signals.SayLine([]byte("fini: " + oneLine(fmt.Sprintf(format, args...), maxLine) + "\n"))
	}
}

// A line this long is written to a pipe as a whole. See PIPE_BUF in pipe(7).
const maxLine = 1024

// oneLine is text without what is not printed as itself, and no longer than limit bytes:
// a process may call itself anything.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit-3], "") + "..."
	}
	return text
}

// describe is what a line says of a leftover besides its pid.
func describe(p orphans.Process, commandLine string, group int) string {
	text := "(" + oneLine(commandLine, 120) + ")"
	switch {
	case p.Holds&(orphans.Stdout|orphans.Stderr) == orphans.Stdout|orphans.Stderr:
		text += ", which holds stdout and stderr"
	case p.Holds&orphans.Stdout != 0:
		text += ", which holds stdout"
	case p.Holds&orphans.Stderr != 0:
		text += ", which holds stderr"
	}
	if p.Group != group {
		text += fmt.Sprintf(", in session %d", p.Session)
	}
	return text
}
