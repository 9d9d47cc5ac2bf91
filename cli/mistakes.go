package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// This file has the messages about command lines and variables that fini can't use.

// unknown says that no flag has this name, and which long name is near.
func (t table) unknown(name string) error {
	if f := t.nearest(name[len("--"):]); f != nil {
		return fmt.Errorf("unknown flag %s, did you mean --%s?", name, f.long)
	}
	return fmt.Errorf("unknown flag %s", name)
}

// meant returns an error about a word of flags, or a clearer one if the user meant something else by the word.
func (t table) meant(word string, err error) error {
	name, _, _ := strings.Cut("-"+word, "=")
	switch {
	case t.find(name) != nil:
		return fmt.Errorf("cannot use %s: long flags have two dashes: -%s", word, word)
	case word == "-ti" || word == "-it":
		return errors.New("cannot use -i and -t as docker's: here -t is --timeout=DUR and -i is --stdin-eof; a terminal needs neither")
	}
	return err
}

// otherInits has the variables by which tini or dumb-init would have done something that fini does not do.
var otherInits = []struct{ theirs, ours string }{
	{"DUMB_INIT_SETSID=0", "FINI_SINGLE_CHILD=1"}, {"DUMB_INIT_DEBUG=1", "FINI_VERBOSE=1"},
	{"TINI_VERBOSITY=0", "FINI_QUIET=1"}, {"TINI_VERBOSITY=2", "FINI_VERBOSE=1"}, {"TINI_VERBOSITY=3", "FINI_VERBOSE=2"},
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

// contradiction says which flags do not go together, or need a value. It does not look at variables, because a variable
// may be set for the sake of another command.
func (c *Options) contradiction(t table) error {
	isFlag := func(value string) bool { return value == "" || value[0] == '-' && len(value) > 1 }
	switch {
	case c.Install != nil && len(c.Command) > 0:
		return fmt.Errorf("--install runs no command: cannot use %q", c.Command[0])
	case t.find("--quiet").given && t.find("--verbose").given:
		return errors.New("--quiet and --verbose can't be used together")
	case t.find("--pause").given && t.find("--stdin-eof").given:
		return errors.New("--stdin-eof and --pause can't be used together: --pause runs no command to stop")
	case t.find("--report").given && isFlag(c.Report):
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
	variable, _, assigned := strings.Cut(strings.ToUpper(name), "=")
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
	case assigned && variable != "" && strings.Trim(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" && !blanks:
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

// nearest returns the flag whose long name the user likely meant, or nil.
func (t table) nearest(name string) (best *flag) {
	name = strings.ToLower(name)
	if f := t.find("--" + name); f != nil {
		return f
	}
	least := len(name)
	for i, f := range t {
		letters := distance(name, f.long)
		isPart := strings.HasPrefix(f.long, name+"-") || strings.HasPrefix(name, f.long+"-") || strings.HasSuffix(name, "-"+f.long)
		if isPart {
			letters = min(letters, 2)
		}
		if (isPart || letters <= len(name)/4) && letters < least {
			best, least = &t[i], letters
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
