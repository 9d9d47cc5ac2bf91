package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// What a user is told of a command line or a variable that can't be used.

// betweenValues stands between the values of a variable. There are spaces in the environment, but a name on
// the command line may have one.
const betweenValues = "\x1f"

// setVariables gives the variables to the parser, and says which ones are nearly the
// name of one.
func setVariables(flags []*kong.Flag, environ []string) (misspelt []string) {
	var names, several []string
	for _, flag := range flags {
		if !flag.Hidden {
			names = append(names, flag.Envs...)
		}
		if flag.Target.Kind() == reflect.Slice {
			several = append(several, flag.Envs...)
		}
	}
	for _, variable := range slices.Backward(environ) { // of two, the first counts
		name, value, _ := strings.Cut(variable, "=")
		if !setsFlag(name) {
			continue
		}
		if value == "" { // what a compose file sets to nothing is not set
			_ = os.Unsetenv(name)
			continue
		}
		if name == "FINI_VERBOSE" { // a number, and yet one of the switches
			value = cmp.Or(map[string]string{"true": "1", "yes": "1", "false": "0", "no": "0"}[value], value)
		}
		if words := strings.Fields(value); slices.Contains(several, name) && len(words) > 0 {
			value = strings.Join(words, betweenValues)
		}
		_ = os.Setenv(name, value) // for kong: see reaper.Getenv
		if slices.Contains(names, name) {
			continue
		}
		if other := nearest(name, names, "_"); other != "" {
			if strings.HasPrefix(name, "FINI_NO") && (other == "FINI_SHIELD" || other == "FINI_FOREGROUND") {
				other += "=0"
			}
			misspelt = append(misspelt, fmt.Sprintf("%s sets nothing: did you mean %s?", name, other))
		}
	}
	return misspelt
}

// explain is an error of the parser in fini's words, one line.
func explain(err error, flags []*kong.Flag, args []string) string {
	if text := oneDash(flags, args); text != "" {
		return text
	}
	text, _, _ := strings.Cut(err.Error(), ", did you mean")
	if strings.HasPrefix(text, "--timeout:") && dockers(args) {
		return "cannot use -i and -t as docker's: here -t is --timeout=DUR and -i is --stdin-eof; a terminal needs neither"
	}
	for _, word := range []struct{ parsers, ours string }{
		{`: expected \S+ value but got ("-\d.*?") .*`, `: cannot use $1: wants a value`},
		{`: (expected \S+ value but got|expected value value|missing value).*`, `: wants a value`},
		{`bool value must be .* but got (".*?")`, `cannot use $1: want 0 or 1`},
		{`expected a counter but got (".*?") \(\w+\)`, `cannot use $1: want a number`},
		{`^--\S+: (.*) \(from envar (\w+)=.*`, `$2: $1`},
	} {
		text = regexp.MustCompile(word.parsers).ReplaceAllString(text, word.ours)
	}
	if flag, _, _ := strings.Cut(text, ":"); strings.HasSuffix(text, ": wants a value") {
		text += ": " + flag + "=" + valueOf(flag)
	}
	if letter, unknown := strings.CutPrefix(text, "unknown flag -"); unknown && !strings.HasPrefix(letter, "-") {
		if word := joined(letter, args); word != "" {
			text += " in " + word
		}
	}
	if name, unknown := strings.CutPrefix(text, "unknown flag --"); unknown {
		var names []string
		for _, flag := range flags {
			if !flag.Hidden {
				names = append(names, flag.Name)
			}
			if flag.Tag.Negatable != "" {
				names = append(names, "no-"+flag.Name)
			}
		}
		word, value, apart := strings.Cut(name, " ")
		switch other := nearest(strings.ToLower(word), names, "-"); {
		case apart && other != "": // in one word, as an image's ENTRYPOINT may have it
			text = fmt.Sprintf("unknown flag %q, did you mean --%s=%s?", "--"+name, other, value)
		case slices.ContainsFunc(flags, func(f *kong.Flag) bool { return len(name) == 1 && f.Short == rune(name[0]) }):
			text += ", did you mean -" + name + "?"
		case other != "":
			text += ", did you mean --" + other + "?"
		}
	}
	return text
}

// oneDash finds a long flag that was given with one dash, as flags of Go programs are: it reads
// as letters.
func oneDash(flags []*kong.Flag, args []string) string {
	value := false // the next word is one
	for _, word := range args {
		if value {
			value = false
			continue
		}
		if word == "--" || len(word) < 2 || word[0] != '-' {
			break
		}
		name, _, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		for _, flag := range flags {
			long := name == flag.Name || flag.Tag.Negatable != "" && name == "no-"+flag.Name
			if long && word[1] != '-' && len(name) > 1 && !flag.Hidden {
				return fmt.Sprintf("cannot use %s: long flags have two dashes: -%s", word, word)
			}
			short := word[1] != '-' && flag.Short == rune(word[len(word)-1])
			if len(word) > 2 && word[1] != '-' && word[2] == '=' && flag.Short == rune(word[1]) {
				if flag.IsBool() || flag.IsCounter() {
					return fmt.Sprintf("cannot use %s: -%c takes no value", word, flag.Short)
				}
				return fmt.Sprintf("cannot use %s: behind a letter there is no =: -%c %s", word, flag.Short, word[3:])
			}
			value = value || (long && !joined || short) && !flag.IsBool() && !flag.IsCounter()
		}
	}
	return ""
}

// dockers reports whether there are both -i and -t before the command, as docker run has them.
func dockers(args []string) bool {
	letters := ""
	for _, word := range args {
		if len(word) < 2 || word[0] != '-' || word[1] == '-' {
			break
		}
		letters += word[1:]
	}
	return strings.TrimLeft(letters, "it") == "" && strings.Contains(letters, "i") && strings.Contains(letters, "t")
}

// joined is the word of several letters that begins with flags and has this letter, "" for none.
func joined(letter string, args []string) string {
	for _, word := range args {
		if word == "--" {
			break
		}
		if len(word) > 2 && word[0] == '-' && word[1] != '-' && strings.Contains(word, letter) {
			return word
		}
	}
	return ""
}

// valueOf is what the usage calls the value of a flag.
func valueOf(flag string) string {
	if m := regexp.MustCompile(`(?m)^ .*` + flag + `[^-a-z ]*(?:, .*?)?=([A-Z:]+)`).FindStringSubmatch(Usage); m != nil {
		return m[1]
	}
	return "value"
}

// NoCommand says that there is no command, and which flag has taken what was meant to be one.
func NoCommand(args []string) error {
	if n := len(args); n > 1 && args[n-2] != "--" && strings.HasPrefix(args[n-2], "-") && !strings.HasPrefix(args[n-1], "-") {
		flag := args[n-2]
		if !strings.HasPrefix(flag, "--") {
			flag = "-" + flag[len(flag)-1:]
		}
		return fmt.Errorf("%s took %q as its %s; no command is left", flag, args[n-1], valueOf(flag))
	}
	// Without the brackets a shell starts fini, and Docker gives the CMD to that.
	if os.Getpid() == 1 {
		return errors.New(`no command: an image wants ENTRYPOINT ["/fini", "--"], with the brackets, and a CMD; see fini --help`)
	}
	return errors.New("no command: want one behind the flags, as in fini -- make test; see fini --help")
}

// contradiction is what is wrong with flags that are each right. Those of the command line are given; a
// variable may be there for others.
func (c *Options) contradiction(given map[string]bool) error {
	what := ""
	switch {
	case c.Pause && len(c.Command) > 0:
		return fmt.Errorf("--pause runs no command: cannot use %q", c.Command[0])
	case c.Install != nil && len(c.Command) > 0:
		return fmt.Errorf("--install runs no command: cannot use %q", c.Command[0])
	case given["quiet"] && given["verbose"]:
		what = "cannot use --quiet with --verbose: want one of them"
	case given["pause"] && given["stdin-eof"]:
		what = "cannot use --stdin-eof with --pause, which runs no command to stop: leave one of them out"
	case given["report"] && c.Report == "":
		what = `--report: cannot use "": want a FILE, or - for standard output`
	case c.Install != nil && *c.Install == "":
		what = `--install: cannot use "": want a PATH, as in --install=/shared/fini`
	default:
		return nil
	}
	return errors.New(what + "; see fini --help")
}

// Hint is what a user who gave this command may have meant, "" for no idea. It was not found.
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

// Words that a shell takes for itself, and that are no programs on most systems: sh, and what only bash has.
const (
	shellWords = " cd export . ulimit eval exec exit set unset shift trap umask alias unalias if for while until case " +
		"return break continue local readonly read wait jobs fg bg type command times hash ! { : "
	bashWords = " source function builtin declare typeset let pushd popd shopt history disown [[ "
)

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// shellQuoted is a line as one word of a shell, cut to what fits into a line of fini's.
func shellQuoted(line string) string {
	const most = 200
	if len(line) > most {
		return "'...'"
	}
	return "'" + strings.ReplaceAll(line, "'", `'\''`) + "'"
}

// nearest is the name that another one is likely meant to be, or "". The parts of a name are
// joined by sep.
func nearest(name string, names []string, sep string) (best string) {
	name = strings.TrimPrefix(name, "FINI_")
	const aPart = 3 // in half letters: less likely than one wrong letter, which costs 2
	letters := len(name)/4 + 1
	least := max(2*letters, aPart+1)
	for _, full := range names {
		other := strings.TrimPrefix(full, "FINI_")
		d := distance(name, other)
		cost := 2 * d
		if d >= letters {
			cost = least
		}
		if strings.HasPrefix(other, name+sep) || strings.HasPrefix(name, other+sep) || strings.HasSuffix(name, sep+other) {
			cost = min(cost, aPart) // it was left out, or is too much
		}
		if cost < least {
			best, least = full, cost
		}
	}
	return best
}

// distance is how many letters must be put in, taken out, replaced, or swapped with the next to make b of a.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(row))
		next[0] = i + 1
		for j := range len(b) {
			d := row[j]
			if a[i] != b[j] {
				d = 1 + min(d, row[j+1], next[j])
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, 1+before[j-1])
			}
			next[j+1] = d
		}
		before, row = row, next
	}
	return row[len(b)]
}
