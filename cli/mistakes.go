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
		if !strings.HasPrefix(name, "FINI_") {
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
		_ = os.Setenv(name, value)                               // for kong: see reaper.Getenv
		if slices.Contains(names, name) || name == "FINI_TEST" { // see hints
			continue
		}
		if other := nearest(name, names, "_"); other != "" {
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
	for _, word := range []struct{ parsers, ours string }{
		{`: (expected value value|missing value).*`, `: wants a value`},
		{`bool value must be .* but got (".*?")`, `cannot use $1: want 0 or 1`},
		{`expected a counter but got (".*?") \(\w+\)`, `cannot use $1: want a number`},
		{`^--\S+: (.*) \(from envar (\w+)=.*`, `$2: $1`},
	} {
		text = regexp.MustCompile(word.parsers).ReplaceAllString(text, word.ours)
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
		if other := nearest(name, names, "-"); other != "" {
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
			value = value || (long && !joined || short) && !flag.IsBool() && !flag.IsCounter()
		}
	}
	return ""
}

// NoCommand says that there is no command, and which flag has taken what was meant to be one.
func NoCommand(args []string) error {
	if n := len(args); n > 1 && args[n-2] != "--" && strings.HasPrefix(args[n-2], "-") && !strings.HasPrefix(args[n-1], "-") {
		flag := args[n-2]
		if !strings.HasPrefix(flag, "--") {
			flag = "-" + flag[len(flag)-1:]
		}
		value := "value"
		if m := regexp.MustCompile(`(?m)^ .*` + flag + `[^-a-z ]*(?:, .*?)?=([A-Z:]+)`).FindStringSubmatch(Usage); m != nil {
			value = m[1]
		}
		return fmt.Errorf("%s took %q as its %s; no command is left", flag, args[n-1], value)
	}
	return errors.New("no command: want one behind the flags, as in fini -- make test; see fini --help")
}

// nearest is the name that another one is likely meant to be, or "". The parts of a name are
// joined by sep.
func nearest(name string, names []string, sep string) (best string) {
	name = strings.TrimPrefix(name, "FINI_")
	most := len(name)/4 + 1
	for _, full := range names {
		other := strings.TrimPrefix(full, "FINI_")
		d := distance(name, other)
		if strings.HasPrefix(other, name+sep) || strings.HasPrefix(name, other+sep) || strings.HasSuffix(name, sep+other) {
			d = 0 // a part was left out, or is too much
		}
		if d < most {
			best, most = full, d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
