package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// This file has the messages about command lines and variables that fini can't use.

// betweenValues separates the values of a variable. In the environment a space does, but a value on the command line
// may contain a space.
const betweenValues = "\x1f"

// setVariables gives the variables to the parser. It returns a line for each variable whose name is nearly
// the name of a variable that sets a flag.
func setVariables(flags []*kong.Flag, environ []string) (misspelt []string) {
	var names, several []string
	for _, flag := range flags {
		names = append(names, flag.Envs...)
		if flag.Target.Kind() == reflect.Slice {
			several = append(several, flag.Envs...)
		}
	}
	for _, variable := range slices.Backward(environ) { // of two equal names, the first counts
		name, value, _ := strings.Cut(variable, "=")
		if !setsFlag(variable) {
			continue
		}
		if value == "" { // a compose file may set a variable to nothing
			_ = os.Unsetenv(name)
			continue
		}
		if words := strings.Fields(value); slices.Contains(several, name) && len(words) > 0 {
			value = strings.Join(words, betweenValues)
		}
		_ = os.Setenv(name, value) // where kong looks for it, and where entry may have removed it
		if slices.Contains(names, name) {
			continue
		}
		if other := nearest(name, names, "_"); other != "" {
			if strings.HasPrefix(name, "FINI_NO") && (other == "FINI_SHIELD" || other == "FINI_FOREGROUND") {
				other += "=0"
			}
			misspelt = append(misspelt, fmt.Sprintf(setsNothing, name, other))
		}
	}
	return misspelt
}

const setsNothing = "%s sets nothing: did you mean %s?"

// otherInits has the variables by which tini or dumb-init would have done something that fini does not do.
var otherInits = map[string]string{
	"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1",
	"TINI_VERBOSITY=0": "FINI_QUIET=1", "TINI_VERBOSITY=2": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=2",
}

// explain returns an error of the parser in one line. Most of the parser's words are good.
func explain(err error, flags []*kong.Flag) error {
	var names []string
	for _, flag := range flags {
		if names = append(names, flag.Name); flag.Tag.Negatable != "" {
			names = append(names, "no-"+flag.Name)
		}
	}
	text, _, _ := strings.Cut(err.Error(), ", did you mean") // which is for letters too, and never for --no-
	word := ""                                               // of the command line, at which the parser stopped
	if failed, ok := err.(*kong.ParseError); ok {
		last := failed.Context.Path[len(failed.Context.Path)-1]
		word = strings.Join(last.Remainder()[:min(1, len(last.Remainder()))], "")
	}
	long, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	switch name, unknown := strings.CutPrefix(text, "unknown flag --"); {
	case slices.Contains(names, long) && !strings.HasPrefix(word, "--") && len(long) > 1:
		text = fmt.Sprintf("cannot use %s: long flags have two dashes: -%s", word, word)
	case strings.HasPrefix(text, "--timeout:") && (word == "-ti" || word == "-it" || word == "t"):
		text = "cannot use -i and -t as docker's: here -t is --timeout=DUR and -i is --stdin-eof; a terminal needs neither"
	case unknown:
		text = "unknown flag " + word
		if other := nearest(strings.ToLower(name), names, "-"); other != "" {
			text += ", did you mean --" + other + "?"
		}
	}
	for _, word := range []struct{ parsers, ours string }{
		{`expected \S+ value but got ("-.*") \(.*`, `cannot use $1`},
		{`missing value.*`, `wants a value`},
		{`expected a counter but got (".*?") \(\w+\)`, `cannot use $1: want a number`},
		{`^--\S+: (.*) \(from envar (\w+)=.*`, `$2: $1`},
	} {
		text = regexp.MustCompile(word.parsers).ReplaceAllString(text, word.ours)
	}
	return errors.New(text)
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

// contradiction says which flags do not go together, or need a value. given are the flags of the command line; a
// variable may be set for the sake of another command.
func (c *Options) contradiction(given map[string]bool) error {
	isFlag := func(value string) bool { return value == "" || value[0] == '-' && len(value) > 1 }
	switch {
	case c.Pause && len(c.Command) > 0:
		return fmt.Errorf("--pause runs no command: cannot use %q", c.Command[0])
	case c.Install != nil && len(c.Command) > 0:
		return fmt.Errorf("--install runs no command: cannot use %q", c.Command[0])
	case given["quiet"] && given["verbose"]:
		return errors.New("--quiet and --verbose can't be used together")
	case given["pause"] && given["stdin-eof"]:
		return errors.New("--stdin-eof and --pause can't be used together: --pause runs no command to stop")
	case given["report"] && isFlag(c.Report):
		return fmt.Errorf("--report: cannot use %q: want a FILE, or - for standard output", c.Report)
	case c.Install != nil && isFlag(*c.Install):
		return fmt.Errorf("--install: cannot use %q: want a PATH, as in --install=/shared/fini", *c.Install)
	}
	return nil
}

// Hint guesses what the user meant by a command that was not found. It returns "" for no guess.
func Hint(command []string) string {
	name := command[0]
	first, _, blanks := strings.Cut(name, " ")
	switch {
	case strings.HasPrefix(name, "-") && len(name) > 1:
		return "fini's flags go before the --, and one -- is taken off"
	case strings.HasPrefix(name, "\u2013") || strings.HasPrefix(name, "\u2014") || strings.HasPrefix(name, "\u2212"):
		flag := "-" + strings.TrimLeft(name, "\u2013\u2014\u2212")
		if len(flag) > 2 {
			flag = "-" + flag
		}
		return "it begins with a dash that is not -: did you mean " + flag + "?"
	case slices.Contains([]string{"help", "version", "license"}, name):
		return "did you mean fini --" + name + "?"
	case name == "try":
		return "did you mean --isolate=try?"
	case strings.Contains(shellWords, " "+name+" "):
		return name + " is a word of the shell: fini -- sh -c " + shellQuoted(strings.Join(command, " "))
	case strings.Contains(bashWords, " "+name+" "):
		return name + " is a word of bash: fini -- bash -c " + shellQuoted(strings.Join(command, " "))
	case regexp.MustCompile(`^[A-Za-z_]\w*=`).MatchString(name) && !blanks:
		return "to set a variable: fini -- env " + strings.Join(append([]string{name}, command[1:min(2, len(command))]...), " ")
	case name == "":
		return ""
	case strings.ContainsAny(name, "|&;<>()$`*\n") || strings.HasPrefix(name, "~/"),
		blanks && first != "" && (!strings.Contains(first, "/") || isFile(first)):
		return "for a shell line: fini -- sh -c " + shellQuoted(name)
	case !strings.Contains(name, "/") && isFile(name):
		return "./" + name + " is here: write ./" + name
	}
	return ""
}

// Words of sh, and words that only bash has. On most systems there is no program of that name.
const (
	shellWords = " cd export . ulimit eval exec exit set unset shift trap umask alias unalias if for while until case " +
		"return break continue local readonly read wait jobs fg bg type command times hash ! { : "
	bashWords = " source function builtin declare typeset let pushd popd shopt history disown [[ "
)

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// shellQuoted quotes a line so that a shell reads it as one word. A line that is too long for a message becomes '...'.
func shellQuoted(line string) string {
	const most = 200
	if len(line) > most {
		return "'...'"
	}
	return "'" + strings.ReplaceAll(line, "'", `'\''`) + "'"
}

// nearest returns the name that the user likely meant, or "". sep joins the parts of a name.
func nearest(name string, names []string, sep string) (best string) {
	name = strings.TrimPrefix(name, "FINI_")
	least := len(name)
	for _, full := range names {
		other := strings.TrimPrefix(full, "FINI_")
		letters := distance(name, other)
		isPart := strings.HasPrefix(other, name+sep) || strings.HasPrefix(name, other+sep) || strings.HasSuffix(name, sep+other)
		if isPart {
			letters = min(letters, 2)
		}
		if (isPart || letters <= len(name)/4) && letters < least {
			best, least = full, letters
		}
	}
	return best
}

// distance counts the letters that must be inserted, removed, replaced, or swapped with the next, to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1) // rows[i][j] is the distance of a[:i] and b[:j]
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}
