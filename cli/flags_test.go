package cli

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/signals"
)

// withoutVariables removes every FINI_ variable from the environment, except the variables of a case.
func withoutVariables(t *testing.T, set map[string]string) {
	t.Helper()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "FINI_") {
			t.Setenv(name, "") // so that it comes back after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range set {
		t.Setenv(name, value)
	}
}

// sayingNothing is the command line that says nothing, as docs/behavior.md has it.
func sayingNothing() *Options {
	return &Options{policy: life.Policy{
		Grace:       5 * time.Second,
		Linger:      500 * time.Millisecond,
		Deathsig:    syscall.SIGTERM,
		Orphans:     life.StopAll,
		OrphansExit: -1,
		Rewrite:     map[syscall.Signal]syscall.Signal{},
	}}
}

func of[T any](v T) *T { return &v }

func TestParse(t *testing.T) {
	type set = map[string]string
	type line = *Options
	statuses := func(n ...int) func(line) { return func(c line) { c.policy.Remap = n } }
	for what, c := range map[string]struct {
		args []string
		env  set
		want func(line)
	}{
		"nothing":       {nil, nil, func(line) {}},
		"other program": {nil, set{"GRACE": "1s", "XFINI_GRACE": "1s", "FINI_": "x", "FINI_NOPE": "x"}, func(line) {}},

		"pdeathsig":            {[]string{"--pdeathsig=KILL"}, nil, func(c line) { c.Pdeathsig = of(syscall.Signal(9)) }},
		"pdeathsig apart":      {[]string{"--pdeathsig", "SIGRTMIN+3"}, nil, func(c line) { c.Pdeathsig = of(syscall.Signal(37)) }},
		"-p joined":            {[]string{"-pINT"}, nil, func(c line) { c.Pdeathsig = of(syscall.Signal(2)) }},
		"-p none":              {[]string{"-p", "none"}, nil, func(c line) { c.Pdeathsig = of(syscall.Signal(0)) }},
		"-p wins":              {[]string{"-p", "HUP"}, set{"FINI_PDEATHSIG": "none"}, func(c line) { c.Pdeathsig = of(syscall.Signal(1)) }},
		"stdin-eof":            {[]string{"--stdin-eof"}, nil, func(c line) { c.StdinEOF = true }},
		"-i":                   {[]string{"-i"}, nil, func(c line) { c.StdinEOF = true }},
		"FINI_STDIN_EOF":       {nil, set{"FINI_STDIN_EOF": "true"}, func(c line) { c.StdinEOF = true }},
		"timeout":              {[]string{"--timeout=1m30s"}, nil, func(c line) { c.policy.Timeout = 90 * time.Second }},
		"-t joined":            {[]string{"-t5s"}, nil, func(c line) { c.policy.Timeout = 5 * time.Second }},
		"shield":               {[]string{"--shield"}, nil, func(c line) { c.Shield = of(true) }},
		"no-shield":            {[]string{"--no-shield"}, nil, func(c line) { c.Shield = of(false) }},
		"FINI_SHIELD":          {nil, set{"FINI_SHIELD": "false"}, func(c line) { c.Shield = of(false) }},
		"shield wins":          {[]string{"--shield"}, set{"FINI_SHIELD": "false"}, func(c line) { c.Shield = of(true) }},
		"grace":                {[]string{"--grace=1m"}, nil, func(c line) { c.policy.Grace = time.Minute }},
		"grace apart":          {[]string{"--grace", "1m"}, nil, func(c line) { c.policy.Grace = time.Minute }},
		"grace of nothing":     {[]string{"--grace=0"}, nil, func(c line) { c.policy.Grace = 0 }},
		"grace in seconds":     {[]string{"--grace=5"}, nil, func(c line) { c.policy.Grace = 5 * time.Second }},
		"grace in days":        {[]string{"--grace=1.5d"}, nil, func(c line) { c.policy.Grace = 36 * time.Hour }},
		"grace, past a Go one": {[]string{"--grace=9999999h"}, nil, func(c line) { c.policy.Grace = 100 * 365 * 24 * time.Hour }},
		"grace twice":          {[]string{"--grace=1m", "--grace=2m"}, nil, func(c line) { c.policy.Grace = 2 * time.Minute }},
		"FINI_GRACE":           {nil, set{"FINI_GRACE": "10s"}, func(c line) { c.policy.Grace = 10 * time.Second }},
		"grace wins":           {[]string{"--grace=5s"}, set{"FINI_GRACE": "10s"}, func(line) {}},
		"linger":               {[]string{"--linger=100us"}, nil, func(c line) { c.policy.Linger = 100 * time.Microsecond }},
		"orphans=stop":         {[]string{"--orphans=stop"}, nil, func(line) {}},
		"orphans=pipes":        {[]string{"--orphans=pipes"}, nil, func(c line) { c.policy.Orphans = life.StopPipes }},
		"orphans=leave":        {[]string{"--orphans", "leave"}, nil, func(c line) { c.policy.Orphans = life.LeaveAll }},
		"FINI_ORPHANS":         {nil, set{"FINI_ORPHANS": "wait"}, func(c line) { c.policy.Orphans = life.WaitAll }},
		"orphans-exit":         {[]string{"--orphans-exit=3"}, nil, func(c line) { c.policy.OrphansExit = 3 }},
		"orphans-exit of 0":    {[]string{"--orphans-exit=0"}, nil, func(c line) { c.policy.OrphansExit = 0 }},
		"allow-orphan": {[]string{"--allow-orphan=gpg-agent", "--allow-orphan", "a?b* c", "--allow-orphan=[!a]*", `--allow-orphan=\[!]`}, nil, func(c line) {
			c.AllowOrphan = []string{"gpg-agent", "a?b* c", "[^a]*", `\[!]`}
		}},
		"FINI_ALLOW_ORPHAN":    {nil, set{"FINI_ALLOW_ORPHAN": "java gpg-*"}, func(c line) { c.AllowOrphan = []string{"java", "gpg-*"} }},
		"FINI_TEST":            {nil, set{"FINI_TEST": "TestX"}, func(line) {}},
		"FINI_INSTALL":         {nil, set{"FINI_INSTALL": "/x"}, func(line) {}},
		"install":              {[]string{"--install=/x"}, nil, func(c line) { c.Install = of("/x") }},
		"kill-after":           {[]string{"--kill-after=9s"}, nil, func(c line) { c.policy.KillAfter = 9 * time.Second }},
		"single-child":         {[]string{"--single-child"}, nil, func(c line) { c.SingleChild = true }},
		"remap-exit":           {[]string{"--remap-exit=143"}, nil, statuses(143)},
		"-e twice":             {[]string{"-e", "143", "-e", "0"}, nil, statuses(143, 0)},
		"-e joined":            {[]string{"-e143"}, nil, statuses(143)},
		"FINI_REMAP_EXIT, two": {nil, set{"FINI_REMAP_EXIT": " 143  130 "}, statuses(143, 130)},
		"FINI_REWRITE": {nil, set{"FINI_REWRITE": "TERM:QUIT HUP:0"}, func(c line) {
			c.policy.Rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGTERM: syscall.SIGQUIT, syscall.SIGHUP: 0}
		}},
		"--bind":                       {[]string{"--bind=1", "--bind", "2"}, nil, func(c line) { c.Bind = []int{1, 2} }},
		"FINI_BIND":                    {nil, set{"FINI_BIND": "1 2"}, func(c line) { c.Bind = []int{1, 2} }},
		"--no-shield wins":             {[]string{"--no-shield"}, set{"FINI_SHIELD": "true"}, func(c line) { c.Shield = of(false) }},
		"no no-shield":                 {[]string{"--no-shield=0"}, nil, func(c line) { c.Shield = of(true) }},
		"a flag, and a wrong variable": {[]string{"--grace=1s"}, set{"FINI_GRACE": "x"}, func(c line) { c.policy.Grace = time.Second }},
		"-v, then a value":             {[]string{"-v", "--verbose=3", "-v"}, nil, func(c line) { c.Verbose = 4 }},
		"a variable of nothing":        {nil, set{"FINI_GRACE": "", "FINI_GRAC": "", "FINI_SHIELD": ""}, func(line) {}},
		"-e wins":                      {[]string{"-e", "1"}, set{"FINI_REMAP_EXIT": "143"}, statuses(1)},
		"warn-reaped":                  {[]string{"--warn-reaped"}, nil, func(c line) { c.policy.WarnReaped = true }},
		"verbose":                      {[]string{"--verbose"}, nil, func(c line) { c.Verbose = 1 }},
		"-vvv":                         {[]string{"-vvv"}, nil, func(c line) { c.Verbose = 3 }},
		"-v and --verbose":             {[]string{"-v", "--verbose"}, nil, func(c line) { c.Verbose = 2 }},
		"FINI_VERBOSE":                 {nil, set{"FINI_VERBOSE": "2"}, func(c line) { c.Verbose = 2 }},
		"quiet":                        {[]string{"--quiet"}, nil, func(c line) { c.Quiet = true }},
		"-q":                           {[]string{"-q"}, nil, func(c line) { c.Quiet = true }},
		"pause":                        {[]string{"--pause"}, nil, func(c line) { c.Pause = true }},
		"-s":                           {[]string{"-s"}, nil, func(line) {}},
		"-g":                           {[]string{"-g"}, nil, func(line) {}},
		"license":                      {[]string{"--license"}, nil, func(c line) { c.License = true }},
		"-l":                           {[]string{"-l"}, nil, func(c line) { c.License = true }},
		"-L":                           {[]string{"-L"}, nil, func(c line) { c.License = true }},
		"version":                      {[]string{"--version"}, nil, func(c line) { c.Version = true }},
		"help":                         {[]string{"--help"}, nil, func(c line) { c.Help = true }},
		"letters joined": {[]string{"-cwqe7"}, nil, func(c line) {
			c.SingleChild, c.policy.WarnReaped, c.Quiet, c.policy.Remap = true, true, true, []int{7}
		}},
		"tini -s -g -v -w -p -e": {[]string{"-s", "-g", "-vvv", "-w", "-p", "SIGKILL", "-e", "143", "--", "x"}, nil, func(c line) {
			c.Verbose, c.policy.WarnReaped = 3, true
			c.Pdeathsig, c.policy.Remap, c.Command = of(syscall.Signal(9)), []int{143}, []string{"x"}
		}},

		// A Dockerfile calls the version that it installs FINI_VERSION. A flag that prints a
		// text, or is not for users, has no variable.
		"FINI_VERSION":            {nil, set{"FINI_VERSION": "v1.2.3"}, func(line) {}},
		"FINI_HELP, FINI_LICENSE": {nil, set{"FINI_HELP": "1", "FINI_LICENSE": "1"}, func(line) {}},
		"FINI_ALWAYS_ON":          {nil, set{"FINI_ALWAYS_ON": "1"}, func(line) {}},
		"FINI_COMMAND":            {nil, set{"FINI_COMMAND": "x"}, func(line) {}},
		"FINI_INNER":              {nil, set{"FINI_INNER": "3,4"}, func(line) {}},
	} {
		t.Run(what, func(t *testing.T) {
			withoutVariables(t, c.env)
			got, err := Parse(c.args, os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			want := sayingNothing()
			c.want(want)
			want.Command = append(got.Command[:0], want.Command...) // nil or empty is the same
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Parse(%q) with %v\n = %+v\nwant %+v", c.args, c.env, got, want)
			}
		})
	}
}

// The command is what follows the flags, and is never read as flags of fini.
func TestParseCommand(t *testing.T) {
	for what, c := range map[string]struct {
		args, want []string
	}{
		"none":                        {nil, nil},
		"a word":                      {[]string{"x"}, []string{"x"}},
		"words":                       {[]string{"x", "y", "z"}, []string{"x", "y", "z"}},
		"own short flags":             {[]string{"x", "-c", "-v", "-q"}, []string{"x", "-c", "-v", "-q"}},
		"own long flags":              {[]string{"x", "--grace=1s", "--nope", "--version"}, []string{"x", "--grace=1s", "--nope", "--version"}},
		"after a flag":                {[]string{"-c", "x", "-c"}, []string{"x", "-c"}},
		"after a flag with a value":   {[]string{"--grace", "5s", "x", "-c"}, []string{"x", "-c"}},
		"after --":                    {[]string{"--", "x", "-c"}, []string{"x", "-c"}},
		"after a flag and --":         {[]string{"-c", "--", "x", "-c"}, []string{"x", "-c"}},
		"-- alone":                    {[]string{"--"}, nil},
		"-- twice":                    {[]string{"--", "--"}, []string{"--"}},
		"-- twice before a word":      {[]string{"--", "--", "x"}, []string{"--", "x"}},
		"-- after the command":        {[]string{"x", "--", "y"}, []string{"x", "--", "y"}},
		"-- before and after":         {[]string{"--", "x", "--", "y"}, []string{"x", "--", "y"}},
		"-- at once after a command":  {[]string{"x", "--"}, []string{"x", "--"}},
		"a flag's name after --":      {[]string{"--", "-c"}, []string{"-c"}},
		"a long flag's name after --": {[]string{"--", "--version", "x"}, []string{"--version", "x"}},
		"an empty argument":           {[]string{"x", "", "y"}, []string{"x", "", "y"}},
		"an empty command":            {[]string{"--", "", "y"}, []string{"", "y"}},
		"a dash":                      {[]string{"-", "x"}, []string{"-", "x"}},
		"a dash after --":             {[]string{"--", "-", "x"}, []string{"-", "x"}},
		"commas and spaces":           {[]string{"x", "a,b", " c ", "d=e"}, []string{"x", "a,b", " c ", "d=e"}},
		"quotes and variables":        {[]string{"x", `"a"`, `\`, "${b}", "$c", "@d"}, []string{"x", `"a"`, `\`, "${b}", "$c", "@d"}},
	} {
		t.Run(what, func(t *testing.T) {
			withoutVariables(t, nil)
			got, err := Parse(c.args, os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Command, c.want) {
				t.Errorf("Parse(%q): the command is %q, want %q", c.args, got.Command, c.want)
			}
			if got.Version || got.Quiet || got.Verbose > 0 {
				t.Errorf("Parse(%q) took a flag of the command's: %+v", c.args, got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	type set = map[string]string
	const aDuration, aStatus, aPolicy, aSignal = "500ms, 5s or 1m", "0 to 255", "want stop, pipes, wait or leave", "SIGTERM"
	for what, c := range map[string]struct {
		args []string
		env  set
		says []string // the operand, and what is accepted
	}{
		"unknown flag":          {[]string{"--nope", "x"}, nil, []string{"--nope", "--help"}},
		"unknown letter":        {[]string{"-Z", "x"}, nil, []string{"-Z", "--help"}},
		"unknown joined letter": {[]string{"-cZ", "x"}, nil, []string{"-Z", "--help"}},
		"Misspelt flag":         {[]string{"--grac=1s"}, nil, []string{"--grac", "--grace"}},
		"value for a switch":    {[]string{"--quiet=perhaps"}, nil, []string{"--quiet", "perhaps"}},
		"no negation":           {[]string{"--no-quiet"}, nil, []string{"--no-quiet"}},

		"grace in two units":      {[]string{"--grace=5d1h"}, nil, []string{"--grace", `"5d1h"`, aDuration}},
		"grace below nothing":     {[]string{"--grace=-1s"}, nil, []string{"--grace", `"-1s"`, "a duration can't be negative"}},
		"timeout below nothing":   {[]string{"-t", "-5", "true"}, nil, []string{`--timeout: cannot use "-5": a duration can't be negative;`}},
		"a flag for a value":      {[]string{"-t", "--grace=5s", "true"}, nil, []string{`--timeout: cannot use "--grace=5s"`, aDuration}},
		"grace in words":          {[]string{"--grace=long"}, nil, []string{"--grace", `"long"`, aDuration}},
		"empty grace":             {[]string{"--grace="}, nil, []string{"--grace", `""`, aDuration}},
		"grace without a value":   {[]string{"--grace"}, nil, []string{"--grace"}},
		"linger":                  {[]string{"--linger=x"}, nil, []string{"--linger", `"x"`, aDuration}},
		"timeout":                 {[]string{"--timeout=x"}, nil, []string{"--timeout", `"x"`, aDuration}},
		"kill-after":              {[]string{"-k", "x"}, nil, []string{"--kill-after", `"x"`, aDuration}},
		"FINI_GRACE":              {nil, set{"FINI_GRACE": "5x"}, []string{"grace", `"5x"`, aDuration}},
		"orphans":                 {[]string{"--orphans=kill"}, nil, []string{"--orphans", `"kill"`, aPolicy}},
		"orphans in capitals":     {[]string{"--orphans=STOP"}, nil, []string{"--orphans", `"STOP"`, aPolicy}},
		"empty orphans":           {[]string{"--orphans="}, nil, []string{"--orphans", `""`, aPolicy}},
		"FINI_ORPHANS":            {nil, set{"FINI_ORPHANS": "kill"}, []string{"orphans", `"kill"`, aPolicy}},
		"orphans-exit past 255":   {[]string{"--orphans-exit=256"}, nil, []string{"--orphans-exit", `"256"`, aStatus}},
		"orphans-exit below 0":    {[]string{"--orphans-exit=-1"}, nil, []string{"--orphans-exit", `"-1"`, aStatus}},
		"remap-exit in words":     {[]string{"-e", "x"}, nil, []string{"--remap-exit", `"x"`, aStatus}},
		"remap-exit and a sign":   {[]string{"-e", "+1"}, nil, []string{"--remap-exit", `"+1"`, aStatus}},
		"remap-exit of spaces":    {[]string{"-e", " "}, nil, []string{"--remap-exit", `" "`, aStatus}},
		"remap-exit and a tail":   {[]string{"-e", "1x"}, nil, []string{"--remap-exit", `"1x"`, aStatus}},
		"remap-exit past an int":  {[]string{"-e", "99999999999999999999"}, nil, []string{"--remap-exit", "99999999999999999999", aStatus}},
		"remap-exit past 32 bits": {[]string{"-e", "4294967296"}, nil, []string{"--remap-exit", "4294967296", aStatus}},
		"empty remap-exit":        {[]string{"--remap-exit="}, nil, []string{"--remap-exit"}},
		"remap-exits in a list":   {[]string{"-e", "143,130"}, nil, []string{"--remap-exit", `"143,130"`, aStatus}},
		"FINI_REMAP_EXIT list":    {nil, set{"FINI_REMAP_EXIT": "143,130"}, []string{"remap-exit", `"143,130"`, aStatus}},
		"one of two remap-exits":  {[]string{"-e", "1", "-e", "256"}, nil, []string{"--remap-exit", `"256"`, aStatus}},
		"pdeathsig":               {[]string{"-p", "FOO"}, nil, []string{"--pdeathsig", `"FOO"`, aSignal, "none"}},
		"pdeathsig of 0":          {[]string{"--pdeathsig=0"}, nil, []string{"--pdeathsig", `"0"`, aSignal, "none"}},
		"empty pdeathsig":         {[]string{"--pdeathsig="}, nil, []string{"--pdeathsig", `""`, aSignal, "none"}},
		"FINI_STDIN_EOF":          {nil, set{"FINI_STDIN_EOF": "perhaps"}, []string{"stdin-eof", "perhaps"}},
		"bind to nobody":          {[]string{"--bind="}, nil, []string{`--bind: cannot use "": want the pid of a process;`}},
		"FINI_SHIELD":             {nil, set{"FINI_SHIELD": "perhaps"}, []string{`FINI_SHIELD: cannot use "perhaps": want true, 1, yes, false, 0 or no;`}},
		"FINI_VERBOSE":            {nil, set{"FINI_VERBOSE": "much"}, []string{`FINI_VERBOSE: cannot use "much": want a number`}},
		"one dash":                {[]string{"-timeout=5s", "x"}, nil, []string{"two dashes: --timeout=5s;"}},
		"one dash, apart":         {[]string{"-i", "-timeout", "5s", "x"}, nil, []string{"two dashes: --timeout;"}},
		"one dash behind a value": {[]string{"-e", "1", "-no-shield", "x"}, nil, []string{"two dashes: --no-shield;"}},
		"a command's own flag":    {[]string{"--orphans=x", "java", "-timeout"}, nil, []string{aPolicy}},
		"the command's one dash":  {[]string{"-Z", "java", "-version"}, nil, []string{"unknown flag -Z;"}},
		"noshield":                {[]string{"--noshield", "x"}, nil, []string{"did you mean --no-shield?"}},
		"a part of a flag":        {[]string{"--stdin", "x"}, nil, []string{"did you mean --stdin-eof?"}},
		"like no flag":            {[]string{"--nope", "x"}, nil, []string{"unknown flag --nope; see"}},
		"install with a command":  {[]string{"--install=/x", "y"}, nil, []string{"--install", `"y"`}},
		"allow-orphan of nothing": {[]string{"--allow-orphan="}, nil, []string{"--allow-orphan", `cannot use "": want the name of a program`}},
		"allow-orphan of a flag":  {[]string{"--allow-orphan", "-v", "x"}, nil, []string{"--allow-orphan", `"-v"`}},
		"allow-orphan of two":     {[]string{"--allow-orphan=java,gpg-agent"}, nil, []string{"--allow-orphan", `"java,gpg-agent"`, "again"}},
		"allow-orphan of a path":  {[]string{"--allow-orphan=/bin/x"}, nil, []string{"--allow-orphan", `"/bin/x"`, "gpg-agent"}},
		"allow-orphan, broken":    {[]string{"--allow-orphan=[a"}, nil, []string{"--allow-orphan", `"[a"`, "pattern"}},
		"pause with a command":    {[]string{"-P", "x"}, nil, []string{"--pause", `"x"`}},
	} {
		t.Run(what, func(t *testing.T) {
			withoutVariables(t, c.env)
			got, err := Parse(c.args, os.Environ())
			if err == nil {
				t.Fatalf("Parse(%q) with %v = %+v, want an error", c.args, c.env, got)
			}
			for _, part := range c.says {
				// A variable stands for its flag.
				named := strings.Contains(err.Error(), part) || c.args == nil &&
					strings.Contains(err.Error(), strings.ToUpper(strings.ReplaceAll(part, "-", "_")))
				if !named {
					t.Errorf("the error does not say %s: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is more than one line: %q", err)
			}
		})
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
	initial := sayingNothing().policy
	for name, value := range map[string]any{"--grace": initial.Grace, "--linger": initial.Linger, "--orphans": initial.Orphans} {
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

// The longest duration that Go can write means never, and not now.
func TestLongestDuration(t *testing.T) {
	c, err := Parse([]string{"--grace=2562047h47m16s", "--", "command"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if sum := signals.Uptime() + c.Policy().Grace; sum < 50*365*24*time.Hour {
		t.Errorf("it is over at %v", sum)
	}
}

// timeout(1) takes the same, except that it takes hexadecimal numbers too.
func TestDurationAsTimeoutReadsIt(t *testing.T) {
	const most = 100 * 365 * 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1e-1": 100 * time.Millisecond, "5e-2s": 50 * time.Millisecond, "1.5d": 36 * time.Hour,
		".5h": 30 * time.Minute, "inf": most, "Infinity": most, "infd": most, "1e400": most, "1e-100": 1, "0": 0, "0d": 0,
		"1m30s": 90 * time.Second, "0.3": 300 * time.Millisecond,
	} {
		if got, err := duration(text); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "nan", "-1", "-inf", "-1e-1", "0x", "1_0", "1S", "1 s", "1ds"} {
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
		withoutVariables(t, nil)
		if parsed, err := Parse(c.args, nil); err != nil || len(parsed.Command) > 0 {
			t.Errorf("%q: %+v, %v", c.args, parsed, err)
		}
		if got := NoCommand(c.args).Error(); !strings.HasPrefix(got, c.says) {
			t.Errorf("%q: %s, want %s", c.args, got, c.says)
		}
	}
}

func TestMisspeltVariables(t *testing.T) {
	for name, want := range map[string]string{
		"FINI_grace": "FINI_GRACE", "FINI_NO_FOREGROUND": "FINI_FOREGROUND=0",
		"FINI_ORPHAN_EXIT": "FINI_ORPHANS_EXIT", "FINI_ORPHAN": "FINI_ORPHANS", "FINI_TIMOUT": "FINI_TIMEOUT",
		"FINI_NO_SHIELD": "FINI_SHIELD=0", "FINI_NOSHIELD": "FINI_SHIELD=0", "FINI_GRAEC": "FINI_GRACE",
		"FINI_ALLOW_ORPHANS": "FINI_ALLOW_ORPHAN", "FINI_STDIN": "FINI_STDIN_EOF", "FINI_GRACE_PERIOD": "FINI_GRACE",
		"FINI_REMAP": "FINI_REMAP_EXIT", "FINI_KILLAFTER": "FINI_KILL_AFTER",

		// A Dockerfile's and a test's own.
		"FINI_VERSION": "", "FINI_SHA256": "", "FINI_URL": "", "FINI_BIN": "", "FINI_PATH": "", "FINI_ARCH": "",
		"FINI_MUST_RUN": "", "FINI_SKIPPED": "", "FINI_FULL": "", "FINI_SEED": "", "FINI_": "", "FINI_HELP": "",
	} {
		withoutVariables(t, nil)
		c, err := Parse([]string{"x"}, []string{name + "=1"})
		if err != nil {
			t.Fatal(err)
		}
		var says []string
		if want != "" {
			says = []string{name + " sets nothing: did you mean " + want + "?"}
		}
		if !slices.Equal(c.Misspelt, says) {
			t.Errorf("%s: %q, want %q", name, c.Misspelt, says)
		}
	}
}

// A variable by which tini or dumb-init would have acted is named; a variable that asks for what fini does anyway is not.
func TestVariablesOfOtherInits(t *testing.T) {
	for variable, says := range map[string]string{
		"DUMB_INIT_SETSID=0": "FINI_SINGLE_CHILD=1", "DUMB_INIT_DEBUG=1": "FINI_VERBOSE=1", "TINI_VERBOSITY=3": "FINI_VERBOSE=2",
		"DUMB_INIT_SETSID=1": "", "TINI_SUBREAPER=": "", "TINI_KILL_PROCESS_GROUP=1": "", "TINI_VERBOSITY=1": "", "TINI_VERSION=v0.19.0": "",
	} {
		c, err := Parse([]string{"x"}, []string{variable})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.Misspelt, "\n")
		if want := variable + " sets nothing: did you mean " + says + "?"; says == "" && got != "" || says != "" && got != want {
			t.Errorf("%s: %q", variable, got)
		}
	}
}

// An answer comes even if a variable can't be used.
func TestAnswers(t *testing.T) {
	for _, flag := range []string{"-h", "--help", "-V", "--version", "-l", "-L", "--license", "--install=/x"} {
		withoutVariables(t, nil)
		if _, err := Parse([]string{flag}, []string{"FINI_GRACE=x"}); err != nil {
			t.Errorf("%s: %v", flag, err)
		}
		t.Setenv("FINI_GRACE", "") // so that the test puts it back
		if _, err := Parse([]string{flag, "-v"}, []string{"FINI_GRACE=x"}); err == nil {
			t.Errorf("%s -v is no answer alone, and yet the variable is not looked at", flag)
		}
	}
}

func TestPids(t *testing.T) {
	c, err := Parse([]string{"--bind=3", "--bind=5", "x"}, nil)
	if err != nil || !slices.Equal(c.Bind, []int{3, 5}) {
		t.Errorf("%v, %v", c.Bind, err)
	}
}

// A command may have as many arguments as the kernel takes, even after a flag.
func TestParseManyArguments(t *testing.T) {
	many := slices.Repeat([]string{"x"}, 100_000)
	for _, flags := range [][]string{{"--grace=1s"}, {"--grace", "1s", "--"}} {
		c, err := Parse(append(append(flags, "command"), many...), os.Environ())
		if err != nil || len(c.Command) != 1+len(many) || c.Command[0] != "command" || c.Policy().Grace != time.Second {
			t.Fatalf("%q: %d words, %v", flags, len(c.Command), err)
		}
	}
}

func TestIsolateFlag(t *testing.T) {
	for _, c := range []struct {
		args    []string
		env     string
		want    Isolation
		refused string
	}{
		{[]string{"x"}, "", "", ""},
		{[]string{"--isolate", "x"}, "", Isolate, ""},
		{[]string{"--isolate", "try"}, "", Isolate, ""}, // try is the command
		{[]string{"--isolate=try", "--", "x"}, "", TryIsolate, ""},
		{[]string{"-v", "--isolate", "x"}, "", Isolate, ""},
		{[]string{"-v", "--isolate=1", "x"}, "", Isolate, ""},
		{[]string{"-v", "--isolate=TRY", "x"}, "", TryIsolate, ""},
		{[]string{"x"}, "1", Isolate, ""},
		{[]string{"x"}, "true", Isolate, ""},
		{[]string{"x"}, "try", TryIsolate, ""},
		{[]string{"x"}, "0", "", ""},
		{[]string{"--isolate", "x"}, "try", Isolate, ""},
		{[]string{"--isolate=no", "x"}, "1", "", ""},
		{[]string{"--isolate=perhaps", "x"}, "", "", `cannot use "perhaps": want try, or no value`},
		{[]string{"x"}, "perhaps", "", `cannot use "perhaps"`},
	} {
		var environ []string
		if c.env != "" {
			t.Setenv("FINI_ISOLATE", c.env)
			environ = append(environ, "FINI_ISOLATE="+c.env)
		} else {
			_ = os.Unsetenv("FINI_ISOLATE")
		}
		got, err := Parse(c.args, environ)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q, %q: got %v, want %q", c.args, c.env, err, c.refused)
			}
		case err != nil || got.Isolate != c.want:
			t.Errorf("%q, %q: got %+v, %v", c.args, c.env, got, err)
		case len(got.Command) != 1:
			t.Errorf("%q: the command is %q", c.args, got.Command)
		}
	}
}

// Of two variables of the same name the first counts, as in getenv(3).
func TestSameVariableTwice(t *testing.T) {
	c, err := Parse([]string{"x"}, []string{"FINI_BIND=1 2", "FINI_BIND=3", "FINI_GRACE=1s", "FINI_GRACE=x"})
	if err != nil || !slices.Equal(c.Bind, []int{1, 2}) || c.Policy().Grace != time.Second {
		t.Errorf("%+v, %v", c, err)
	}
}
