package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// This file reads variables, and has the messages about command lines and variables that fini can't use.

// variables give kong the values of FINI_ variables. In the Go runtime kong would find none: see package entry.
type variables struct {
	parser  *kong.Kong
	environ []string
	from    map[string]string // the variable from which kong got a flag, such as --grace
}

// variable returns the name of a flag's variable, "" for none.
func variable(flag *kong.Flag) string {
	if len(flag.Name) == 1 || runsNothing(flag) {
		return ""
	}
	return "FINI_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
}

// runsNothing reports whether fini runs no command with a flag, but prints or copies something.
func runsNothing(flag *kong.Flag) bool { return slices.Contains(flag.Envs, "-") }

// resolve is called for each flag that is not on the command line. A flag wins over its variable, and over that of a
// flag that it excludes. Beside --version and the like no variable counts, so that a wrong one does no harm.
func (v *variables) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	name := variable(flag) + "="
	i := slices.IndexFunc(v.environ, func(text string) bool { return strings.HasPrefix(text, name) })
	excludes := func(other *kong.Flag) bool {
		inXor := func(x string) bool { return slices.Contains(flag.Xor, x) }
		return other != flag && other.Set && (runsNothing(other) || slices.ContainsFunc(other.Xor, inXor))
	}
	// A compose file may set a variable to nothing.
	if name == "=" || i < 0 || v.environ[i] == name || slices.ContainsFunc(v.parser.Model.Flags, excludes) {
		return nil, nil
	}
	value := v.environ[i][len(name):]
	v.from["--"+flag.Name] = variable(flag)
	if words := strings.Fields(value); flag.IsSlice() && len(words) > 0 {
		return words, nil
	}
	return value, nil
}

// rephrased has what kong says badly, and what fini says instead. It is matched with the word at which kong stopped, a
// \x00, and the text.
var rephrased = []struct{ kong, fini string }{
	// A letter is near any other, and so is a dash. Kong splits letters of several bytes.
	{`^(.*)\x00unknown flag --, did.*`, `cannot use "$1": want each flag as a word of its own`},
	{`^(.*)\x00unknown flag -\x{FFFD}.*`, "unknown flag $1"},
	{`\x00(unknown flag -[^-]), did.*`, "\x00$1"},
	{`, "--?[a-zA-Z]"|"--?[a-zA-Z]", `, ""},
	{`, did you mean (one of )?"--?[a-zA-Z]"\?`, ""},
	// Kong gives each flag a long name.
	{`--([gs])(:? )`, "-$1$2"},
	// Kong leaves out that it is about --no-shield, and the words differ from those of the other flags.
	{`^([^=]*)(.*)\x00bool`, "$1$2\x00$1: bool"},
	{`bool value must be (.*) but got (".*")`, "cannot use $2: want $1"},
	{`expected a counter but got (".*") .*`, "cannot use $1: want a number"},
	{`^.*\x00`, ""},
}

// explain returns a parser's error in one line that names what can't be used, and what can.
func (v *variables) explain(err error) error {
	text, word := err.Error(), ""
	at := err.(*kong.ParseError).Context
	if left := at.Path[len(at.Path)-1].Remainder(); len(left) > 0 { // it begins in the word at which the parser stopped
		word = at.Args[len(at.Args)-len(left)]
	}
	name, _, _ := strings.Cut(word, "=")
	near := v.near("--" + strings.TrimLeft(name, "-"))
	switch {
	case len(name) > 2 && near == "-"+name:
		return fmt.Errorf("cannot use %s: long flags have two dashes: -%s", word, word)
	case strings.HasPrefix(near, "--no-") && near != name: // kong would suggest --shield for --noshield
		return fmt.Errorf("unknown flag %s, did you mean %q?", name, near)
	}
	text = word + "\x00" + text
	for _, row := range rephrased {
		text = regexp.MustCompile("(?s)"+row.kong).ReplaceAllString(text, row.fini)
	}
	if flag := regexp.MustCompile("^--[a-z-]+").FindString(text); v.from[flag] != "" {
		text = v.from[flag] + text[len(flag):]
	}
	return errors.New(text)
}

// near returns the long flag that the user likely meant.
func (v *variables) near(long string) string {
	says := func(long string) string {
		line, _ := kong.Trace(v.parser, []string{long})
		return fmt.Sprint(line.Error)
	}
	for _, exact := range []string{long, "--no-" + strings.TrimPrefix(long, "--no")} {
		if !strings.HasPrefix(says(exact), "unknown flag") {
			return exact
		}
	}
	for _, found := range regexp.MustCompile(`"--[a-z-]{2,}"`).FindAllString(says(long), -1) {
		found = strings.Trim(found, `"`)
		// Kong suggests each flag that begins so, as FINI_REPORT for FINI_REPO. A Dockerfile may have a FINI_BIN.
		if len(long) > len("--bin") && (len(found) <= len(long)+1 || strings.HasPrefix(found, long+"-")) {
			return found
		}
	}
	return long[:strings.LastIndex(long, "-")] // --grace of --grace-period
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
		short, ours := strings.CutPrefix(name, "FINI_")
		if ours && value != "" && short != "TEST" { // package report reads FINI_TEST
			says, meant = name, v.variable(v.near("--"+strings.ToLower(strings.ReplaceAll(short, "_", "-"))))
		}
		if meant != "" && meant != says {
			lines = append(lines, fmt.Sprintf("%s sets nothing: did you mean %s?", says, meant))
		}
	}
	return lines
}

// variable returns the variable for a long flag, if it has one.
func (v *variables) variable(long string) string {
	for _, flag := range v.parser.Model.Flags {
		switch name := variable(flag); {
		case name == "":
		case long == "--"+flag.Name:
			return name
		case long == "--no-"+flag.Name:
			return name + "=0"
		}
	}
	return ""
}

// otherInits has the variables by which tini or dumb-init would have done something that fini does not do.
var otherInits = map[string]string{
	"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1",
	"TINI_VERBOSITY=0": "FINI_QUIET=1", "TINI_VERBOSITY=2": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=1",
}
