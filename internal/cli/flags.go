// Package cli reads the command line and the variables of the environment, and says what is wrong with them.
package cli

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/signals"
)

// Usage is what --help prints.
const Usage = `usage: fini [flags] [--] command [args...]
Run command, forward signals to it, reap orphans, and exit with its status.
Stop each process that the command leaves running (a leftover).

  fini -- make test             in front of a command in CI; also as PID 1
  fini -i -k 5s npx -y SERVER   around an MCP server

  -p, --pdeathsig=SIG      when the parent process dies, stop the command with
                           SIG; none: do not. Off as PID 1, under nohup and in
                           docker exec, unless given (default: TERM)
  -i, --stdin-eof          once stdin closes, wait --grace and stop the command
  -t, --timeout=DUR        stop the command after DUR and exit 124
      --bind=PID           when process PID exits, stop the command; repeatable
      --[no-]shield        run as a pair of processes, so that SIGKILL of fini
                           leaves nothing behind (default: on, except as PID 1)
      --isolate            use a PID namespace: SIGKILL of both processes leaves
                           nothing. --isolate=try: only if the kernel allows it
      --grace=DUR          from SIGTERM to SIGKILL, wait this long (default: 5s)
  -k, --kill-after=DUR     send SIGKILL if the command still runs DUR after a
                           forwarded TERM, INT, HUP or QUIT
      --linger=DUR         leftovers may run on for this long (default: 500ms)
      --orphans=POLICY     leftovers: stop, wait or leave; pipes: stop only
                           those that hold stdout or stderr (default: stop)
      --orphans-exit=CODE  if there are leftovers, exit CODE in place of 0
      --allow-orphan=NAME  leave alone leftovers whose name matches this pattern
      --report=FILE        write a report in JSON to FILE; - is stdout
      --[no-]foreground    keep the command in fini's process group
                           (default: on at a terminal, except as PID 1)
  -c, --single-child       forward signals to the main child, not its group
  -r, --rewrite=FROM:TO    forward FROM as TO, or drop it if TO is 0; repeatable
  -e, --remap-exit=N       exit 0 if the command exits with N; repeatable
  -w, --warn-reaped        name each orphan that fini reaps, and its status
  -v, --verbose            say more: the start, each signal, and the exit
  -q, --quiet              say nothing but errors
      --install=PATH       copy this binary to PATH, and exit
  -P, --pause              run no command: reap until SIGTERM or SIGINT
  -s, -g                   for compatibility with tini and catatonit; always on
  -l, -L, --license        print the license
  -V, --version            print the version
  -h, --help               print this help

SIG: TERM, SIGTERM, 15, RTMIN+3. DUR: 500ms, 5s, 1m30s, 1d, or just seconds.
FINI_GRACE=10s sets --grace, and so on. FINI_TEST=NAME names a leftover's test.
By default fini says on stderr what went wrong, and what it stopped and why.
Exit status: the command's own. If signal n killed the command, fini dies by n,
or exits with 128+n as PID 1. 124: --timeout. 125: fini failed. 126: the command
can't be executed. 127: it was not found. 2: the Go runtime could not start.
`

// Options is what the command line and the variables ask for.
type Options struct {
	Command     []string
	Pdeathsig   *syscall.Signal // 0 for none
	Report      string
	AllowOrphan []string
	Bind        []int
	Misspelt    []string // a line for each variable that sets nothing, but whose name looks as if it did

	StdinEOF, Pause, SingleChild, Quiet, Verbose bool
	Shield, Foreground                           *bool // nil if neither --x nor --no-x is given
	Isolate, TryIsolate                          bool  // with TryIsolate fini goes on without if the kernel refuses

	// These run no command.
	License, Version, Help bool
	Install                string

	Policy life.Policy // the flags that a life obeys
}

// table returns every flag, with the field of c that the flag sets.
func (c *Options) table() table {
	p := &c.Policy
	return table{
		{long: "pdeathsig", letters: "p", set: read(deathsig, c.dieBy)},
		{long: "stdin-eof", letters: "i", bare: true, set: read(truth, last(&c.StdinEOF))},
		{long: "timeout", letters: "t", set: read(duration, last(&p.Timeout))},
		{long: "shield", bare: true, set: read(truth, pointer(&c.Shield))},
		{long: "no-shield", bare: true, set: read(untruth, pointer(&c.Shield))},
		{long: "kill-after", letters: "k", set: read(duration, last(&p.KillAfter))},
		{long: "pause", letters: "P", bare: true, set: read(truth, last(&c.Pause))},
		{long: "grace", set: read(duration, last(&p.Grace))},
		{long: "linger", set: read(duration, last(&p.Linger))},
		{long: "orphans", set: read(orphans, last(&p.Orphans))},
		{long: "orphans-exit", set: read(status, last(&p.OrphansExit))},
		{long: "allow-orphan", repeatable: true, set: read(pattern, c.allow)},
		{long: "foreground", bare: true, set: read(truth, pointer(&c.Foreground))},
		{long: "no-foreground", bare: true, set: read(untruth, pointer(&c.Foreground))},
		{long: "bind", repeatable: true, set: read(pid, each(&c.Bind))},
		{long: "report", set: read(file, last(&c.Report))},
		{long: "rewrite", letters: "r", repeatable: true, set: c.rewrite},
		{long: "single-child", letters: "c", bare: true, set: read(truth, last(&c.SingleChild))},
		{long: "isolate", bare: true, set: c.isolate},
		{long: "remap-exit", letters: "e", repeatable: true, set: read(status, each(&p.Remap))},
		{long: "warn-reaped", letters: "w", bare: true, set: read(truth, last(&p.WarnReaped))},
		{long: "verbose", letters: "v", bare: true, set: read(verbosity, last(&c.Verbose))},
		{long: "quiet", letters: "q", bare: true, set: read(truth, last(&c.Quiet))},
		// It changes nothing: fini always works so.
		{long: "always-on", letters: "sg", bare: true, noVariable: true, set: read(truth, func(bool) {})},
		// In a Dockerfile, FINI_VERSION is the version to install.
		{long: "install", noVariable: true, set: read(file, last(&c.Install))},
		{long: "license", letters: "lL", bare: true, noVariable: true, set: read(truth, last(&c.License))},
		{long: "version", letters: "V", bare: true, noVariable: true, set: read(truth, last(&c.Version))},
		{long: "help", letters: "h", bare: true, noVariable: true, set: read(truth, last(&c.Help))},
	}
}

// Parse reads the command line. args is without the program's name.
func Parse(args, environ []string) (*Options, error) {
	c := &Options{Policy: life.Policy{
		Grace:       5 * time.Second,
		Linger:      500 * time.Millisecond,
		Deathsig:    syscall.SIGTERM,
		Orphans:     life.StopAll,
		OrphansExit: -1,
		Rewrite:     map[syscall.Signal]syscall.Signal{},
	}}
	if err := c.parse(args, environ); err != nil {
		return nil, fmt.Errorf("%w; see fini --help", err)
	}
	return c, nil
}

func (c *Options) parse(args, environ []string) (err error) {
	t := c.table()
	if c.Command, err = t.readLine(args); err != nil {
		return err
	}
	if err := c.contradiction(t); err != nil {
		return err
	}
	if len(args) == 1 && (c.Help || c.Version || c.License || c.Install != "") {
		environ = nil // the user may want to find out why a variable can't be used
	}
	quiet, verbose := t.find("--quiet"), t.find("--verbose")
	quiet.given = quiet.given || verbose.given // a flag wins over FINI_QUIET
	if c.Misspelt, err = t.readVariables(environ); err == nil && c.Pause && len(c.Command) > 0 {
		return fmt.Errorf("--pause runs no command: cannot use %q", c.Command[0])
	}
	return err
}

// A flag is a line of the table by which command lines and variables are read.
type flag struct {
	long       string
	letters    string // any of them, after one dash, is the flag too
	bare       bool   // it may come without a value
	repeatable bool   // each value counts, and the variable has spaces between them
	noVariable bool
	set        func(value string) error
	given      bool // the flag is set, and its variable has no effect
}

// noValue is the value of a bare flag that comes without one. No argument has this byte.
const noValue = "\x00"

type table []flag

// find returns the flag called --name or -n, or nil.
func (t table) find(name string) *flag {
	long, isLong := strings.CutPrefix(name, "--")
	for i := range t {
		if f := &t[i]; isLong && f.long == long || len(name) == 2 && strings.Contains(f.letters, name[1:]) {
			return f
		}
	}
	return nil
}

// readLine reads the flags, and returns the command: the words after the flags and after one "--".
func (t table) readLine(words []string) (command []string, err error) {
	for len(words) > 0 && strings.HasPrefix(words[0], "-") && words[0] != "-" {
		word := words[0]
		words = words[1:]
		if word == "--" {
			break
		}
		if name, _, _ := strings.Cut("-"+word, "="); t.find(name) != nil {
			return nil, fmt.Errorf("cannot use %s: long flags have two dashes: -%s", word, word)
		}
		for left := word; left != ""; {
			name, value, hasValue, rest := t.cut(left)
			left = rest
			f := t.find(name)
			switch {
			case f == nil:
				return nil, t.unknown(name)
			case hasValue:
			case f.bare:
				value = noValue
			case len(words) > 0:
				value, words = words[0], words[1:]
			}
			t.find("--" + strings.TrimPrefix(f.long, "no-")).given = true
			if err := f.set(value); err != nil {
				return nil, fmt.Errorf("--%s: %w", f.long, err)
			}
		}
	}
	return words, nil
}

// cut takes the first flag off a word: its name, its value if the word has one, and the flags that are left.
func (t table) cut(word string) (name, value string, hasValue bool, left string) {
	if strings.HasPrefix(word, "--") {
		name, value, hasValue = strings.Cut(word, "=")
		return name, value, hasValue, ""
	}
	_, size := utf8.DecodeRuneInString(word[1:])
	name, value = word[:1+size], word[1+size:]
	if f := t.find(name); f != nil && f.bare && value != "" && value[0] != '-' {
		return name, "", false, "-" + value
	}
	return name, value, value != "", ""
}

// variableName returns the name of a flag's variable, "" for none. For --no-x it returns FINI_X=0, which does the same.
func (f *flag) variableName() string {
	name := "FINI_" + strings.ToUpper(strings.ReplaceAll(f.long, "-", "_"))
	if f.noVariable {
		return ""
	}
	if positive, negated := strings.CutPrefix(name, "FINI_NO_"); negated {
		return "FINI_" + positive + "=0"
	}
	return name
}

// readVariables sets the flags that are not given yet. It returns a line for each variable that sets nothing, but whose
// name is nearly the name of a variable that does, or that another init would have obeyed.
func (t table) readVariables(environ []string) (misspelt []string, err error) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		short, ours := strings.CutPrefix(name, "FINI_")
		meant := otherInits[variable]
		if ours && value != "" && short != "TEST" { // package report reads FINI_TEST
			switch f := t.nearest(strings.ReplaceAll(short, "_", "-")); {
			case f == nil:
			case f.variableName() != name:
				variable, meant = name, f.variableName()
			case !f.given:
				if err := f.setByVariable(value); err != nil {
					return nil, err
				}
			}
		}
		if meant != "" {
			misspelt = append(misspelt, fmt.Sprintf("%s sets nothing: did you mean %s?", variable, meant))
		}
	}
	return misspelt, nil
}

func (f *flag) setByVariable(value string) error {
	f.given = true // of two variables of the same name, the first counts
	values := []string{value}
	if words := strings.Fields(value); f.repeatable && len(words) > 0 {
		values = words
	}
	for _, value := range values {
		if err := f.set(value); err != nil {
			return fmt.Errorf("%s: %w", f.variableName(), err)
		}
	}
	return nil
}

// read returns the function set of a flag: text reads the value, and keep keeps it.
func read[T any](text func(string) (T, error), keep func(T)) func(string) error {
	return func(value string) error {
		v, err := text(value)
		if err == nil {
			keep(v)
		}
		return err
	}
}

func last[T any](kept *T) func(T) {
	return func(v T) { *kept = v }
}

func pointer[T any](kept **T) func(T) {
	return func(v T) { *kept = &v }
}

func each[T any](kept *[]T) func(T) {
	return func(v T) { *kept = append(*kept, v) }
}

// accept returns an error that says what is wanted, unless the value is all right.
func accept(right bool, value, want string) error {
	if right {
		return nil
	}
	return fmt.Errorf("cannot use %q: want %s", value, want)
}

// file reads the path of a file. Another flag, or "--", is none.
func file(text string) (string, error) {
	isFlag := strings.HasPrefix(text, "-") && text != "-"
	return text, accept(text != "" && !isFlag, text, "a PATH, or ./PATH if it begins with a dash")
}

func truth(text string) (bool, error) {
	is := slices.Contains([]string{noValue, "true", "1", "yes"}, strings.ToLower(text))
	isNot := slices.Contains([]string{"false", "0", "no"}, strings.ToLower(text))
	return is, accept(is || isNot, text, "true, 1, yes, false, 0 or no")
}

func untruth(text string) (bool, error) {
	is, err := truth(text)
	return !is, err
}

func (c *Options) isolate(text string) (err error) {
	c.Isolate, err = truth(text)
	if c.TryIsolate = strings.EqualFold(text, "try"); c.TryIsolate {
		c.Isolate, err = true, nil
	}
	return accept(err == nil, text, "try, or no value")
}

// verbosity reads a number, as tini's variable is one; 2 says no more than 1.
func verbosity(text string) (bool, error) {
	n, err := strconv.Atoi(text)
	return text == noValue || n > 0, accept(text == noValue || err == nil, text, "a number")
}

func orphans(text string) (string, error) {
	known := slices.Contains([]string{life.StopAll, life.StopPipes, life.WaitAll, life.LeaveAll}, text)
	return text, accept(known, text, "stop, pipes, wait or leave")
}

func status(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	return int(n), accept(err == nil, text, "an exit status from 0 to 255")
}

// pid reads the number of one process. Numbers that kill(2) takes for a group, or for all processes, are not accepted.
func pid(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), accept(err == nil && n > 0, text, "the pid of a process")
}

// duration reads a duration of Go's, or a number of seconds or days, even "inf".
func duration(text string) (time.Duration, error) {
	// A deadline this far away does not overflow, and is as good as no deadline.
	const most = 100 * 365 * 24 * time.Hour
	number, unit := text, time.Second
	if days, found := strings.CutSuffix(text, "d"); found {
		number, unit = days, 24*time.Hour
	}
	value, err := strconv.ParseFloat(number, 64)
	nanoseconds := value * float64(unit)
	if parsed, notGo := time.ParseDuration(text); notGo == nil {
		nanoseconds, err = float64(parsed), nil
	}
	kept := min(math.Ceil(nanoseconds), float64(most)) // rounded up, because 0 may mean never
	return time.Duration(kept), accept(err == nil && kept >= 0, text, "a duration such as 500ms, 5s or 1m, a number of seconds, or 1d")
}

// deathsig reads a signal, or "none" as 0.
func deathsig(text string) (syscall.Signal, error) {
	sig, err := signals.Parse(text)
	if err != nil && !strings.EqualFold(text, "none") {
		return 0, fmt.Errorf("%w; or none", err)
	}
	return sig, nil
}

// dieBy keeps the signal of --pdeathsig, 0 for none, which also stops the command for another reason than that.
func (c *Options) dieBy(sig syscall.Signal) {
	c.Pdeathsig, c.Policy.Deathsig = &sig, cmp.Or(sig, c.Policy.Deathsig)
}

// allow keeps a pattern of --allow-orphan.
func (c *Options) allow(pattern string) {
	c.AllowOrphan, c.Policy.Allow = append(c.AllowOrphan, pattern), true
}

// rewrite reads FROM:TO: fini forwards the signal FROM as TO. If TO is 0, fini drops the signal.
func (c *Options) rewrite(text string) error {
	from, to, found := strings.Cut(text, ":")
	sig, err := signals.Parse(from)
	switch {
	case !found:
		return accept(false, text, "FROM:TO, such as TERM:QUIT or HUP:0")
	case err != nil:
		return err
	case !signals.Catchable(sig):
		return fmt.Errorf("cannot use %q: %s can't be caught", text, signals.Name(sig))
	}
	if c.Policy.Rewrite[sig], err = signals.Parse(to); err != nil && to != "0" {
		return fmt.Errorf("%w; or 0", err)
	}
	return nil
}

// pattern reads a pattern of --allow-orphan. The user writes it as in glob(7); it is kept as path.Match reads it.
func pattern(text string) (string, error) {
	p := strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^").Replace(text)
	_, err := path.Match(p, "")
	line, ofLine := strings.CutPrefix(text, "cmd:")
	variable, ofVariable := strings.CutPrefix(text, "env:")
	// A path and a list would match no name, and fini would say nothing.
	right := text != "" && text[0] != '-' && !strings.ContainsAny(text, "/,")
	switch {
	case ofLine:
		right = line != ""
	case ofVariable:
		right = strings.Index(variable, "=") > 0
	}
	return p, accept(err == nil && right, text,
		"the name of a program, a pattern of names such as gpg-*, cmd:PATTERN or env:NAME=VALUE, and the flag again for the next")
}

// Pair reports whether fini must be two processes.
func (c *Options) Pair() bool { return c.Shield == nil || *c.Shield }

// Level says how much fini says.
func (c *Options) Level() life.Level {
	switch {
	case c.Quiet:
		return life.Failure
	case c.Verbose:
		return life.Detail
	}
	return life.Warning
}

// Version ends in seven hexadecimal digits, because Docker compares what `<init> --version` prints with a pattern.
func Version() string {
	revision := "0000000"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				revision = s.Value[:7]
			}
		}
	}
	return fmt.Sprintf("fini version %s - git.%s", VersionNumber(), revision)
}

// LimitedBuild is the message of a build whose first instructions are the Go runtime's, which changes what fini has
// inherited. See entry.Linked.
const LimitedBuild = "a build with limits, as go install makes them: the command may see other ignored and blocked signals " +
	"than without fini, and /dev/null for a closed stream; make build has no such limits, on amd64 and arm64"

// VersionNumber is the version without the rest of the line.
func VersionNumber() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, found := strings.CutPrefix(info.Main.Version, "v"); found && !strings.HasPrefix(v, "0.0.0-") {
			return v
		}
	}
	return "0.1.0"
}
