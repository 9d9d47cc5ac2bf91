package cli

import (
	"os"
	"slices"
	"strings"
)

// Hint guesses what the user meant by a command that was not found. It returns "" if it has no idea.
func Hint(command []string) string {
	name := command[0]
	variable, _, assigned := strings.Cut(strings.ToUpper(name), "=")
	switch {
	case strings.HasPrefix(name, "-") && len(name) > 1:
		return "fini's flags go before the --, and one -- is taken off"
	case strings.IndexAny(name, "\u2013\u2014\u2212") == 0:
		return "it begins with a long dash; type - instead"
	case slices.Contains([]string{"help", "version", "license"}, name):
		return "did you mean fini --" + name + "?"
	case strings.Contains(shellWords, " "+name+" "):
		return name + " is a word of the shell: fini -- sh -c " + shellQuoted(strings.Join(command, " "))
	case assigned && variable != "" && strings.Trim(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" &&
		!strings.Contains(name, " "):
		return "to set a variable: fini -- env " +
			strings.Join(append([]string{name}, command[1:min(2, len(command))]...), " ")
	case strings.ContainsAny(name, " |&;<>()$`*\n") || strings.HasPrefix(name, "~/"):
		return "for a shell line: fini -- sh -c " + shellQuoted(name)
	case !strings.Contains(name, "/"):
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			return "./" + name + " is here: write ./" + name
		}
	}
	return ""
}

// Words of the shell. On most systems there is no program of that name.
const shellWords = " cd export . ulimit eval exec exit set unset shift trap umask alias unalias if for while " +
	"until case " +
	"return break continue local readonly read wait jobs fg bg type command times hash ! { : "

// shellQuoted quotes a line so that a shell reads it as one word.
func shellQuoted(line string) string { return "'" + strings.ReplaceAll(line, "'", `'\''`) + "'" }
