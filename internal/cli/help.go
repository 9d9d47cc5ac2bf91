package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

const (
	helpHead = `usage: fini [flags] [--] command [args...]
Run command, forward signals to it, reap orphans, and exit with its status.
Stop each process that the command leaves running (a leftover).

  fini -- make test             in front of a command in CI; also as PID 1
  fini -i -k 5s npx -y SERVER   around an MCP server
`
	helpFoot = `
SIG: TERM, SIGTERM, 15, RTMIN+3. DUR: 500ms, 5s, 1m30s, 1d, or just seconds.
FINI_GRACE=10s sets --grace, and so on. FINI_TEST=NAME names a leftover's test.
By default fini says on stderr what went wrong, and what it stopped and why.
Exit status: the command's own. If signal n killed the command, fini dies by n,
or exits with 128+n as PID 1. 124: --timeout or --idle. 125: fini failed. 126:
the command can't be executed. 127: it was not found. 2: the Go runtime could
not start.
`
	helpWidth  = 80
	helpColumn = 26 // in which the text of a flag begins
)

// Help is what --help prints.
func Help() string {
	_, parser, _ := New(nil)
	var b strings.Builder
	b.WriteString(helpHead)
	for _, group := range Groups {
		b.WriteString("\n" + group.Title + "\n")
		for _, flag := range parser.Model.Flags {
			if flag.Group.Key == group.Key {
				writeFlag(&b, flag)
			}
		}
	}
	b.WriteString(helpFoot)
	return b.String()
}

func writeFlag(b *strings.Builder, flag *kong.Flag) {
	letters, long := Names(flag)
	line := "  " + strings.Join(append(letters, long), ", ")
	if len(letters) == 0 {
		line = "      " + long
	}
	text := flag.Help
	if preset := Preset(flag); preset != "" {
		text += " (default: " + preset + ")"
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

// Names returns how a flag is written: its letters, such as -p, and its long name, such as --pdeathsig=SIG.
func Names(flag *kong.Flag) (letters []string, long string) {
	if flag.Short != 0 {
		letters = append(letters, "-"+string(flag.Short))
	}
	for _, alias := range flag.Aliases {
		letters = append(letters, "-"+alias)
	}
	switch {
	case len(flag.Name) == 1:
		return nil, "-" + flag.Name
	case flag.Tag.Negatable != "":
		return letters, "--[no-]" + flag.Name
	case flag.PlaceHolder != "":
		return letters, "--" + flag.Name + "=" + flag.PlaceHolder
	}
	return letters, "--" + flag.Name
}

// Preset returns the value that a flag has by default, "" for none.
func Preset(flag *kong.Flag) string {
	if flag.HasDefault {
		return flag.Default
	}
	return flag.Tag.Get("preset")
}
