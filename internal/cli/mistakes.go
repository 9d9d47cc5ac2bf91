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

// This file looks up FINI_ variables. It also contains the messages about mistakes in variables and in flags.

// variables gives kong the values of FINI_ variables, which are not in the Go runtime's environment. See entry.Getenv.
type variables struct {
	parser  *kong.Kong
	environ []string
	from    map[string]string // maps a flag such as --grace to the variable that set it
}

// variable returns the name of the variable for a flag, or "".
func variable(flag *kong.Flag) string {
	if len(flag.Name) == 1 || runsNothing(flag) {
		return ""
	}
	return "FINI_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
}

// runsNothing reports whether a flag makes fini print or copy something instead of running a command.
func runsNothing(flag *kong.Flag) bool { return slices.Contains(flag.Envs, "-") }

// resolve is called by kong for each flag that is not on the command line. A variable has no effect if the command line
// contains a conflicting flag. With --version and similar flags, variables are not even checked.
func (v *variables) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	name := variable(flag) + "="
	i := slices.IndexFunc(v.environ, func(text string) bool { return strings.HasPrefix(text, name) })
	excludes := func(other *kong.Flag) bool {
		inXor := func(x string) bool { return slices.Contains(flag.Xor, x) }
		return other != flag && other.Set && (runsNothing(other) || slices.ContainsFunc(other.Xor, inXor))
	}
	// Treat an empty variable as unset, because a compose file may set one that way.
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

// rephrased replaces error messages of kong that are hard to understand. Each pattern is matched against the word at
// which kong stopped, followed by \x00 and the message.
var rephrased = []struct{ kong, fini string }{
	// kong suggests one-letter flags that have nothing to do with the word. It also splits multi-byte characters.
	{`^(.*)\x00unknown flag --, did.*`, `cannot use "$1": want each flag as a word of its own`},
	{`^(.*)\x00unknown flag -\x{FFFD}.*`, "unknown flag $1"},
	{`\x00(unknown flag -[^-]), did.*`, "\x00$1"},
	{`, "--?[a-zA-Z]"|"--?[a-zA-Z]", `, ""},
	{`, did you mean (one of )?"--?[a-zA-Z]"\?`, ""},
	// kong gives even one-letter flags a long name.
	{`--([gs])(:? )`, "-$1$2"},
	// kong's message about a bool doesn't name the flag, and differs from our other messages.
	{`^([^=]*)(.*)\x00bool`, "$1$2\x00$1: bool"},
	{`bool value must be (.*) but got (".*")`, "cannot use $2: want $1"},
	{`expected a counter but got (".*") .*`, "cannot use $1: want a number"},
	{`^.*\x00`, ""},
}

// explain returns a parse error as one line that says which word is wrong and what is allowed in its place.
func (v *variables) explain(err error) error {
	text, word := err.Error(), ""
	at := err.(*kong.ParseError).Context
	if left := at.Path[len(at.Path)-1].Remainder(); len(left) > 0 { // this starts within the word at which kong stopped
		word = at.Args[len(at.Args)-len(left)]
	}
	name, _, _ := strings.Cut(word, "=")
	near := v.near("--" + strings.TrimLeft(name, "-"))
	switch {
	case len(name) > 2 && near == "-"+name:
		return fmt.Errorf("cannot use %s: long flags have two dashes: -%s", word, word)
	// kong would suggest --shield for --noshield, and nothing for --no-sheild
	case strings.HasPrefix(near, "--no-") && near != name:
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

// near returns the long flag that the user probably meant.
func (v *variables) near(long string) string {
	says := func(long string) string {
		line, _ := kong.Trace(v.parser, []string{long})
		return fmt.Sprint(line.Error)
	}
	known := func(long string) bool { return !strings.HasPrefix(says(long), "unknown flag") }
	for _, exact := range []string{long, "--no-" + strings.TrimPrefix(long, "--no")} {
		if known(exact) {
			return exact
		}
	}
	if rest, negated := strings.CutPrefix(long, "--no-"); negated && !strings.HasPrefix(rest, "no-") {
		if meant := "--no-" + strings.TrimPrefix(v.near("--"+rest), "--"); known(meant) {
			return meant
		}
	}
	suggested := regexp.MustCompile(`"--[a-z-]{2,}"`).FindAllString(says(long), -1)
	slices.SortStableFunc(suggested, func(a, b string) int { return len(a) - len(b) })
	for _, found := range suggested {
		found = strings.Trim(found, `"`)
		// kong would suggest FINI_BIND for FINI_BIN, because it suggests every flag that begins with the word.
		if len(long) > len("--bin") && (len(found) <= len(long)+1 || strings.HasPrefix(found, long+"-")) {
			return found
		}
	}
	return long[:strings.LastIndex(long, "-")] // such as --grace for --grace-period
}

// NoCommand returns the error for a missing command. It names the flag, if any, that has taken the command as its
// value.
func NoCommand(args []string) error {
	if n := len(args); n > 1 && args[n-2] != "--" && strings.HasPrefix(args[n-2], "-") &&
		!strings.HasPrefix(args[n-1], "-") {
		flag := args[n-2]
		if !strings.HasPrefix(flag, "--") {
			flag = "-" + flag[len(flag)-1:]
		}
		return fmt.Errorf("%s took %q as its value; no command is left", flag, args[n-1])
	}
	// This is probably an ENTRYPOINT without brackets, for which Docker runs a shell and passes the CMD to that shell.
	if os.Getpid() == 1 {
		const want = `ENTRYPOINT ["/fini", "--"], with the brackets, and a CMD`
		return errors.New("no command: an image wants " + want + "; see fini --help")
	}
	return errors.New("no command: want one after the flags, as in fini -- make test; see fini --help")
}

// misspelt returns a warning for each variable that looks like a misspelt FINI_ variable, or that another init would
// obey. If byName is true, fini signals only the main child because it was started under a name such as tini.
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

// variable returns the name of the variable for a long flag, or "".
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

// otherInits maps settings of tini and dumb-init that fini ignores to the FINI_ variable with that effect.
var otherInits = map[string]string{
	"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1",
	"TINI_VERBOSITY=0": "FINI_QUIET=1", "TINI_VERBOSITY=2": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=1",
}
