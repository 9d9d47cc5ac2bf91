package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// No mistake is answered by words that only a programmer understands. The mistakes are: a flag without a value, with an
// empty value, or with another flag or "--" as its value; with one dash; with a letter too many, or in capitals. Then a
// variable with a wrong value.
func TestNoTextOfTheParsers(t *testing.T) {
	parsers := regexp.MustCompile(`expected|EOL|envar|long flag\)|perhaps|<|%!|positional|unexpected|strconv`)
	mistakes := 0
	try := func(variables []string, args ...string) {
		_, err := parse(args, variables)
		if err == nil {
			return // it is no mistake
		}
		mistakes++
		if text := err.Error(); parsers.MatchString(text) || strings.Contains(text, "\n") || !strings.HasSuffix(text, "; see fini --help") {
			t.Errorf("%q %q: %s", variables, args, text)
		}
	}
	for _, flag := range flagNames() {
		try(nil, flag)
		for _, word := range []string{"--", "--grace", "-v", ""} {
			try(nil, flag, word, "x")
		}
		for _, word := range []string{flag + "=", flag + "=\x01", flag + "=maybe", flag + "zz", strings.ToUpper(flag), "-" + flag, flag + " 5"} {
			try(nil, word, "x")
		}
		if name, long := strings.CutPrefix(flag, "--"); long {
			for _, word := range []string{"-" + name, "--no-" + name, "--no" + name} {
				try(nil, word, "x")
			}
			for _, value := range []string{"maybe", " ", "a b", "-1"} {
				try([]string{"FINI_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=" + value}, "x")
			}
		}
	}
	if mistakes < 200 {
		t.Errorf("only %d mistakes", mistakes)
	}
}

// An error names the operand and the remedy. All lines of a row are answered alike.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ lines, says string }{
		{"fini --nope x", "unknown flag --nope; see fini --help"},
		{"fini --no-quiet", "unknown flag --no-quiet"},
		{"fini -cZ x | fini -Z java -version", "unknown flag -Z;"},
		{"fini -é x", "unknown flag -é;"},
		{"fini -i=1 -- x", "unknown flag -=;"},
		{"fini '--grace 5s' -- x", "unknown flag --grace 5s"},
		{"fini --gracee=5 x", "unknown flag --gracee, did you mean \"--grace\"?"},
		{"fini --st x", "unknown flag --st, did you mean one of \"--stdin-eof\", \"--stop-"},
		{"fini --os x", "unknown flag --os;"},
		{"fini --orphan-timeout=99ms x", "--orphan-timeout: cannot use \"99ms\": want a duration of at least 100ms, or 0 for none;"},
		{"fini --orphan-timeout=x x", "--orphan-timeout: cannot use \"x\": want a duration such as 500ms"},
		{"fini --orphan-timeout=1s --orphans=leave x | FINI_ORPHANS=leave fini --orphan-timeout=1s x",
			"--orphan-timeout stops orphans, and --orphans=leave stops nothing: want one of the two;"},
		{"fini --no-sheild x", "unknown flag --no-sheild, did you mean \"--no-shield\"?"},
		{"fini --noshield x", "did you mean \"--no-shield\"?"},
		{"fini --isolate x", "unknown flag --isolate; see"},
		{"fini -help", "cannot use -help: long flags have two dashes: --help;"},
		{"fini -timeout=5s x", "two dashes: --timeout=5s;"},
		{"fini -i -e 1 -no-shield x", "two dashes: --no-shield;"},
		{"fini -v-help x", `cannot use "-v-help": want each flag as a word of its own`},

		{"fini --grace", `--grace: cannot use "": want a duration`},
		{"fini -t --grace=5s x", `--timeout: cannot use "--grace=5s": want a duration`},
		{"fini -t=5s x", `--timeout: cannot use "=5s": want a duration`},
		{"fini -vt x y", `--timeout: cannot use "x": want a duration`},
		{"fini --orphans=x java -timeout | fini --orphans x", `--orphans must be one of "stop","pipes","wait","leave" but got "x"`},
		{"fini --orphans", `--orphans must be one of "stop","pipes","wait","leave" but got ""`},
		{"FINI_ORPHANS=STOP fini x", `FINI_ORPHANS must be one of "stop","pipes","wait","leave" but got "STOP"`},
		{"fini -e", `--remap-exit: cannot use "": want an exit status`},
		{"fini -e 1 -e +1", `--remap-exit: cannot use "+1": want an exit status`},
		{"fini --allow-orphan -v x", `--allow-orphan: cannot use "-v": want the name`},
		{"fini --report -- x", `--report: cannot use "--": want a PATH`},
		{"fini --install -v", `--install: cannot use "-v": want a PATH, or ./PATH if it begins with a dash; see`},
		{"fini -p FOO", `--pdeathsig: cannot use signal "FOO"`},
		{"fini --pdeathsig=0", "or none; see"},
		{"fini -r TERM", `--rewrite: cannot use "TERM": want FROM:TO`},
		{"fini -r KILL:TERM", `--rewrite: cannot use "KILL:TERM": SIGKILL can't be caught`},
		{"fini -r TERM:FOO", `--rewrite: cannot use signal "FOO"`},
		{"fini --stop-signal=TERM,FOO", `--stop-signal: cannot use signal "FOO": want a name`},
		{"fini --stop-signal=", `--stop-signal: cannot use signal "": want a name`},
		{"FINI_STOP_SIGNAL=none fini", `FINI_STOP_SIGNAL: cannot use signal "none": want a name`},
		{"fini --quiet=perhaps", `--quiet: cannot use "perhaps": want true, 1, yes, false, 0 or no`},
		{"fini --no-shield=maybe", `--no-shield: cannot use "maybe": want true, 1, yes, false, 0 or no`},
		{"FINI_SHIELD=perhaps fini", `FINI_SHIELD: cannot use "perhaps": want true, 1, yes, false, 0 or no`},

		{"fini -q -v x", "--quiet and --verbose can't be used together"},
		{"fini -P -i", "--pause and --stdin-eof can't be used together"},
		{"fini -P --idle=1h", "--pause and --idle can't be used together"},
		{"fini -g -c x", "--single-child and -g can't be used together"},
		{"fini --install=/x y", `--install runs no command: cannot use "y"`},
		{"FINI_PAUSE=1 fini x", `FINI_PAUSE runs no command: cannot use "x"`},
	} {
		for line := range strings.SplitSeq(c.lines, " | ") {
			mistaken(t, line, c.says)
		}
	}
}

// What a flag can't use, its variable can't use either.
func TestValues(t *testing.T) {
	for flag, c := range map[string]struct{ wants, values string }{
		"--grace":        {"a duration such as 500ms, 5s or 1m, a number of seconds, or 1d", " 5x"},
		"--orphans-exit": {"an exit status from 0 to 255", "256 -1"},
		"--remap-exit":   {"an exit status from 0 to 255", "143,130"},
		"--bind":         {"the pid of a process", ""},
		"--verbose":      {"a number", "x"},
		"--report":       {"a PATH, or ./PATH if it begins with a dash", ""},
		"--allow-orphan": {"the name of a program, a pattern of names such as gpg-*, cmd:PATTERN or env:NAME=VALUE, and the flag again for the next",
			" cmd: cmd:[a env:A env:=x java,gpg-agent /bin/x [a"},
	} {
		variable := "FINI_" + strings.ToUpper(strings.ReplaceAll(flag[2:], "-", "_"))
		for value := range strings.SplitSeq(c.values, " ") {
			says := fmt.Sprintf(": cannot use %q: want %s; see fini --help", value, c.wants)
			mistaken(t, "fini "+flag+"="+value+" x", flag+says)
			if value != "" { // such a variable is not set
				mistaken(t, variable+"="+value+" fini x", variable+says)
			}
		}
	}
}

// mistaken runs a line, which is answered by one line with these words.
func mistaken(t *testing.T, line, says string) {
	t.Helper()
	if got, err := run(line); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %+v, %v, want %q", line, got, err, says)
	}
}
