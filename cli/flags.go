// Package cli reads the command line and the variables of the environment, and says what is wrong with them.
package cli

import (
	"bytes"
	"errors"
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

Run command, forward signals to it, reap orphans, and exit as it did. Leave
nothing behind: stop what the command left running (its leftovers).

  fini -- make test          in CI, in front of a command; also as PID 1
  fini -i -k 5s npx -y SERVER   around an MCP server

  -p, --pdeathsig=SIG      when the parent process dies, stop the command,
                           beginning with SIG; none: go on. As PID 1, under
                           nohup and in docker exec, on only if given (TERM)
  -i, --stdin-eof          once stdin closes, wait --grace and stop the command
  -t, --timeout=DUR        stop the command after DUR and exit 124
      --bind=PID           when process PID exits, stop the command; repeatable
      --[no-]shield        run as a pair of processes, so that SIGKILL of fini
                           leaves nothing behind (on, except for PID 1)
      --isolate            run the command in a PID namespace, so that SIGKILL
                           of both processes ends all; --isolate=try: if allowed
      --grace=DUR          wait this long for SIGTERM to work, then SIGKILL (` + grace + `)
  -k, --kill-after=DUR     SIGKILL DUR after a forwarded TERM, INT, HUP or QUIT
      --linger=DUR         leftovers get this long to exit unasked (` + linger + `)
      --orphans=POLICY     leftovers: stop all, stop only those that hold stdout
                           or stderr (pipes), wait for all, leave all (` + life.StopAll + `)
      --orphans-exit=CODE  if there are leftovers, exit CODE in place of 0
      --allow-orphan=NAME  leave alone leftovers whose name matches this pattern
      --report=FILE        write what happened to FILE (- is stdout), as JSON
      --[no-]foreground    keep the command in fini's process group; as
                           PID 1 only if given (on at a terminal)
  -c, --single-child       forward signals to the command alone, not its group
  -r, --rewrite=FROM:TO    forward signal FROM as TO; TO 0 drops it; repeatable
  -e, --remap-exit=N       exit 0 if the command exits N; repeatable
  -w, --warn-reaped        name each orphan that is reaped, and how it ended
  -v, --verbose            say more: each step that fini takes
  -q, --quiet              say nothing but errors
      --install=PATH       copy this binary to PATH, and exit
  -P, --pause              run no command: reap until SIGTERM or SIGINT
  -s, -g                   accepted from tini and catatonit; always on
  -l, -L, --license        print the license
  -V, --version            print the version
  -h, --help               print this

SIG: TERM, SIGTERM, 15, RTMIN+3. DUR: 500ms, 5s, 1m30s, 1d, or just seconds.
FINI_GRACE=10s sets --grace, and so on. FINI_TEST names a test in reports.
By default fini says on stderr what went wrong, and what it stopped and why.
Exit status: the command's own. If signal n killed the command, fini dies of n,
or exits 128+n as PID 1. 124: --timeout. 125: fini failed. 126: the command
can't be executed. 127: it was not found. 2: the Go runtime could not start.
`

// The defaults of flags.
const grace, linger = "5s", "500ms"

var defaults = kong.Vars{"grace": grace, "linger": linger}

// Options is what kong fills in. Most fields have a type whose UnmarshalText says in an error what is accepted.
type Options struct {
	Pdeathsig   *deathsig `short:"p"`
	StdinEOF    bool      `short:"i" name:"stdin-eof"`
	Timeout     duration  `short:"t"`
	Shield      *bool     `negatable:""`
	KillAfter   duration  `short:"k"`
	Pause       bool      `short:"P"`
	Grace       duration  `default:"${grace}"`
	Linger      duration  `default:"${linger}"`
	Orphans     string    `default:"stop" enum:"stop,pipes,wait,leave"`
	OrphansExit *status
	AllowOrphan []pattern `sep:"\x1f"`
	Foreground  *bool     `negatable:""`
	Bind        []pid     `sep:"\x1f"`
	Report      string
	Rewrite     []rewrite `short:"r" sep:"\x1f"`
	SingleChild bool      `short:"c"`
	Isolate     Isolation
	RemapExit   []status `short:"e" sep:"\x1f"`
	WarnReaped  bool     `short:"w"`
	Verbose     int      `short:"v" type:"counter"`
	Quiet       bool     `short:"q"`

	// AlwaysOn changes nothing: fini always works so.
	AlwaysOn bool `short:"s" aliases:"g" env:"-" hidden:""`

	// No variable sets these flags, which run no command: in a Dockerfile, FINI_VERSION is
	// the version to install.
	Install *string `env:"-"`
	License bool    `short:"l" aliases:"L" env:"-"`
	Version bool    `short:"V" env:"-"`
	Help    bool    `short:"h" env:"-"`

	Command []string `arg:"" optional:"" passthrough:"partial"`

	// Misspelt has a line for each variable that sets nothing, but whose name looks as if it did.
	Misspelt []string `kong:"-"`
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	// A deadline this far away does not overflow, and is as good as no deadline.
	const most = duration(100 * 365 * 24 * time.Hour)
	parsed, err := time.ParseDuration(string(text))
	nanoseconds := float64(parsed)
	if err != nil {
		nanoseconds, err = inUnits(string(text))
	}
	switch {
	case err != nil || math.IsNaN(nanoseconds):
		return fmt.Errorf("cannot use %q: want a duration such as 500ms, 5s or 1m, a number of seconds, or 1d", text)
	case nanoseconds < 0:
		return fmt.Errorf("cannot use %q: a duration can't be negative", text)
	}
	if *d = most; nanoseconds < float64(most) {
		*d = duration(math.Ceil(nanoseconds)) // not 0, which may mean never
	}
	return nil
}

// inUnits reads a duration as timeout(1) does: a number, even "inf", with at most one unit. Without a unit it is in
// seconds.
func inUnits(text string) (nanoseconds float64, err error) {
	number, unit := text, time.Second
	for suffix, is := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour} {
		if cut, found := strings.CutSuffix(text, suffix); found {
			number, unit = cut, is
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if strings.Contains(number, "_") {
		err = strconv.ErrSyntax
	}
	if errors.Is(err, strconv.ErrRange) {
		err = nil // it is infinite
	}
	return value * float64(unit), err
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

// rewrite says as which signal fini forwards a signal; 0 drops the signal.
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

// pattern matches names of processes. The user writes it as in glob(7); it is kept in the form that path.Match reads.
type pattern string

func (p *pattern) UnmarshalText(text []byte) error {
	*p = pattern(strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^").Replace(string(text)))
	if _, err := path.Match(string(*p), ""); err != nil || len(text) == 0 || bytes.ContainsRune(text, '/') || text[0] == '-' {
		return fmt.Errorf("cannot use %q: want the name of a program, such as gpg-agent, or a pattern of names, such as gpg-*", text)
	}
	// Without this line, two names would match nothing, and fini would say nothing.
	if bytes.ContainsRune(text, ',') {
		return fmt.Errorf("cannot use %q: want one name or pattern, and the flag again for the next; ? stands for a comma", text)
	}
	return nil
}

// Patterns are the values of --allow-orphan.
func (c *Options) Patterns() (all []string) {
	for _, p := range c.AllowOrphan {
		all = append(all, string(p))
	}
	return all
}

// Pair reports whether fini must be two processes, and whether the user has asked for a pair.
func (c *Options) Pair() (is, asked bool) {
	asked = c.Shield != nil && *c.Shield
	return c.Shield == nil || asked, asked
}

// Pids are the values of --bind.
func (c *Options) Pids() (all []int) {
	for _, p := range c.Bind {
		all = append(all, int(p))
	}
	return all
}

// pid is the number of one process. Numbers that kill(2) takes for a group, or for all processes, are not accepted.
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

// answers run no command. They work even if a variable can't be used, because the user may want to find out why.
var answers = []string{"-h", "--help", "-V", "--version", "-l", "-L", "--license"}

// Parse reads the command line. args is without the program's name.
func Parse(args, environ []string) (c *Options, err error) {
	if len(args) == 1 && (slices.Contains(answers, args[0]) || strings.HasPrefix(args[0], "--install=")) {
		environ = nil
	}
	if c = parsePlain(args, environ); c == nil {
		// kong copies the words that are left with each word that it reads: 100,000 words take minutes.
		const enough = 1000
		read := args[:min(enough, len(args))]
		if c, err = parseByKong(read, environ); err != nil {
			return nil, fmt.Errorf("%w; see fini --help", err)
		}
		if len(c.Command) > 0 {
			c.Command = append(slices.Clip(c.Command), args[len(read):]...)
		}
	}
	for _, variable := range environ {
		if ours, known := otherInits[variable]; known {
			c.Misspelt = append(c.Misspelt, fmt.Sprintf(setsNothing, variable, ours))
		}
	}
	return c, nil
}

func parseByKong(args, environ []string) (*Options, error) {
	c := &Options{}
	parser, err := kong.New(c, kong.Name("fini"), kong.NoDefaultHelp(), kong.DefaultEnvars("FINI"), defaults,
		kong.WithHyphenPrefixedParameters(true)) // so that -t -5 is refused as a duration
	if err != nil {
		return nil, err
	}
	c.Misspelt = setVariables(parser.Model.Flags, environ)
	parsed, err := parser.Parse(args)
	if err != nil {
		return nil, explain(err, parser.Model.Flags)
	}
	// kong keeps the "--" that ends the flags. Parse takes off exactly one "--".
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	given := map[string]bool{}
	for _, word := range parsed.Path {
		if word.Flag == nil || word.Resolved {
			continue
		}
		given[word.Flag.Name] = true
		if word.Flag.IsSlice() && word.Flag.Target.Len() == 0 {
			return nil, fmt.Errorf("--%s: wants a value", word.Flag.Name)
		}
	}
	c.Quiet = c.Quiet && (given["quiet"] || !given["verbose"]) // a flag wins over FINI_QUIET
	return c, c.contradiction(given)
}

// parsePlain reads the most common command lines. It is there for the speed of the start, because kong takes a
// millisecond. It returns nil if there is another flag, or a variable that kong must read.
func parsePlain(args, environ []string) *Options {
	if slices.ContainsFunc(environ, setsFlag) {
		return nil
	}
	c := &Options{Orphans: life.StopAll}
	_ = c.Grace.UnmarshalText([]byte(grace))
	_ = c.Linger.UnmarshalText([]byte(linger))
	for len(args) > 0 && args[0] != "--" && strings.HasPrefix(args[0], "-") {
		switch file, isReport := strings.CutPrefix(args[0], "--report="); {
		case args[0] == "--no-shield":
			c.Shield = new(bool)
		case args[0] == "--isolate":
			c.Isolate = Isolate
		case isReport && file != "" && (file[0] != '-' || file == "-"):
			c.Report = file
		default:
			return nil
		}
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if c.Command = args; len(args) == 0 {
		return nil
	}
	return c
}

// setsFlag reports whether a variable may stand for a flag. FINI_TEST is for the report: see hints in package report.
func setsFlag(variable string) bool {
	return strings.HasPrefix(variable, "FINI_") && !strings.HasPrefix(variable, "FINI_TEST=")
}

// Level says how much fini says.
func (c *Options) Level() life.Level {
	if c.Quiet {
		return life.Failure
	}
	return life.Warning + life.Level(c.Verbose)
}

// Policy has the flags that a life obeys, as one half of its life.Rules.
func (c *Options) Policy() life.Policy {
	p := life.Policy{
		Grace:       time.Duration(c.Grace),
		Linger:      time.Duration(c.Linger),
		KillAfter:   time.Duration(c.KillAfter),
		Timeout:     time.Duration(c.Timeout),
		Deathsig:    syscall.SIGTERM,
		Orphans:     c.Orphans,
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

// An Isolation is the value of --isolate.
type Isolation string

const (
	Isolate    Isolation = "1"
	TryIsolate Isolation = "try" // and go on without it if the kernel refuses
)

var isolations = map[string]Isolation{
	"1": Isolate, "true": Isolate, "yes": Isolate, "0": "", "false": "", "no": "", "try": TryIsolate,
}

// IsBool tells kong that the flag may come without a value.
func (i *Isolation) IsBool() bool { return true }

// Decode reads the value, if there is one.
func (i *Isolation) Decode(ctx *kong.DecodeContext) error {
	value := "1"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		value = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	how, known := isolations[strings.ToLower(value)]
	if !known {
		return fmt.Errorf("cannot use %q: want try, or no value", value)
	}
	*i = how
	return nil
}
