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

// contradiction says which flags do not go together, or need a value. It does not look at variables, because a variable
// may be set for the sake of another command.
func (c *Options) contradiction(t table) error {
	switch {
	case c.Install != "" && len(c.Command) > 0:
		return fmt.Errorf("--install runs no command: cannot use %q", c.Command[0])
	case t.find("--quiet").given && t.find("--verbose").given:
		return errors.New("--quiet and --verbose can't be used together")
	case t.find("--pause").given && t.find("--stdin-eof").given:
		return errors.New("--stdin-eof and --pause can't be used together: --pause runs no command to stop")
	}
	return nil
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

// nearest returns the flag whose long name the user likely meant, or nil.
func (t table) nearest(name string) (best *flag) {
	name = strings.ToLower(name)
	if f := t.find("--" + name); f != nil {
		return f
	}
	least := 3
	for i, f := range t {
		letters := differing(name, f.long)
		if strings.HasPrefix(f.long, name+"-") || strings.HasPrefix(name, f.long+"-") || strings.HasSuffix(name, "-"+f.long) {
			letters = min(letters, 2)
		}
		if letters < least && len(name) > 3 {
			best, least = &t[i], letters
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
