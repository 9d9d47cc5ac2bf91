// Package cli reads the command line and the variables of the environment, and says what is wrong with them.
package cli

import (
	"bytes"
	"encoding"
	"fmt"
	"math"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/signals"
)

// Usage is what --help prints.
const Usage = `usage: fini [flags] [--] command [args...]

Run command, forward signals to it, reap orphans, end as it ended, and leave
nothing behind: what it leaves running (leftovers) is stopped.

  fini -- make test          in CI, in front of a command; as PID 1 likewise
  fini -i -k 5s npx -y SERVER   around an MCP server

  -p, --pdeathsig=SIG      when the parent process dies, stop the command,
                           beginning with SIG; none does not (TERM)
  -i, --stdin-eof          when standard input is closed, stop the command
  -t, --timeout=DUR        stop the command after DUR and exit 124
      --bind=PID           when process PID ends, stop the command; repeatable
      --[no-]shield        run as a pair, so that SIGKILL of fini leaves nothing
                           behind (on, except for PID 1)
      --isolate            the command gets a PID namespace, which the kernel
                           ends with fini; --isolate=try, if there is one
      --grace=DUR          how long each step of a stop waits (` + grace + `)
  -k, --kill-after=DUR     SIGKILL, DUR after a forwarded TERM, INT, HUP or QUIT
      --linger=DUR         how long leftovers may go on by themselves (` + linger + `)
      --orphans=POLICY     leftovers: stop all, stop only those that hold stdout
                           or stderr (pipes), wait, or leave (` + life.StopAll + `)
      --orphans-exit=CODE  exit CODE, not 0, if there are leftovers
      --allow-orphan=NAME  leave leftovers of this name, or pattern, alone
      --report=FILE        write what happened to FILE (- is stdout), as JSON
      --[no-]foreground    the command stays in fini's group (on at a terminal)
  -c, --single-child       forward signals to the command alone, not its group
  -r, --rewrite=FROM:TO    forward signal FROM as TO; TO 0 drops it; repeatable
  -e, --remap-exit=N       exit 0 if the command exits N; repeatable
  -w, --warn-reaped        name each orphan that is reaped, and how it ended
  -v, --verbose            say more: what is done to the command
  -q, --quiet              say nothing but errors
      --install=PATH       copy this binary to PATH, and exit
  -P, --pause              run no command: reap until SIGTERM or SIGINT
  -s, -g                   accepted from tini and catatonit; always on
  -l, -L, --license        print the license
  -V, --version            print the version
  -h, --help               print this

SIG: TERM, SIGTERM, 15, RTMIN+3. DUR: 500ms, 5s, 1m30s, 1d, or just seconds.
FINI_NAME sets a long flag, as in FINI_GRACE=10s; FINI_TEST names a leak's test.
By default fini says on stderr what went wrong, and what it stopped and why.
Exit status: the command's own; if signal n ended it, that signal, and as PID 1
128+n; 124 after a timeout; 125 if fini itself failed; 126 if the command can't
be executed; 127 if it was not found.
`

// What holds without a flag.
const grace, linger = "5s", "500ms"

var defaults = kong.Vars{"grace": grace, "linger": linger, "orphans": life.StopAll}

// Options is what kong fills in. Durations are text here so that an error can
// say what is accepted.
type Options struct {
	Pdeathsig   *deathsig `short:"p"`
	StdinEOF    bool      `short:"i" name:"stdin-eof"`
	Timeout     duration  `short:"t"`
	Shield      bool      `default:"true" negatable:""`
	KillAfter   duration  `short:"k"`
	Pause       bool      `short:"P"`
	Grace       duration  `default:"${grace}"`
	Linger      duration  `default:"${linger}"`
	Orphans     policy    `default:"${orphans}"`
	OrphansExit *status
	AllowOrphan several[pattern, *pattern]
	Foreground  *bool `negatable:""`
	Bind        several[pid, *pid]
	Report      string
	Rewrite     several[rewrite, *rewrite] `short:"r"`
	SingleChild bool                       `short:"c"`
	Isolate     Isolation
	RemapExit   several[status, *status] `short:"e"`
	WarnReaped  bool                     `short:"w"`
	Verbose     int                      `short:"v" type:"counter"`
	Quiet       bool                     `short:"q"`

	// Both are how fini always works.
	Subreaper bool `short:"s" env:"-" hidden:""`
	Group     bool `short:"g" env:"-" hidden:""`

	// No variable sets these, which run no command: FINI_VERSION is what a Dockerfile
	// calls the version that it installs.
	Install  *string `env:"-"`
	License  bool    `short:"l" env:"-"`
	License2 bool    `short:"L" env:"-" hidden:""`
	Version  bool    `short:"V" env:"-"`
	Help     bool    `short:"h" env:"-"`

	// Inner says that this is the inner fini of a pair, and what the outer one has opened
	// for it. No user sets it.
	Inner string `env:"-" hidden:""`

	Command []string `arg:"" optional:"" passthrough:"partial"`

	// Misspelt says which variables are nearly the names of some.
	Misspelt []string `kong:"-"`
}

// several are the values of a repeatable flag. A variable holds more than one: see setVariables.
type several[T any, P interface {
	*T
	encoding.TextUnmarshaler
}] []T

// Decode is what the flag's parser calls for each word.
func (s *several[T, P]) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	for word := range strings.SplitSeq(text, betweenValues) {
		var value T
		if err := P(&value).UnmarshalText([]byte(word)); err != nil {
			return err
		}
		*s = append(*s, value)
	}
	return nil
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	// So much can be added to a time without an overflow, and nobody sees its end.
	const most = 100 * 365 * 24 * time.Hour
	parsed, err := time.ParseDuration(string(text))
	if units, ok := inUnits(string(text)); err != nil && ok {
		parsed, err = most, nil
		if units < float64(most) {
			parsed = time.Duration(math.Ceil(units)) // not to 0, which may mean never
		}
	}
	if err != nil || parsed < 0 {
		return fmt.Errorf("cannot use %q: want a duration such as 500ms, 5s or 1m, a number of seconds, or 1d", text)
	}
	*d = duration(min(parsed, most))
	return nil
}

// inUnits is a duration in nanoseconds as timeout(1) takes it: a number, also "inf", and one of its units,
// seconds if there is none.
func inUnits(text string) (nanoseconds float64, ok bool) {
	number, unit := text, time.Second
	for suffix, is := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour} {
		if cut, found := strings.CutSuffix(text, suffix); found {
			number, unit = cut, is
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	infinite := math.IsInf(value, 1) // also if it is too large for a float
	return value * float64(unit), (err == nil || infinite) && value >= 0 && !strings.Contains(number, "_")
}

// deathsig is a signal, or 0 for "none".
type deathsig syscall.Signal

func (d *deathsig) UnmarshalText(text []byte) error {
	if strings.EqualFold(string(text), "none") {
		*d = 0
		return nil
	}
	sig, err := signals.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%w; or none", err)
	}
	*d = deathsig(sig)
	return nil
}

// rewrite is a signal and what it is forwarded as, 0 for not at all.
type rewrite struct{ from, to syscall.Signal }

func (r *rewrite) UnmarshalText(text []byte) (err error) {
	from, to, found := strings.Cut(string(text), ":")
	if !found {
		return fmt.Errorf("cannot use %q: want FROM:TO, such as TERM:QUIT or HUP:0", text)
	}
	if r.from, err = signals.Parse(from); err != nil {
		return err
	}
	if !signals.Catchable(r.from) {
		return fmt.Errorf("cannot use %q: %s can't be caught", text, signals.Name(r.from))
	}
	if to == "0" {
		r.to = 0
		return nil
	}
	if r.to, err = signals.Parse(to); err != nil {
		return fmt.Errorf("%w; or 0", err)
	}
	return nil
}

type policy string

func (p *policy) UnmarshalText(text []byte) error {
	switch *p = policy(text); *p {
	case life.StopAll, life.StopPipes, life.WaitAll, life.LeaveAll:
		return nil
	}
	return fmt.Errorf("cannot use %q: want stop, pipes, wait or leave", text)
}

// pattern matches names of processes. It is written as in glob(7), and kept as path.Match has it.
type pattern string

func (p *pattern) UnmarshalText(text []byte) error {
	*p = pattern(strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^").Replace(string(text)))
	if _, err := path.Match(string(*p), ""); err != nil || len(text) == 0 || bytes.ContainsRune(text, '/') {
		return fmt.Errorf("cannot use %q: want the name of a program, such as gpg-agent, or a pattern of names, such as gpg-*", text)
	}
	// It would match nothing, and nobody would be told.
	if bytes.ContainsRune(text, ',') {
		return fmt.Errorf("cannot use %q: want one name or pattern, and the flag again for the next; ? stands for a comma", text)
	}
	return nil
}

// Patterns are those of --allow-orphan.
func (c *Options) Patterns() (all []string) {
	for _, p := range c.AllowOrphan {
		all = append(all, string(p))
	}
	return all
}

// pid is a process, and not a group or all of them as for kill(2).
type pid int

func (p *pid) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 31)
	if *p = pid(n); err != nil || n == 0 {
		return fmt.Errorf("cannot use %q: want the pid of a process", text)
	}
	return nil
}

type status int

func (s *status) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 8)
	if *s = status(n); err != nil {
		return fmt.Errorf("cannot use %q: want an exit status from 0 to 255", text)
	}
	return nil
}

// Parse reads the command line. args is without the program's name.
func Parse(args, environ []string) (*Options, error) {
	// They run no command. A variable that can't be used keeps no answer from who looks for what is wrong.
	if len(args) == 1 && (args[0] == "--help" || args[0] == "--version" || strings.HasPrefix(args[0], "--install=")) {
		environ = nil
	}
	if c := parsePlain(args, environ); c != nil {
		return c, nil
	}
	// kong copies what is left of the words with each of them: 100,000 take it minutes.
	const enough = 500
	if len(args) > enough {
		if c, err := parseByKong(args[:enough], environ); err == nil && len(c.Command) > 0 {
			c.Command = append(slices.Clip(c.Command), args[enough:]...)
			return c, nil
		}
	}
	return parseByKong(args, environ)
}

func parseByKong(args, environ []string) (*Options, error) {
	c := &Options{}
	parser, err := kong.New(c, kong.Name("fini"), kong.NoDefaultHelp(), kong.DefaultEnvars("FINI"), defaults)
	if err != nil {
		return nil, err
	}
	flags := parser.Model.Flags
	c.Misspelt = setVariables(flags, environ)
	parsed, err := parser.Parse(args)
	if err != nil {
		return nil, fmt.Errorf("%s; see fini --help", explain(err, flags, args))
	}
	// kong keeps the "--" that ends the flags. Exactly one is taken off.
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	given := map[string]bool{}
	for _, word := range parsed.Path {
		if word.Flag != nil && !word.Resolved {
			given[word.Flag.Name] = true
		}
	}
	if err := c.contradiction(given); err != nil {
		return nil, err
	}
	c.Quiet = c.Quiet && !given["verbose"] // FINI_QUIET: a flag wins over a variable
	return c, nil
}

// parsePlain parses a command line with no or only common flags, without kong, which is slow. It returns
// nil if there is another flag, or a FINI_ variable.
func parsePlain(args, environ []string) *Options {
	for _, variable := range environ {
		if name, _, _ := strings.Cut(variable, "="); setsFlag(name) {
			return nil
		}
	}
	c := &Options{Shield: true, Orphans: life.StopAll}
	_ = c.Grace.UnmarshalText([]byte(grace))
	_ = c.Linger.UnmarshalText([]byte(linger))
	if len(args) > 0 {
		if numbers, ok := strings.CutPrefix(args[0], "--inner="); ok {
			c.Inner, args = numbers, args[1:]
		}
	}
	for ; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case word == "--":
			if c.Command = args[1:]; len(c.Command) == 0 {
				return nil
			}
			return c
		case word == "" || word[0] != '-':
			if c.Command = args; word == "" {
				return nil
			}
			return c
		case word == "--no-shield":
			c.Shield = false
		case word == "--isolate":
			c.Isolate = Isolate
		case word == "--isolate=try":
			c.Isolate = TryIsolate
		case word == "-i" || word == "--stdin-eof":
			c.StdinEOF = true
		case word == "-s":
			c.Subreaper = true
		case word == "-g":
			c.Group = true
		case word == "-q" || word == "--quiet":
			c.Quiet = true
		default:
			return nil
		}
	}
	return nil
}

// setsFlag reports whether a variable is fini's, as nearly all are whose names begin with FINI_. FINI_TEST is for
// the report: see hints in package report.
func setsFlag(name string) bool { return strings.HasPrefix(name, "FINI_") && name != "FINI_TEST" }

// Level is how much is to be said.
func (c *Options) Level() life.Level {
	if c.Quiet {
		return life.Failure
	}
	return life.Warning + life.Level(c.Verbose)
}

// Policy is what the flags ask of a life: one half of its life.Rules.
func (c *Options) Policy() life.Policy {
	p := life.Policy{
		Grace:       time.Duration(c.Grace),
		Linger:      time.Duration(c.Linger),
		KillAfter:   time.Duration(c.KillAfter),
		Timeout:     time.Duration(c.Timeout),
		Deathsig:    syscall.SIGTERM,
		Orphans:     string(c.Orphans),
		Allow:       len(c.AllowOrphan) > 0,
		OrphansExit: -1,
		WarnReaped:  c.WarnReaped,
		Rewrite:     map[syscall.Signal]syscall.Signal{},
	}
	for _, rewrite := range c.Rewrite {
		p.Rewrite[rewrite.from] = rewrite.to
	}
	if c.Pdeathsig != nil && *c.Pdeathsig != 0 {
		p.Deathsig = syscall.Signal(*c.Pdeathsig)
	}
	if c.OrphansExit != nil {
		p.OrphansExit = int(*c.OrphansExit)
	}
	for _, n := range c.RemapExit {
		p.Remap = append(p.Remap, int(n))
	}
	return p
}

// Version ends in seven hexadecimal digits, by which Docker knows an init: it
// compares what `<init> --version` prints with a pattern.
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

// LimitedBuild is said of a build that does not look at what it has inherited before the Go runtime
// changes that. See reaper.HasEntry.
const LimitedBuild = "a build with limits, as go install makes them: the command may see other ignored and blocked signals " +
	"than without fini, and /dev/null for a closed stream; make build has no such limits, on amd64 and arm64"

// VersionNumber is the version alone.
func VersionNumber() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, found := strings.CutPrefix(info.Main.Version, "v"); found && !strings.HasPrefix(v, "0.0.0-") {
			return v
		}
	}
	return "0.1.0"
}

// An Isolation is the value of --isolate.
type Isolation string

const (
	Isolate    Isolation = "1"
	TryIsolate Isolation = "try" // and go on without
)

// IsBool tells kong that the flag may come without a value.
func (i *Isolation) IsBool() bool { return true }

// Decode is what kong calls.
func (i *Isolation) Decode(ctx *kong.DecodeContext) error {
	value := "1"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		value = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	switch strings.ToLower(value) {
	case "1", "true", "yes":
		*i = Isolate
	case "0", "false", "no":
		*i = ""
	case "try":
		*i = TryIsolate
	default:
		return fmt.Errorf("cannot use %q: want try, or no value", value)
	}
	return nil
}
