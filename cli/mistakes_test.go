package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// No mistake is answered by words that only a programmer understands. The mistakes are: a flag without a value, with an
// empty value, or with another flag or "--" as its value; with one dash; with a letter too many, or in capitals. Then a
// variable with a wrong value.
func TestNoTextOfTheParsers(t *testing.T) {
	parsers := regexp.MustCompile(`expected|EOL|envar|long flag\)|perhaps|<|%!|positional|unexpected|strconv`)
	var lines [][]string
	for flag := range usageFlags(t) {
		lines = append(lines, []string{flag}, []string{flag, "--", "x"}, []string{flag, "--grace", "x"}, []string{flag, "-v", "x"},
			[]string{flag + "=", "x"}, []string{flag + "=\x01", "x"}, []string{flag, "", "x"}, []string{flag + "=maybe", "x"},
			[]string{flag + "zz", "x"}, []string{strings.ToUpper(flag), "x"}, []string{"-" + flag, "x"}, []string{flag + " 5", "x"})
		name, long := strings.CutPrefix(flag, "--")
		if !long {
			continue
		}
		lines = append(lines, []string{"-" + name, "x"}, []string{"--no-" + name, "x"}, []string{"--no" + name, "x"})
		for _, value := range []string{"maybe", " ", "a b", "-1"} {
			withoutVariables(t, map[string]string{"FINI_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")): value})
			if _, err := Parse([]string{"x"}, os.Environ()); err != nil && parsers.MatchString(err.Error()) {
				t.Errorf("%s from %q: %v", name, value, err)
			}
		}
	}
	withoutVariables(t, nil)
	mistakes := 0
	for _, args := range lines {
		_, err := Parse(args, nil)
		if err == nil {
			continue
		}
		mistakes++
		text := err.Error()
		whole := strings.HasSuffix(text, "see fini --help") || strings.Contains(text, "runs no command")
		if parsers.MatchString(text) || strings.Contains(text, "\n") || !whole {
			t.Errorf("%q: %s", args, text)
		}
	}
	if mistakes < 200 {
		t.Errorf("only %d mistakes", mistakes)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		says string // "" for nothing
	}{
		{[]string{"-q", "-v", "x"}, nil, "--quiet and --verbose can't be used together"},
		{[]string{"-P", "-i"}, nil, "--stdin-eof and --pause can't be used together"},
		{[]string{"--noshield", "--", "x"}, nil, `unknown flag --noshield, did you mean --no-shield?`},
		{[]string{"-z", "--", "x"}, nil, "unknown flag -z"},
		{[]string{"--orphans=some", "--", "x"}, nil, `--orphans: cannot use "some": want stop, pipes, wait or leave; see`},
		{[]string{"-r", "TERM", "--", "x"}, nil, `--rewrite: cannot use "TERM": want FROM:TO`},
		{[]string{"-r", "KILL:TERM", "--", "x"}, nil, `--rewrite: cannot use "KILL:TERM": SIGKILL can't be caught`},
		{[]string{"-r", "TERM:FOO", "--", "x"}, nil, `--rewrite: cannot use signal "FOO"`},
		{[]string{"--allow-orphans=x", "--", "x"}, nil, `did you mean --allow-orphan?`},
		{[]string{"--report", "--", "x"}, nil, `--report: cannot use "--": want a FILE, or - for standard output; see`},
		{[]string{"-it"}, nil, `cannot use -i and -t as docker's: here -t is --timeout=DUR`},
		{[]string{"-ti", "image"}, nil, `cannot use -i and -t as docker's: here -t is --timeout=DUR`},
		{[]string{"-t=5s", "--", "x"}, nil, `--timeout: cannot use "=5s": want a duration`},
		{[]string{"-i=1", "--", "x"}, nil, `unknown flag -=;`},
		{[]string{"--grace 5s", "--", "x"}, nil, `unknown flag --grace 5s;`},
		{[]string{"-e"}, nil, `--remap-exit: cannot use "": want an exit status from 0 to 255; see`},
		{[]string{"-help"}, nil, `cannot use -help: long flags have two dashes: --help;`},
		{[]string{"-verbose", "x"}, nil, `cannot use -verbose: long flags have two dashes: --verbose;`},
		{[]string{"-vt", "x", "y"}, nil, `--timeout: cannot use "x": want a duration`},
		{[]string{"-v-help", "x"}, nil, `--verbose: cannot use "-help": want a number`},
		{[]string{"-é", "x"}, nil, `unknown flag -é;`},
		{[]string{"--no-shield=maybe", "x"}, nil, `--no-shield: cannot use "maybe": want true, 1, yes, false, 0 or no;`},
		{[]string{"--gracee=5", "x"}, nil, `unknown flag --gracee, did you mean --grace?`},
		{[]string{"x"}, map[string]string{"FINI_ORPHANS": "some"}, `FINI_ORPHANS: cannot use "some": want stop, pipes, wait or leave;`},
		{[]string{"x"}, map[string]string{"FINI_PAUSE": "1"}, `--pause runs no command: cannot use "x"`},
		{[]string{"--install", "-v"}, nil, `--install: cannot use "-v": want a PATH`},
		{[]string{"--install="}, nil, "want a PATH"},
		{[]string{"--report=", "x"}, nil, "or - for standard output"},
		{[]string{"-v", "x"}, map[string]string{"FINI_QUIET": "1"}, ""},
		{[]string{"-q", "x"}, map[string]string{"FINI_VERBOSE": "1"}, ""},
		{[]string{"-P"}, map[string]string{"FINI_STDIN_EOF": "1"}, ""},
		{[]string{"-t", "-1", "--", "x"}, nil, `--timeout: cannot use "-1": a duration can't be negative; see`},
		{[]string{"--help", "x"}, map[string]string{"FINI_TIMEOUT": "1x"}, `FINI_TIMEOUT: cannot use "1x"`},
	} {
		withoutVariables(t, c.env)
		parsed, err := Parse(c.args, os.Environ())
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: %v, want %q", c.args, err, c.says)
		case c.says == "" && err != nil:
			t.Errorf("%q with %v: %v", c.args, c.env, err)
		case c.says == "" && parsed.Quiet != (c.args[0] == "-q"):
			t.Errorf("%q with %v: quiet is %v", c.args, c.env, parsed.Quiet)
		}
	}
}

func TestHint(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"server", "my"} {
		if err := os.WriteFile(name, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("src", 0o755); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("my")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string // its words, with | between
		want    string
	}{
		{"echo hi", "for a shell line: fini -- sh -c 'echo hi'"},
		{"echo 'hi'", `for a shell line: fini -- sh -c 'echo '\''hi'\'''`},
		{"a;b", "for a shell line: fini -- sh -c 'a;b'"},
		{here + " app", "for a shell line: fini -- sh -c '" + here + " app'"},
		{"/no such/app", ""},
		{"~/app", "for a shell line: fini -- sh -c '~/app'"},
		{strings.Repeat("long ", 100), "for a shell line: fini -- sh -c '...'"},
		{"cd|/tmp", "cd is a word of the shell: fini -- sh -c 'cd /tmp'"},
		{"source|x", "source is a word of bash: fini -- bash -c 'source x'"},
		{"A=1|make|all", "to set a variable: fini -- env A=1 make"},
		{"help", "did you mean fini --help?"},
		{"version", "did you mean fini --version?"},
		{"try|x", "did you mean --isolate=try?"},
		{"--|x", "fini's flags go before the --, and one -- is taken off"},
		{"\u2014timeout=5s", "it begins with a dash that is not -: did you mean --timeout=5s?"},
		{"\u2013t", "it begins with a dash that is not -: did you mean -t?"},
		{"server|x", "./server is here: write ./server"},
		{"src", ""}, {"", ""}, {" ", ""}, {"-", ""}, {"mkae", ""}, {"./nope", ""},
	} {
		if got := Hint(strings.Split(c.command, "|")); got != c.want {
			t.Errorf("%q: %q, want %q", c.command, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"grace", "grace", 0}, {"graec", "grace", 1}, {"garce", "grace", 1},
		{"gracee", "grace", 1}, {"grac", "grace", 1}, {"grade", "grace", 1}, {"ecarg", "grace", 4},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
