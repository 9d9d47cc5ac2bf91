package main

import (
	_ "embed"
	"strings"
)

// around is what --help prints, with a line in the place of the flags.
//
//go:embed help.tmpl
var around string

const (
	helpWidth  = 80
	helpColumn = 27 // in which the text of a flag begins
)

// help returns what --help prints.
func help(flags []flag) string {
	var b strings.Builder
	for i, group := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(group.title + "\n")
		for _, f := range flags {
			if f.Group.Key == group.key {
				writeFlag(&b, f)
			}
		}
	}
	return strings.Replace(around, "FLAGS\n", b.String(), 1)
}

func writeFlag(b *strings.Builder, f flag) {
	line := "      " + f.Long
	if len(f.Letters) > 0 {
		line = "  " + strings.TrimSuffix(strings.Join(append(f.Letters, f.Long), ", "), ", ")
	}
	text := f.Help
	if f.Preset != "" {
		text += " (default: " + f.Preset + ")"
	}
	if len(line) > helpColumn-2 {
		b.WriteString(line + "\n")
		line = ""
	}
	line += strings.Repeat(" ", helpColumn-1-len(line))
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", helpColumn-1)
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
