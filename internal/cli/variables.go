package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// variables give kong the values of FINI_ variables. The Go runtime has none: see package entry.
type variables struct {
	flags []*kong.Flag
	of    map[string]string // the value of a variable
	last  *kong.Flag        // the flag whose variable kong got last
}

// variable returns the name of a flag's variable, "" for none.
func variable(flag *kong.Flag) string {
	if flag.Tag.Get("variable") == "-" {
		return ""
	}
	return "FINI_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
}

// Resolve is called for each flag that is not on the command line. A flag wins over its variable, and over that of a flag
// that it excludes.
func (v *variables) Resolve(line *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v.last = nil
	value, set := v.of[variable(flag)]
	excluded := slices.ContainsFunc(v.flags, func(other *kong.Flag) bool {
		return other != flag && other.Set && slices.ContainsFunc(other.Xor, func(x string) bool { return slices.Contains(flag.Xor, x) })
	})
	if !set || excluded || answers(line) {
		return nil, nil
	}
	v.last = flag
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

// names returns the long names of all flags.
func (v *variables) names() (all []string) {
	for _, flag := range v.flags {
		if len(flag.Name) > 1 {
			all = append(all, flag.Name)
		}
		if flag.Tag.Negatable != "" {
			all = append(all, "no-"+flag.Name)
		}
	}
	return all
}

// misspelt returns a line for each variable that sets nothing, but whose name is nearly the name of a variable that does,
// or that another init would have obeyed.
func (v *variables) misspelt(environ []string) (lines []string) {
	for _, text := range environ {
		name, value, _ := strings.Cut(text, "=")
		says, meant := text, otherInits[text]
		if short, ours := strings.CutPrefix(name, "FINI_"); ours && value != "" && short != "TEST" { // package report reads FINI_TEST
			says, meant = name, v.variableNear(strings.ReplaceAll(short, "_", "-"))
		}
		if meant != "" && meant != name {
			lines = append(lines, fmt.Sprintf("%s sets nothing: did you mean %s?", says, meant))
		}
	}
	return lines
}

// variableNear returns the variable of the flag whose name is nearest. For --no-x it is FINI_X=0, which does the same.
func (v *variables) variableNear(name string) string {
	name = v.nearest(name)
	positive, negated := strings.CutPrefix(name, "no-")
	for _, flag := range v.flags {
		switch {
		case flag.Name == name:
			return variable(flag)
		case negated && flag.Name == positive:
			return variable(flag) + "=0"
		}
	}
	return ""
}
