package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// This file has the messages about command lines and variables that fini can't use.

// explain returns a parser's error in one line that names what can't be used, and what can.
func (v *variables) explain(err error) error {
	text := strings.Replace(err.Error(), "--g ", "-g ", 1) // which has no long name
	if v.last != nil {
		if rest, ok := strings.CutPrefix(text, "--"+v.last.Name+": "); ok {
			return fmt.Errorf("%s: %s", variable(v.last), rest)
		}
	}
	var failed *kong.ParseError
	if !errors.As(err, &failed) {
		return err
	}
	args, path := failed.Context.Args, failed.Context.Path
	left := path[len(path)-1].Remainder() // begins in the word at which the parser stopped
	if len(left) == 0 {
		return errors.New(text)
	}
	word := args[len(args)-len(left)]
	flag, _, _ := strings.Cut(word, "=")
	name := strings.TrimLeft(flag, "-")
	letter := left[0]
	if letter == word {
		letter = strings.TrimPrefix(word, "-")
	}
	_, size := utf8.DecodeRuneInString(letter)
	unknown := strings.HasPrefix(text, "unknown flag")
	switch isLong := strings.HasPrefix(word, "--"); {
	case !isLong && len(name) > 1 && slices.Contains(v.names(), name):
		return fmt.Errorf("cannot use %s: long flags have two dashes: -%s", word, word)
	case unknown && isLong:
		if meant := v.nearest(name); meant != "" {
			return fmt.Errorf("unknown flag %s, did you mean --%s?", flag, meant)
		}
		return fmt.Errorf("unknown flag %s", flag)
	case unknown && letter[0] == '-':
		return fmt.Errorf("cannot use %q: want each flag as a word of its own", word)
	case unknown:
		return fmt.Errorf("unknown flag -%s", letter[:size])
	case !strings.HasPrefix(text, "--"): // kong leaves out that it is about --no-shield
		return fmt.Errorf("%s: %s", flag, text)
	}
	return errors.New(text)
}

// otherInits has the variables by which tini or dumb-init would have done something that fini does not do.
var otherInits = map[string]string{
	"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1",
	"TINI_VERBOSITY=0": "FINI_QUIET=1", "TINI_VERBOSITY=2": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=1",
}

// NoCommand says that there is no command, and which flag has taken the word that was meant to be the command.
func NoCommand(args []string) error {
	if n := len(args); n > 1 && args[n-2] != "--" && strings.HasPrefix(args[n-2], "-") && !strings.HasPrefix(args[n-1], "-") {
		flag := args[n-2]
		if !strings.HasPrefix(flag, "--") {
			flag = "-" + flag[len(flag)-1:]
		}
		return fmt.Errorf("%s took %q as its value; no command is left", flag, args[n-1])
	}
	// An ENTRYPOINT without brackets runs fini by a shell, and Docker gives the CMD to the shell.
	if os.Getpid() == 1 {
		return errors.New(`no command: an image wants ENTRYPOINT ["/fini", "--"], with the brackets, and a CMD; see fini --help`)
	}
	return errors.New("no command: want one after the flags, as in fini -- make test; see fini --help")
}

// Hint guesses what the user meant by a command that was not found. It returns "" for no guess.
func Hint(command []string) string {
	name := command[0]
	variable, _, assigned := strings.Cut(strings.ToUpper(name), "=")
	switch {
	case strings.HasPrefix(name, "-") && len(name) > 1:
		return "fini's flags go before the --, and one -- is taken off"
	case strings.IndexAny(name, "\u2013\u2014\u2212") == 0:
		return "it begins with a dash that is not -"
	case slices.Contains([]string{"help", "version", "license"}, name):
		return "did you mean fini --" + name + "?"
	case strings.Contains(shellWords, " "+name+" "):
		return name + " is a word of the shell: fini -- sh -c " + shellQuoted(strings.Join(command, " "))
	case assigned && variable != "" && strings.Trim(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" && !strings.Contains(name, " "):
		return "to set a variable: fini -- env " + strings.Join(append([]string{name}, command[1:min(2, len(command))]...), " ")
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
const shellWords = " cd export . ulimit eval exec exit set unset shift trap umask alias unalias if for while until case " +
	"return break continue local readonly read wait jobs fg bg type command times hash ! { : "

// shellQuoted quotes a line so that a shell reads it as one word.
func shellQuoted(line string) string { return "'" + strings.ReplaceAll(line, "'", `'\''`) + "'" }

// nearest returns the long name that the user likely meant, or "".
func (v *variables) nearest(name string) (best string) {
	name = strings.ToLower(name)
	names := v.names()
	if slices.Contains(names, name) {
		return name
	}
	least := 3
	for _, other := range names {
		letters := differing(name, other)
		if 2*letters >= len(name) {
			letters = least
		}
		if strings.HasPrefix(other, name+"-") || strings.HasPrefix(name, other+"-") || strings.HasSuffix(name, "-"+other) {
			letters = min(letters, 2)
		}
		if letters < least && len(name) > 3 {
			best, least = other, letters
		}
	}
	return best
}

// differing counts the letters between the common beginning and the common end of two names, in the longer one.
func differing(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}
