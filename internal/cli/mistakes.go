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

// This file reads variables, and has the messages about command lines and variables that fini can't use.

// variables give kong the values of FINI_ variables. The Go runtime has none: see package entry.
type variables struct {
	parser *kong.Kong
	of     map[string]string // the value of a variable
	from   map[string]string // the variable from which kong got a flag, such as --grace
}

func newVariables(environ []string) *variables {
	v := &variables{of: map[string]string{}, from: map[string]string{}}
	for _, variable := range slices.Backward(environ) { // of two variables of the same name, the first counts
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "FINI_") && value != "" { // a compose file may set a variable to nothing
			v.of[name] = value
		}
	}
	return v
}

// variable returns the name of a flag's variable, "" for none.
func variable(flag *kong.Flag) string {
	if slices.Contains(flag.Envs, "-") {
		return ""
	}
	return "FINI_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
}

// Resolve is called for each flag that is not on the command line. A flag wins over its variable, and over that of a flag
// that it excludes.
func (v *variables) Resolve(line *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, set := v.of[variable(flag)]
	excluded := slices.ContainsFunc(v.parser.Model.Flags, func(other *kong.Flag) bool {
		return other != flag && other.Set && slices.ContainsFunc(other.Xor, func(x string) bool { return slices.Contains(flag.Xor, x) })
	})
	if !set || excluded || answers(line) {
		return nil, nil
	}
	v.from["--"+flag.Name] = variable(flag)
	if words := strings.Fields(value); flag.IsSlice() && len(words) > 0 {
		return words, nil
	}
	return value, nil
}

// answers reports whether fini only prints something: the user may want to find out why a variable can't be used.
func answers(line *kong.Context) bool {
	return len(line.Args) == 1 && len(line.Path) == 2 && line.Path[1].Flag != nil && variable(line.Path[1].Flag) == ""
}

// Validate makes variables a kong.Resolver.
func (v *variables) Validate(*kong.Application) error { return nil }

// explain returns a parser's error in one line that names what can't be used, and what can.
func (v *variables) explain(err error) error {
	text := strings.Replace(err.Error(), "--g ", "-g ", 1) // which has no long name
	first, rest, _ := strings.Cut(text, " ")
	if variable := v.from[strings.TrimSuffix(first, ":")]; variable != "" {
		return fmt.Errorf("%s %s", strings.Replace(first, strings.TrimSuffix(first, ":"), variable, 1), rest)
	}
	at := err.(*kong.ParseError).Context
	left := at.Path[len(at.Path)-1].Remainder() // begins in the word at which the parser stopped
	if len(left) == 0 {
		return errors.New(text)
	}
	word := at.Args[len(at.Args)-len(left)]
	flag, _, _ := strings.Cut(word, "=")
	near := v.nearest(strings.TrimLeft(flag, "-")).long
	letter := left[0]
	if letter == word {
		letter = strings.TrimPrefix(word, "-")
	}
	isLong, unknown := strings.HasPrefix(word, "--"), strings.HasPrefix(text, "unknown flag")
	switch {
	case flag == "-"+near:
		text = fmt.Sprintf("cannot use %s: long flags have two dashes: -%s", word, word)
	case unknown && isLong && near != "":
		text = fmt.Sprintf("unknown flag %s, did you mean --%s?", flag, near)
	case unknown && isLong:
		text = "unknown flag " + flag
	case unknown && letter[0] == '-':
		text = fmt.Sprintf("cannot use %q: want each flag as a word of its own", word)
	case unknown:
		_, size := utf8.DecodeRuneInString(letter)
		text = "unknown flag -" + letter[:size]
	case !strings.HasPrefix(text, "--"): // kong leaves out that it is about --no-shield
		text = flag + ": " + text
	}
	return errors.New(text)
}

// NoCommand is the error for a command line without a command. It names the flag that has taken the word that was meant
// to be the command.
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

// misspelt returns a line for each variable that fini doesn't know, but whose name is nearly right, or that another
// init would have obeyed. byName means that fini signals only the main child because of its own name.
func (v *variables) misspelt(environ []string, byName bool) (lines []string) {
	for _, text := range environ {
		says, meant := text, otherInits[text]
		if byName && strings.HasPrefix(text, "TINI_KILL_PROCESS_GROUP=") {
			meant = "FINI_SINGLE_CHILD=0"
		}
		name, value, _ := strings.Cut(text, "=")
		if short, ours := strings.CutPrefix(name, "FINI_"); ours && value != "" && short != "TEST" { // package report reads FINI_TEST
			says, meant = name, v.nearest(strings.ReplaceAll(short, "_", "-")).variable
		}
		if meant != "" && meant != says {
			lines = append(lines, fmt.Sprintf("%s sets nothing: did you mean %s?", says, meant))
		}
	}
	return lines
}

// otherInits has the variables by which tini or dumb-init would have done something that fini does not do.
var otherInits = map[string]string{
	"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1",
	"TINI_VERBOSITY=0": "FINI_QUIET=1", "TINI_VERBOSITY=2": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=1",
}

// A name is the long name of a flag, and its variable. That of --no-x is FINI_X=0, which does the same.
type name struct{ long, variable string }

// nearest returns the name that the user likely meant, or none.
func (v *variables) nearest(text string) (best name) {
	text = strings.ToLower(text)
	var names []name
	for _, flag := range v.parser.Model.Flags {
		if len(flag.Name) > 1 {
			names = append(names, name{flag.Name, variable(flag)})
		}
		if flag.Tag.Negatable != "" {
			names = append(names, name{"no-" + flag.Name, variable(flag) + "=0"})
		}
	}
	least := 3
	for _, other := range names {
		letters := differing(text, other.long)
		switch {
		case letters == 0:
			return other
		case strings.HasPrefix(other.long, text+"-") || strings.HasPrefix(text, other.long+"-") || strings.HasSuffix(text, "-"+other.long):
			letters = min(letters, 2)
		case 2*letters >= len(text):
			continue
		}
		if letters < least && len(text) > 3 {
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
