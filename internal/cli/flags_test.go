package cli

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/signals"
)

func of[T any](v T) *T { return &v }

func TestParse(t *testing.T) {
	type line = *Options
	nothing := func(line) {}
	statuses := func(n ...int) func(line) { return func(c line) { c.Policy.Remap = n } }
	deathsig := func(sig, first syscall.Signal) func(line) {
		return func(c line) { c.Pdeathsig, c.Policy.Deathsig = &sig, first }
	}
	for _, c := range []struct {
		args, env []string
		want      func(line)
	}{
		{nil, []string{"GRACE=1s", "XFINI_GRACE=1s", "FINI_=x", "FINI_NOPE=x", "FINI_GRACE=", "FINI_GRAC=", "FINI_SHIELD="}, nothing},
		// A Dockerfile calls the version that it installs FINI_VERSION. A flag that runs no command has no variable.
		{nil, []string{"FINI_VERSION=v1", "FINI_HELP=1", "FINI_LICENSE=1", "FINI_INSTALL=/x", "FINI_ALWAYS_ON=1", "FINI_TEST=TestX"}, nothing},

		{[]string{"--pdeathsig=KILL"}, nil, deathsig(9, 9)},
		{[]string{"--pdeathsig", "SIGRTMIN+3"}, nil, deathsig(37, 37)},
		{[]string{"-pINT"}, nil, deathsig(2, 2)},
		{[]string{"-p", "none"}, nil, deathsig(0, syscall.SIGTERM)},
		{[]string{"-p", "HUP"}, []string{"FINI_PDEATHSIG=none"}, deathsig(1, 1)},
		{[]string{"--stdin-eof"}, nil, func(c line) { c.StdinEOF = true }},
		{[]string{"-i"}, nil, func(c line) { c.StdinEOF = true }},
		{nil, []string{"FINI_STDIN_EOF=true"}, func(c line) { c.StdinEOF = true }},
		{[]string{"--timeout=1m30s"}, nil, func(c line) { c.Policy.Timeout = 90 * time.Second }},
		{[]string{"-t5s"}, nil, func(c line) { c.Policy.Timeout = 5 * time.Second }},
		{[]string{"--shield"}, []string{"FINI_SHIELD=false"}, func(c line) { c.Shield = of(true) }},
		{[]string{"--no-shield"}, []string{"FINI_SHIELD=true"}, func(c line) { c.Shield = of(false) }},
		{[]string{"--no-shield=0"}, nil, func(c line) { c.Shield = of(true) }},
		{nil, []string{"FINI_SHIELD=false"}, func(c line) { c.Shield = of(false) }},
		{[]string{"--grace=1m", "--grace", "0"}, nil, func(c line) { c.Policy.Grace = 0 }},
		{[]string{"--grace=1s"}, []string{"FINI_GRACE=x"}, func(c line) { c.Policy.Grace = time.Second }},
		{nil, []string{"FINI_GRACE=10s", "FINI_GRACE=x"}, func(c line) { c.Policy.Grace = 10 * time.Second }}, // as in getenv(3)
		{[]string{"--linger=100us"}, nil, func(c line) { c.Policy.Linger = 100 * time.Microsecond }},
		{[]string{"--orphans=stop"}, []string{"FINI_ORPHANS=wait"}, nothing},
		{[]string{"--orphans=pipes"}, nil, func(c line) { c.Policy.Orphans = life.StopPipes }},
		{[]string{"--orphans", "leave"}, nil, func(c line) { c.Policy.Orphans = life.LeaveAll }},
		{nil, []string{"FINI_ORPHANS=wait"}, func(c line) { c.Policy.Orphans = life.WaitAll }},
		{[]string{"--orphans-exit=0"}, nil, func(c line) { c.Policy.OrphansExit = 0 }},
		{[]string{"--allow-orphan=gpg-agent", "--allow-orphan", "a?b* c", "--allow-orphan=[!a]*", `--allow-orphan=\[!]`}, nil, func(c line) {
			c.AllowOrphan, c.Policy.Allow = []string{"gpg-agent", "a?b* c", "[^a]*", `\[!]`}, true
		}},
		{[]string{"--allow-orphan=cmd:*/a,b [!c]*", "--allow-orphan=env:A=/x"}, nil, func(c line) {
			c.AllowOrphan, c.Policy.Allow = []string{"cmd:*/a,b [^c]*", "env:A=/x"}, true
		}},
		{nil, []string{"FINI_ALLOW_ORPHAN=java gpg-*"}, func(c line) { c.AllowOrphan, c.Policy.Allow = []string{"java", "gpg-*"}, true }},
		{[]string{"--install=/x"}, nil, func(c line) { c.Install = "/x" }},
		{[]string{"--kill-after=9s"}, nil, func(c line) { c.Policy.KillAfter = 9 * time.Second }},
		{[]string{"--remap-exit=143", "-e", "0", "-e1"}, []string{"FINI_REMAP_EXIT=143"}, statuses(143, 0, 1)},
		{nil, []string{"FINI_REMAP_EXIT= 143  130 "}, statuses(143, 130)},
		{nil, []string{"FINI_REWRITE=TERM:QUIT HUP:0"}, func(c line) {
			c.Policy.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGTERM: syscall.SIGQUIT, syscall.SIGHUP: 0}
		}},
		{[]string{"--bind=1", "--bind", "2"}, nil, func(c line) { c.Bind = []int{1, 2} }},
		{nil, []string{"FINI_BIND=1 2", "FINI_BIND=3"}, func(c line) { c.Bind = []int{1, 2} }},
		{[]string{"--report=-"}, nil, func(c line) { c.Report = "-" }},
		{[]string{"--isolate"}, []string{"FINI_ISOLATE=try"}, func(c line) { c.Isolate = true }},
		{[]string{"--isolate=TRY"}, nil, func(c line) { c.Isolate, c.TryIsolate = true, true }},
		{[]string{"--isolate=no"}, []string{"FINI_ISOLATE=1"}, nothing},
		{[]string{"--isolate", "try"}, nil, func(c line) { c.Isolate, c.Command = true, []string{"try"} }},
		{nil, []string{"FINI_ISOLATE=try"}, func(c line) { c.Isolate, c.TryIsolate = true, true }},
		{nil, []string{"FINI_ISOLATE=0"}, nothing},
		{[]string{"-v", "--verbose"}, nil, func(c line) { c.Verbose = true }},
		{[]string{"-vvv", "--verbose=0"}, nil, nothing},
		{nil, []string{"FINI_VERBOSE=2"}, func(c line) { c.Verbose = true }},
		{[]string{"--quiet"}, []string{"FINI_VERBOSE=1"}, func(c line) { c.Quiet, c.Verbose = true, true }},
		{[]string{"-v"}, []string{"FINI_QUIET=1"}, func(c line) { c.Verbose = true }},
		{[]string{"-P"}, []string{"FINI_STDIN_EOF=1"}, func(c line) { c.Pause, c.StdinEOF = true, true }},
		{[]string{"-sg"}, nil, nothing},
		{[]string{"-cwqe7"}, nil, func(c line) {
			c.SingleChild, c.Policy.WarnReaped, c.Quiet, c.Policy.Remap = true, true, true, []int{7}
		}},
		{[]string{"-s", "-g", "-vvv", "-w", "-p", "SIGKILL", "-e", "143", "--", "x"}, nil, func(c line) { // as tini has them
			deathsig(9, 9)(c)
			c.Verbose, c.Policy.WarnReaped, c.Policy.Remap, c.Command = true, true, []int{143}, []string{"x"}
		}},

		// An answer comes even if a variable can't be used.
		{[]string{"-l"}, []string{"FINI_GRACE=x"}, func(c line) { c.License = true }},
		{[]string{"-L"}, []string{"FINI_GRACE=x"}, func(c line) { c.License = true }},
		{[]string{"--version"}, []string{"FINI_GRACE=x"}, func(c line) { c.Version = true }},
		{[]string{"-h"}, []string{"FINI_GRACE=x"}, func(c line) { c.Help = true }},
		{[]string{"--install=/x"}, []string{"FINI_GRACE=x"}, func(c line) { c.Install = "/x" }},
	} {
		want, _ := Parse(nil, nil)
		c.want(want)
		got, err := Parse(c.args, c.env)
		if err != nil {
			t.Errorf("Parse(%q) with %q: %v", c.args, c.env, err)
			continue
		}
		got.Misspelt = nil                                      // see TestMisspeltVariables
		want.Command = append(got.Command[:0], want.Command...) // nil or empty is the same
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) with %q\n = %+v\nwant %+v", c.args, c.env, got, want)
		}
	}
}

// The command is what follows the flags, and is never read as flags of fini.
func TestParseCommand(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"x", "-c", "--grace=1s", "--nope", "--version"}, []string{"x", "-c", "--grace=1s", "--nope", "--version"}},
		{[]string{"-c", "x", "-c"}, []string{"x", "-c"}},
		{[]string{"--grace", "5s", "x", "-c"}, []string{"x", "-c"}},
		{[]string{"-c", "--", "x", "-c"}, []string{"x", "-c"}},
		{[]string{"--"}, nil},
		{[]string{"--", "--"}, []string{"--"}},
		{[]string{"--", "--", "x"}, []string{"--", "x"}},
		{[]string{"--", "x", "--", "y"}, []string{"x", "--", "y"}},
		{[]string{"x", "--"}, []string{"x", "--"}},
		{[]string{"--", "-c"}, []string{"-c"}},
		{[]string{"--", "--version", "x"}, []string{"--version", "x"}},
		{[]string{"--", "", "y", ""}, []string{"", "y", ""}},
		{[]string{"-", "x"}, []string{"-", "x"}},
		{[]string{"x", "a,b", " c ", "d=e", `"a"`, `\`, "${b}", "@d"}, []string{"x", "a,b", " c ", "d=e", `"a"`, `\`, "${b}", "@d"}},
	} {
		got, err := Parse(c.args, nil)
		if err != nil || !slices.Equal(got.Command, c.want) || got.Version || got.Verbose {
			t.Errorf("Parse(%q): %+v, %v; want the command %q", c.args, got, err, c.want)
		}
	}
}

// In the Usage a flag begins a line; what it does starts after two spaces.
var usageLine = regexp.MustCompile(`(?m)^ {2,6}(-.*?)(?:  +(.*(?:\n {20,}.*)*))?$`)

// inUsage is a flag as the Usage has it.
type inUsage struct {
	value     bool // it takes one
	negatable bool
	text      string
}

// usageFlags is every flag in the Usage, by "-x" or "--name".
func usageFlags(t *testing.T) map[string]inUsage {
	t.Helper()
	flags := map[string]inUsage{}
	for _, line := range usageLine.FindAllStringSubmatch(Usage, -1) {
		words := strings.Split(line[1], ", ")
		_, _, value := strings.Cut(line[1], "=")
		for _, word := range words {
			name, _, _ := strings.Cut(word, "=")
			plain := strings.Replace(name, "[no-]", "", 1)
			if _, twice := flags[plain]; twice {
				t.Errorf("%s stands in the Usage twice", plain)
			}
			flags[plain] = inUsage{value, plain != name, line[2]}
		}
	}
	return flags
}

func TestUsageHasEveryFlag(t *testing.T) {
	shown := usageFlags(t)
	known := map[string]bool{}
	flags := new(Options).table()
	for _, flag := range flags {
		var names []string
		for _, letter := range flag.letters {
			names = append(names, "-"+string(letter))
		}
		if flag.long != "always-on" && !strings.HasPrefix(flag.long, "no-") {
			names = append(names, "--"+flag.long)
		}
		for _, name := range names {
			known[name] = true
			u, ok := shown[name]
			if !ok {
				t.Errorf("%s is not in the Usage", name)
				continue
			}
			if u.value == flag.bare {
				t.Errorf("%s takes a value: %t, but in the Usage %t", name, !flag.bare, u.value)
			}
			if negatable := flags.find("--no-"+flag.long) != nil; strings.HasPrefix(name, "--") && u.negatable != negatable {
				t.Errorf("%s can be negated: %t, but in the Usage %t", name, negatable, u.negatable)
			}
		}
	}
	for name := range shown {
		if !known[name] {
			t.Errorf("%s stands in the Usage, but there is no such flag", name)
		}
	}
	if len(shown) < 20 {
		t.Errorf("found only these in the Usage: %v", shown)
	}
	c, _ := Parse(nil, nil)
	initial := c.Policy
	for name, value := range map[string]any{"--grace": initial.Grace, "--linger": initial.Linger, "--orphans": initial.Orphans,
		"--pdeathsig": strings.TrimPrefix(signals.Name(initial.Deathsig), "SIG")} {
		if want := fmt.Sprintf("(default: %v)", value); !strings.Contains(shown[name].text, want) {
			t.Errorf("%s is %s by default, which the Usage does not say: %q", name, want, shown[name].text)
		}
	}
}

func TestUsageFits(t *testing.T) {
	if !strings.HasSuffix(Usage, "\n") || strings.HasSuffix(Usage, "\n\n") {
		t.Error("the Usage does not end in one newline")
	}
	if n := strings.Count(Usage, "\n"); n > 47 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(Usage) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
		if strings.ContainsAny(line, "\t\r") || strings.TrimRight(line, " ") != line {
			t.Errorf("a tab, or space at the end: %q", line)
		}
	}
}

func TestDuration(t *testing.T) {
	const most = 100 * 365 * 24 * time.Hour // and the longest of Go's would overflow
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.3": 300 * time.Millisecond, "1m30s": 90 * time.Second, ".5h": 30 * time.Minute, "1.5d": 36 * time.Hour,
		"inf": most, "infd": most, "2562047h47m16s": most, "1e-1": 100 * time.Millisecond, "1e-100": 1, "0": 0, "0d": 0,
	} {
		if got, err := duration(text); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "d", "nan", "-1", "-1s", "-inf", "-1e-1", "0x", "1S", "1 s", "1ds", "5d1h", "long", "1e400"} {
		if _, err := duration(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestNoCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "no command: want one after the flags"},
		{[]string{"--"}, "no command: "},
		{[]string{"-v", "-w"}, "no command: "},
		{[]string{"--grace=1s"}, "no command: "},
		{[]string{"--report", "true"}, `--report took "true" as its value; no command is left`},
		{[]string{"-t", "5"}, `-t took "5" as its value; no command is left`},
		{[]string{"-ct", "5"}, `-t took "5" as its value; no command is left`},
		{[]string{"-e", "3"}, `-e took "3" as its value; no command is left`},
		{[]string{"-r", "HUP:0"}, `-r took "HUP:0" as its value; no command is left`},
		{[]string{"-p", "none"}, `-p took "none" as its value; no command is left`},
	} {
		if parsed, err := Parse(c.args, nil); err != nil || len(parsed.Command) > 0 {
			t.Errorf("%q: %+v, %v", c.args, parsed, err)
		}
		if got := NoCommand(c.args).Error(); !strings.HasPrefix(got, c.says) {
			t.Errorf("%q: %s, want %s", c.args, got, c.says)
		}
	}
}

func TestMisspeltVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"FINI_grace": "FINI_GRACE", "FINI_NO_FOREGROUND": "FINI_FOREGROUND=0",
		"FINI_ORPHAN_EXIT": "FINI_ORPHANS_EXIT", "FINI_ORPHAN": "FINI_ORPHANS", "FINI_TIMOUT": "FINI_TIMEOUT",
		"FINI_NO_SHIELD": "FINI_SHIELD=0", "FINI_NOSHIELD": "FINI_SHIELD=0", "FINI_GRAEC": "FINI_GRACE",
		"FINI_ALLOW_ORPHANS": "FINI_ALLOW_ORPHAN", "FINI_STDIN": "FINI_STDIN_EOF", "FINI_GRACE_PERIOD": "FINI_GRACE",
		"FINI_REMAP": "FINI_REMAP_EXIT", "FINI_KILLAFTER": "FINI_KILL_AFTER", "FINI_KILL": "FINI_KILL_AFTER",

		// A Dockerfile's and a test's own.
		"FINI_VERSION": "", "FINI_SHA256": "", "FINI_URL": "", "FINI_BIN": "", "FINI_BINARY": "", "FINI_PATH": "", "FINI_ARCH": "",
		"FINI_MUST_RUN": "", "FINI_SKIPPED": "", "FINI_FULL": "", "FINI_SEED": "", "FINI_": "", "FINI_HELP": "", "FINI_IMAGE": "",

		// By these tini or dumb-init would have acted otherwise than fini does.
		"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=1",
		"DUMB_INIT_SETSID=1": "", "TINI_SUBREAPER=": "", "TINI_KILL_PROCESS_GROUP=1": "", "TINI_VERBOSITY=1": "", "TINI_VERSION=v0.19.0": "",
	} {
		set := variable
		if !strings.Contains(set, "=") {
			set += "=1"
		}
		c, err := Parse([]string{"x"}, []string{set})
		if err != nil {
			t.Fatal(err)
		}
		var says []string
		if want != "" {
			says = []string{variable + " sets nothing: did you mean " + want + "?"}
		}
		if !slices.Equal(c.Misspelt, says) {
			t.Errorf("%s: %q, want %q", variable, c.Misspelt, says)
		}
	}
}

// A command may have as many arguments as the kernel takes, even after a flag.
func TestParseManyArguments(t *testing.T) {
	many := slices.Repeat([]string{"x"}, 100_000)
	c, err := Parse(append([]string{"--grace", "1s", "--", "command"}, many...), nil)
	if err != nil || len(c.Command) != 1+len(many) || c.Command[0] != "command" || c.Policy.Grace != time.Second {
		t.Fatalf("%d words, %v", len(c.Command), err)
	}
}
