package cli

import (
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
	for _, flag := range flagNames() {
		lines = append(lines, []string{flag}, []string{flag, "--", "x"}, []string{flag, "--grace", "x"}, []string{flag, "-v", "x"},
			[]string{flag + "=", "x"}, []string{flag + "=\x01", "x"}, []string{flag, "", "x"}, []string{flag + "=maybe", "x"},
			[]string{flag + "zz", "x"}, []string{strings.ToUpper(flag), "x"}, []string{"-" + flag, "x"}, []string{flag + " 5", "x"})
		name, long := strings.CutPrefix(flag, "--")
		if !long {
			continue
		}
		lines = append(lines, []string{"-" + name, "x"}, []string{"--no-" + name, "x"}, []string{"--no" + name, "x"})
		for _, value := range []string{"maybe", " ", "a b", "-1"} {
			variable := "FINI_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=" + value
			if _, err := parse([]string{"x"}, []string{variable}); err != nil && parsers.MatchString(err.Error()) {
				t.Errorf("%s from %q: %v", name, value, err)
			}
		}
	}
	mistakes := 0
	for _, args := range lines {
		_, err := parse(args, nil)
		if err == nil {
			continue
		}
		mistakes++
		text := err.Error()
		if parsers.MatchString(text) || strings.Contains(text, "\n") || !strings.HasSuffix(text, "; see fini --help") {
			t.Errorf("%q: %s", args, text)
		}
	}
	if mistakes < 200 {
		t.Errorf("only %d mistakes", mistakes)
	}
}

// An error names the operand and the remedy.
func TestMistakes(t *testing.T) {
	const (
		aDuration = ": want a duration such as 500ms, 5s or 1m, a number of seconds, or 1d; see fini --help"
		aStatus   = ": want an exit status from 0 to 255; see"
		aPolicy   = ": want stop, pipes, wait or leave; see"
		aTruth    = "bool value must be true, 1, yes, false, 0 or no but got "
		aName     = ": want the name of a program, a pattern of names such as gpg-*, cmd:PATTERN or env:NAME=VALUE, and the flag again for the next; see"
		aPath     = ": want a PATH, or ./PATH if it begins with a dash; see"
	)
	for _, c := range []struct {
		args, env []string
		says      string
	}{
		{[]string{"--nope", "x"}, nil, "unknown flag --nope; see fini --help"},
		{[]string{"--no-quiet"}, nil, "unknown flag --no-quiet"},
		{[]string{"-cZ", "x"}, nil, "unknown flag -Z;"},
		{[]string{"-Z", "java", "-version"}, nil, "unknown flag -Z;"},
		{[]string{"-é", "x"}, nil, "unknown flag -é;"},
		{[]string{"-i=1", "--", "x"}, nil, "unknown flag -=;"},
		{[]string{"--grace 5s", "--", "x"}, nil, "unknown flag --grace 5s"},
		{[]string{"--gracee=5", "x"}, nil, "unknown flag --gracee, did you mean --grace?"},
		{[]string{"--noshield", "x"}, nil, "did you mean --no-shield?"},
		{[]string{"-help"}, nil, "cannot use -help: long flags have two dashes: --help;"},
		{[]string{"-timeout=5s", "x"}, nil, "two dashes: --timeout=5s;"},
		{[]string{"-i", "-e", "1", "-no-shield", "x"}, nil, "two dashes: --no-shield;"},

		{[]string{"--grace="}, nil, `--grace: cannot use ""` + aDuration},
		{[]string{"--grace"}, nil, `--grace: cannot use ""` + aDuration},
		{[]string{"-t", "--grace=5s", "x"}, nil, `--timeout: cannot use "--grace=5s"` + aDuration},
		{[]string{"-t=5s", "x"}, nil, `--timeout: cannot use "=5s"` + aDuration},
		{[]string{"-vt", "x", "y"}, nil, `--timeout: cannot use "x"` + aDuration},
		{nil, []string{"FINI_GRACE=5x"}, `FINI_GRACE: cannot use "5x"` + aDuration},
		{[]string{"--orphans=STOP"}, nil, `--orphans: cannot use "STOP"` + aPolicy},
		{[]string{"--orphans=x", "java", "-timeout"}, nil, aPolicy},
		{[]string{"x"}, []string{"FINI_ORPHANS=kill"}, `FINI_ORPHANS: cannot use "kill"` + aPolicy},
		{[]string{"--orphans-exit=256"}, nil, `--orphans-exit: cannot use "256"` + aStatus},
		{[]string{"--orphans-exit=-1"}, nil, `--orphans-exit: cannot use "-1"` + aStatus},
		{[]string{"-e"}, nil, `--remap-exit: cannot use ""` + aStatus},
		{[]string{"-e", "1", "-e", "+1"}, nil, `--remap-exit: cannot use "+1"` + aStatus},
		{nil, []string{"FINI_REMAP_EXIT=143,130"}, `FINI_REMAP_EXIT: cannot use "143,130"` + aStatus},
		{[]string{"-p", "FOO"}, nil, `--pdeathsig: cannot use signal "FOO"`},
		{[]string{"--pdeathsig=0"}, nil, "or none; see"},
		{[]string{"-r", "TERM"}, nil, `--rewrite: cannot use "TERM": want FROM:TO`},
		{[]string{"-r", "KILL:TERM"}, nil, `--rewrite: cannot use "KILL:TERM": SIGKILL can't be caught`},
		{[]string{"-r", "TERM:FOO"}, nil, `--rewrite: cannot use signal "FOO"`},
		{[]string{"--bind="}, nil, `--bind: cannot use "": want the pid of a process;`},
		{[]string{"--quiet=perhaps"}, nil, "--quiet: " + aTruth + `"perhaps"`},
		{[]string{"--no-shield=maybe"}, nil, "--no-shield: " + aTruth + `"maybe"`},
		{nil, []string{"FINI_SHIELD=perhaps"}, "FINI_SHIELD: " + aTruth + `"perhaps"`},
		{[]string{"-v-help", "x"}, nil, `cannot use "-v-help": want each flag as a word of its own`},
		{[]string{"--verbose=x", "x"}, nil, `--verbose: cannot use "x": want a number`},
		{[]string{"-P", "--idle=1h"}, nil, "--pause and --idle can't be used together"},
		{[]string{"--stop-signal=TERM,FOO"}, nil, `--stop-signal: cannot use signal "FOO": want a name`},
		{[]string{"--stop-signal="}, nil, `--stop-signal: cannot use signal "": want a name`},
		{nil, []string{"FINI_STOP_SIGNAL=none"}, `FINI_STOP_SIGNAL: cannot use signal "none": want a name`},
		{[]string{"--allow-orphan=cmd:"}, nil, `--allow-orphan: cannot use "cmd:"` + aName},
		{[]string{"--allow-orphan=cmd:[a"}, nil, `--allow-orphan: cannot use "cmd:[a"` + aName},
		{[]string{"--allow-orphan=env:A"}, nil, `--allow-orphan: cannot use "env:A"` + aName},
		{[]string{"--allow-orphan=env:=x"}, nil, `--allow-orphan: cannot use "env:=x"` + aName},
		{[]string{"--isolate", "x"}, nil, "unknown flag --isolate; see"},
		{[]string{"--allow-orphan="}, nil, `--allow-orphan: cannot use ""` + aName},
		{[]string{"--allow-orphan", "-v", "x"}, nil, `--allow-orphan: cannot use "-v"` + aName},
		{[]string{"--allow-orphan=java,gpg-agent"}, nil, `--allow-orphan: cannot use "java,gpg-agent"` + aName},
		{[]string{"--allow-orphan=/bin/x"}, nil, `--allow-orphan: cannot use "/bin/x"` + aName},
		{[]string{"--allow-orphan=[a"}, nil, `--allow-orphan: cannot use "[a"` + aName},
		{[]string{"--report", "--", "x"}, nil, `--report: cannot use "--"` + aPath},
		{[]string{"--report=", "x"}, nil, `--report: cannot use ""` + aPath},
		{[]string{"--install", "-v"}, nil, `--install: cannot use "-v"` + aPath},

		{[]string{"-q", "-v", "x"}, nil, "--quiet and --verbose can't be used together"},
		{[]string{"-P", "-i"}, nil, "--pause and --stdin-eof can't be used together"},
		{[]string{"-g", "-c", "x"}, nil, "--single-child and -g can't be used together"},
		{[]string{"--install=/x", "y"}, nil, `--install runs no command: cannot use "y"`},
		{[]string{"x"}, []string{"FINI_PAUSE=1"}, `--pause runs no command: cannot use "x"`},
		{[]string{"--help", "-v"}, []string{"FINI_TIMEOUT=1x"}, `FINI_TIMEOUT: cannot use "1x"`}, // --help is not alone
	} {
		if got, err := parse(c.args, c.env); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q with %q: %+v, %v, want %q", c.args, c.env, got, err, c.says)
		}
	}
}
