package cli

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// parse reads a command line and variables, under fini's own name.
func parse(args, env []string) (*Options, error) {
	return Parse(append([]string{"/fini"}, args...), env)
}

// split returns the words of a line. Blanks between single quotes belong to a word, as in a shell.
func split(line string) (all []string) {
	for _, word := range regexp.MustCompile(`([^' ]|'[^']*')+`).FindAllString(line, -1) {
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}

// run reads a line as it is typed to a shell, such as FINI_GRACE=1s fini -v x.
func run(line string) (*Options, error) {
	all := split(line)
	name := slices.IndexFunc(all, func(word string) bool { return !strings.Contains(word, "=") })
	return Parse(all[name:], all[:name])
}

// TestParse has lines that mean the same in each row.
func TestParse(t *testing.T) {
	type line = *Options
	nothing := func(line) {}
	statuses := func(n ...int) func(line) { return func(c line) { c.RemapExit = n } }
	deathsig := func(sig syscall.Signal) func(line) { return func(c line) { c.Pdeathsig = &sig } }
	for _, c := range []struct {
		lines string
		want  func(line)
	}{
		{"GRACE=1s XFINI_GRACE=1s FINI_=x FINI_NOPE=x FINI_GRACE= FINI_GRAC= FINI_SHIELD= fini", nothing},
		// A Dockerfile calls the version that it installs FINI_VERSION. A flag that runs no command has no variable.
		{"FINI_VERSION=v1 FINI_HELP=1 FINI_LICENSE=1 FINI_INSTALL=/x FINI_ALWAYS_ON=1 FINI_TEST=TestX fini", nothing},

		{"fini --pdeathsig=KILL", deathsig(9)},
		{"fini --pdeathsig SIGRTMIN+3", deathsig(37)},
		{"fini -pINT", deathsig(2)},
		{"fini -p none", deathsig(0)},
		{"FINI_PDEATHSIG=none fini -p HUP", deathsig(1)},
		{"fini --stdin-eof | fini -i | FINI_STDIN_EOF=true fini", func(c line) { c.StdinEOF = true }},
		{"fini --timeout=1m30s | fini -t90s", func(c line) { c.Timeout = 90 * time.Second }},
		{"fini --idle=1d | FINI_IDLE=1d fini", func(c line) { c.Idle = 24 * time.Hour }},
		{"fini --stop-signal=INT,SIGTERM | FINI_STOP_SIGNAL=2,TERM fini", func(c line) { c.StopSignal = []syscall.Signal{2, 15} }},
		{"fini --no-shield | fini --shield=false | FINI_SHIELD=false fini | FINI_SHIELD=true fini --no-shield", func(c line) { c.Shield = new(false) }},
		{"fini --no-shield=0 | FINI_SHIELD=false fini --shield", func(c line) { c.Shield = new(true) }},
		{"fini --grace=1m --grace 0", func(c line) { c.Grace = 0 }},
		// Of two variables of a name the first counts, as in getenv(3).
		{"FINI_GRACE=x fini --grace=10s | FINI_GRACE=10s FINI_GRACE=x fini", func(c line) { c.Grace = 10 * time.Second }},
		{"fini --linger=100us", func(c line) { c.Linger = 100 * time.Microsecond }},
		{"FINI_ORPHANS=wait fini --orphans=stop", nothing},
		{"fini --orphan-timeout=100ms | FINI_ORPHAN_TIMEOUT=0.1 fini", func(c line) { c.OrphanTimeout = 100 * time.Millisecond }},
		{"fini --orphan-timeout=0 --orphans=leave", func(c line) { c.Orphans = life.LeaveAll }},
		{"fini --orphans=pipes", func(c line) { c.Orphans = life.StopPipes }},
		{"fini --orphans leave", func(c line) { c.Orphans = life.LeaveAll }},
		{"FINI_ORPHANS=wait fini", func(c line) { c.Orphans = life.WaitAll }},
		{"fini --orphans-exit=0", func(c line) { c.OrphansExit = new(0) }},
		{"fini --allow-orphan=gpg-agent --allow-orphan 'a?b* c' --allow-orphan=[!a]* --allow-orphan=\\[!]", func(c line) {
			c.AllowOrphan = []string{"gpg-agent", "a?b* c", "[^a]*", `\[!]`}
		}},
		{"FINI_ALLOW_ORPHAN='java gpg-*' fini", func(c line) { c.AllowOrphan = []string{"java", "gpg-*"} }},
		{"fini '--allow-orphan=cmd:*/a,b [!x]' '--allow-orphan=env:A=/x,y [!z]' --allow-orphan=env:A=", func(c line) {
			c.AllowOrphan = []string{"cmd:*/a,b [^x]", "env:A=/x,y [^z]", "env:A="}
		}},
		{"fini --report=\xff", func(c line) { c.Report = []string{"\xff"} }},
		{"fini --report=- --report a.xml | FINI_REPORT='- a.xml' fini", func(c line) { c.Report = []string{"-", "a.xml"} }},
		{"fini --kill-after=9s", func(c line) { c.KillAfter = 9 * time.Second }},
		{"FINI_REMAP_EXIT=143 fini --remap-exit=143 -e 0 -e1", statuses(143, 0, 1)},
		{"FINI_REMAP_EXIT=' 143  130 ' fini", statuses(143, 130)},
		{"FINI_REWRITE='TERM:QUIT HUP:0' fini", func(c line) { c.Rewrite = []Rewrite{{15, 3}, {1, 0}} }},
		{"fini --bind=1 --bind 2 | FINI_BIND='1 2' FINI_BIND=3 fini", func(c line) { c.Bind = []int{1, 2} }},
		{"fini -v --verbose | FINI_VERBOSE=2 fini | FINI_QUIET=1 fini -vv", func(c line) { c.Verbose = 2 }},
		{"fini -vvv --verbose=0", nothing},
		{"FINI_VERBOSE=1 fini --quiet | FINI_VERBOSE=1 FINI_QUIET=1 fini", func(c line) { c.Quiet = true }},
		{"FINI_STDIN_EOF=1 fini -P | FINI_STDIN_EOF=1 FINI_PAUSE=1 fini", func(c line) { c.Pause = true }},
		{"FINI_SINGLE_CHILD=1 fini -g", func(c line) { c.Group = true }},
		{"fini -sg", func(c line) { c.Subreaper, c.Group = true, true }},
		{"fini -cwqe7", func(c line) { c.SingleChild, c.WarnReaped, c.Quiet, c.RemapExit = new(true), true, true, []int{7} }},
		{"fini -s -g -vvv -w -p SIGKILL -e 143 -- x", func(c line) { // as tini has them
			deathsig(9)(c)
			c.Subreaper, c.Group, c.Verbose, c.WarnReaped, c.RemapExit, c.Command = true, true, 3, true, []int{143}, []string{"x"}
		}},

		// An answer comes even if a variable can't be used.
		{"FINI_GRACE=x fini -l | FINI_GRACE=x fini -L", func(c line) { c.License = true }},
		{"FINI_GRACE=x fini --version", func(c line) { c.Version = true }},
		{"FINI_GRACE=x fini -h", func(c line) { c.Help = true }},
		{"FINI_GRACE=x fini -q -V | FINI_QUIET=1 FINI_GRACE=x fini -V -q", func(c line) { c.Version, c.Quiet = true, true }},
		{"FINI_TIMEOUT=1x fini --help -v", func(c line) { c.Help, c.Verbose = true, 1 }},
		{"FINI_GRACE=x fini --install=/x | FINI_GRACE=x fini --install /x | FINI_PAUSE=1 fini --install /x", func(c line) { c.Install = "/x" }},
	} {
		want, _ := parse(nil, nil)
		c.want(want)
		for line := range strings.SplitSeq(c.lines, " | ") {
			got, err := run(line)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			got.Misspelt = nil                                      // see TestMisspeltVariables
			want.Command = append(got.Command[:0], want.Command...) // nil or empty is the same
			check.Equal(t, line, *got, *want)
		}
	}
}

// The command is what follows the flags, and is never read as flags of fini. The bar shows where it begins.
func TestParseCommand(t *testing.T) {
	for _, line := range []string{
		"|", "| x -c --grace=1s --nope --version", "-c | x -c", "--grace 5s | x -c", "-c -- | x -c", "-- |", "-- | --", "-- | -- x",
		"-- | x -- y", "| x --", "-- | -c", "-- | --version x", "-- | '' y ''", "| - x", "-c | - x -- -c", "-k 5 | x y -- z",
		"-c | \xff -\xfe x\xfd", `| x a,b ' c ' d=e "a" \ ${b} @d`,
	} {
		flags, command, _ := strings.Cut(line, "|")
		want := split(command)
		got, err := parse(append(split(flags), want...), nil)
		if err != nil || !slices.Equal(got.Command, want) || got.Version || got.Verbose > 0 {
			t.Errorf("%s: %+v, %v; want the command %q", line, got, err, want)
		}
	}
}

// flagNames returns every flag as a word: its letters, its long name, and that with no-.
func flagNames() (all []string) {
	for _, flag := range Flags() {
		for _, letter := range append(flag.Aliases, string(flag.Short)) {
			if letter != "\x00" {
				all = append(all, "-"+letter)
			}
		}
		if len(flag.Name) > 1 {
			all = append(all, "--"+flag.Name)
		}
		if flag.Tag.Negatable != "" {
			all = append(all, "--no-"+flag.Name)
		}
	}
	return all
}

// A life obeys each flag. Without flags kong parses nothing, and the defaults are the same.
func TestPolicy(t *testing.T) {
	plain, _ := parse(nil, nil)
	parsed, _ := parse(nil, []string{"FINI_VERSION=1"})
	initial := life.Policy{
		Grace: 5 * time.Second, OrphansGrace: 5 * time.Second, Linger: 500 * time.Millisecond, StopSignals: []syscall.Signal{15}, StopOnDeath: 15, Orphans: "stop",
		OrphansExit: -1, Rewrite: map[syscall.Signal]syscall.Signal{},
	}
	for _, c := range []*Options{plain, parsed} {
		check.Equal(t, "without flags", c.Policy(), initial)
	}
	for text, change := range map[string]func(p *life.Policy){
		"-p none": func(p *life.Policy) {}, "-p INT": func(p *life.Policy) { p.StopOnDeath = 2 },
		"-t 2": func(p *life.Policy) { p.Timeout = 2 * time.Second }, "--idle=1d": func(p *life.Policy) { p.Idle = 24 * time.Hour },
		"--stop-signal=INT,15":                 func(p *life.Policy) { p.StopSignals = []syscall.Signal{2, 15} },
		"--stop-signal=INT --stop-signal=QUIT": func(p *life.Policy) { p.StopSignals = []syscall.Signal{3} },
		"--grace=1s":                           func(p *life.Policy) { p.Grace, p.OrphansGrace = time.Second, time.Second },
		"--grace=1m":                           func(p *life.Policy) { p.Grace = time.Minute },
		"--orphans-grace=1m":                   func(p *life.Policy) { p.OrphansGrace = time.Minute }, "--linger=1s": func(p *life.Policy) { p.Linger = time.Second },
		"-k 1": func(p *life.Policy) { p.KillAfter = time.Second }, "--stop-within=9s": func(p *life.Policy) { p.StopWithin = 9 * time.Second },
		"--orphan-timeout=2": func(p *life.Policy) { p.OrphanTimeout = 2 * time.Second },
		"--orphans=wait":     func(p *life.Policy) { p.Orphans = "wait" },
		"--orphans-exit=3":   func(p *life.Policy) { p.OrphansExit = 3 }, "--allow-orphan=x": func(p *life.Policy) { p.Allow = true },
		"-e 143": func(p *life.Policy) { p.Remap = []int{143} }, "-w": func(p *life.Policy) { p.WarnReaped = true },
		"-r HUP:0 -r TERM:3": func(p *life.Policy) { p.Rewrite = map[syscall.Signal]syscall.Signal{1: 0, 15: 3} },
	} {
		want := initial
		change(&want)
		c, err := parse(strings.Fields(text), nil)
		check.NoError(t, err)
		check.Equal(t, text, c.Policy(), want)
	}
}

// Under the name of an init that signals the main child alone, fini does so too.
func TestToGroup(t *testing.T) {
	for line, group := range map[string]bool{
		"fini": true, "/usr/bin/fini": true, "fini -c": false, "fini -g": true, "FINI_SINGLE_CHILD=1 fini": false,
		"/sbin/docker-init -- x": false, "/usr/bin/tini": false, "podman-init -v": false, "catatonit": false,
		"tini -g": true, "FINI_SINGLE_CHILD=0 tini": true, "tini --single-child=0": true, "FINI_VERBOSE=1 tini": false,
		"FINI_SINGLE_CHILD=1 tini -g": true, "tini-static": true, "dumb-init": true,
	} {
		if got, err := run(line); err != nil || got.ToGroup() != group {
			t.Errorf("%s: %+v, %v, want to the group: %t", line, got, err, group)
		}
	}
	if got, err := Parse(nil, nil); err != nil || !got.ToGroup() { // an old kernel executes a program without a name
		t.Error(got, err)
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
		_, err := duration(text)
		check.Equal(t, text+" is taken", err == nil, false)
	}
}

func TestNoCommand(t *testing.T) {
	for line, says := range map[string]string{
		"": "no command: want one after the flags", "--": "no command: ", "-v -w": "no command: ", "--grace=1s": "no command: ",
		"--report true": `--report took "true" as its value; no command is left`,
		"-t 5":          `-t took "5" as its value; no command is left`,
		"-ct 5":         `-t took "5" as its value; no command is left`,
		"-e 3":          `-e took "3" as its value; no command is left`,
		"-r HUP:0":      `-r took "HUP:0" as its value; no command is left`,
		"-p none":       `-p took "none" as its value; no command is left`,
	} {
		if parsed, err := parse(split(line), nil); err != nil || len(parsed.Command) > 0 {
			t.Errorf("%q: %+v, %v", line, parsed, err)
		}
		if got := NoCommand(split(line)).Error(); !strings.HasPrefix(got, says) {
			t.Errorf("%q: %s, want %s", line, got, says)
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
		c, err := run(set + " fini x")
		check.NoError(t, err)
		var says []string
		if want != "" {
			says = []string{variable + " sets nothing: did you mean " + want + "?"}
		}
		check.Equal(t, variable, c.Misspelt, says)
	}
}

// What tini does by this variable, fini does by its own name, or by its own variable.
func TestProcessGroupVariable(t *testing.T) {
	for line, hint := range map[string]bool{"fini x": false, "tini x": true, "tini -v x": true, "tini -g x": false, "tini -c x": false} {
		c, err := run("TINI_KILL_PROCESS_GROUP=1 " + line)
		if err != nil || (len(c.Misspelt) == 1 && strings.HasSuffix(c.Misspelt[0], "did you mean FINI_SINGLE_CHILD=0?")) != hint {
			t.Errorf("%s: %+v, %v", line, c, err)
		}
	}
}

// A command may have as many arguments as the kernel takes, even after a flag.
func TestParseManyArguments(t *testing.T) {
	many := slices.Repeat([]string{"x"}, 100_000)
	c, err := parse(append([]string{"--grace", "1s", "--", "command"}, many...), nil)
	if err != nil || len(c.Command) != 1+len(many) || c.Command[0] != "command" || c.Grace != time.Second {
		t.Fatalf("%d words, %v", len(c.Command), err)
	}
}

// Whatever the words are, the answer is one line, and a command is the last of them.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"-vk\n5\nx", "--=x", "-", "--", "-\xff", "--no-shield=\nx", "-i-", "--stop-signal=,", "-p\n--\nx", "-=", "--g", "-c\n-g"} {
		f.Add(line, "FINI_GRACE=1s")
	}
	f.Fuzz(func(t *testing.T, line, variable string) {
		args := strings.Split(line, "\n")
		got, err := parse(args, []string{variable})
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q, %q: %v", args, variable, err)
		case err == nil && !slices.Equal(got.Command, args[len(args)-len(got.Command):]):
			t.Errorf("%q: the command %q", args, got.Command)
		}
	})
}
