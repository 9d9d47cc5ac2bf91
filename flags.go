package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-126c5d8a/fini/signals"
)

const usage = `usage: fini [flags] [--] command [args...]

Run command, forward signals to it, reap every orphan, exit with its status,
and leave nothing behind: what it started and left running is stopped.

  -p, --pdeathsig=SIG       when the launcher dies, stop the command, beginning
                            with SIG; none binds it to no launcher (TERM)
  -i, --stdin-eof           when the far end of standard input closes, stop the
                            command
  -t, --timeout=DUR         stop the command after DUR and exit 124
      --[no-]shield         run as a pair, so that SIGKILL of fini leaves
                            nothing behind (on, except for PID 1)
      --grace=DUR           how long each step of a stop waits: for stdin's end,
                            then for SIGTERM, before SIGKILL (5s)
      --linger=DUR          how long leftovers may finish by themselves before
                            they are stopped (500ms)
      --orphans=POLICY      leftovers: stop all, stop only those that hold
                            stdout or stderr (pipes), wait, or leave (stop)
      --orphans-exit=CODE   exit with CODE where the command succeeded and
                            leftovers had to be stopped
      --report=FILE         write what happened to FILE, as JSON
  -k, --kill-after=DUR      stop the command for good when it has not ended DUR
                            after a forwarded TERM, INT, HUP or QUIT
  -c, --single-child        forward signals to the main child alone, not to
                            its process group
  -r, --rewrite=FROM:TO     forward signal FROM as TO; TO 0 drops it; repeatable
  -e, --remap-exit=N        exit 0 where the command exits N; repeatable
  -w, --warn-reaped         say each adopted zombie that is reaped
  -v, --verbose             say more
  -q, --quiet               say nothing but errors
  -P, --pause               run no command: reap until SIGTERM or SIGINT
  -s, -g                    accepted from tini and catatonit; always on
  -l, -L, --license         print the license
  -V, --version             print the version
  -h, --help                print this

Exit status: the command's own; 128+n where signal n ended it; 124 after a
timeout; 125 where fini itself failed; 126 where the command can't be executed;
127 where it was not found. Each long flag can be set as FINI_NAME, as in
FINI_GRACE=10s.
`

// commandLine is what kong fills in. Durations are text here so that an error can
// say what is accepted.
type commandLine struct {
	Pdeathsig   *deathsig `short:"p"`
	StdinEOF    bool      `short:"i" name:"stdin-eof"`
	Timeout     duration  `short:"t"`
	Shield      bool      `default:"true" negatable:""`
	KillAfter   duration  `short:"k"`
	Pause       bool      `short:"P"`
	Grace       duration  `default:"5s"`
	Linger      duration  `default:"500ms"`
	Orphans     policy    `default:"stop"`
	OrphansExit *status
	Report      string
	Rewrite     []rewrite `short:"r" sep:"none"`
	SingleChild bool      `short:"c"`
	RemapExit   []status  `short:"e" sep:"none"`
	WarnReaped  bool      `short:"w"`
	Verbose     int       `short:"v" type:"counter"`
	Quiet       bool      `short:"q"`

	// Both are how fini always works.
	Subreaper bool `short:"s" env:"-" hidden:""`
	Group     bool `short:"g" env:"-" hidden:""`

	// No variable sets these: FINI_VERSION is what a Dockerfile calls the version
	// that it installs.
	License  bool `short:"l" env:"-"`
	License2 bool `short:"L" env:"-" hidden:""`
	Version  bool `short:"V" env:"-"`
	Help     bool `short:"h" env:"-"`

	// Inner says that this is the inner fini of a pair, and which descriptors the
	// outer one passed to it. No user sets it.
	Inner []int `env:"-" hidden:""`

	// Become says that this process is to execute the command in its own place, with
	// LISTEN_PID set.
	Become bool `env:"-" hidden:""`

	Command []string `arg:"" optional:"" passthrough:"partial"`
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return fmt.Errorf("cannot use %q: want a duration such as 500ms, 5s or 1m", text)
	}
	// So much can be added to a time without an overflow, and nobody sees its end.
	*d = duration(min(parsed, 100*365*24*time.Hour))
	return nil
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
	case stopAll, stopPipes, waitAll, leaveAll:
		return nil
	}
	return fmt.Errorf("cannot use %q: want stop, pipes, wait or leave", text)
}

type status int

func (s *status) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 8)
	if *s = status(n); err != nil {
		return fmt.Errorf("cannot use %q: want an exit status from 0 to 255", text)
	}
	return nil
}

// parse reads the command line. args is without the program's name.
func parse(args, environ []string) (*commandLine, error) {
	if c := plain(args, environ); c != nil {
		return c, nil
	}
	c := &commandLine{}
	for _, variable := range environ {
		// What a compose file sets to nothing is not set.
		if name, value, _ := strings.Cut(variable, "="); value == "" && strings.HasPrefix(name, "FINI_") {
			_ = os.Unsetenv(name)
		}
	}
	parser, err := kong.New(c, kong.Name("fini"), kong.NoDefaultHelp(), kong.DefaultEnvars("FINI"))
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(args); err != nil {
		// kong guesses at one-letter flags, and then names all of them.
		text, _, _ := strings.Cut(err.Error(), ", did you mean one of")
		if flag, _, missing := strings.Cut(text, ": expected value value"); missing {
			text = flag + ": wants a value"
		}
		return nil, fmt.Errorf("%s; see fini --help", text)
	}
	for _, fd := range c.Inner {
		if fd < 3 || len(c.Inner) < 2 {
			return nil, errors.New("--inner is not for users")
		}
	}
	// kong keeps the "--" that ends the flags. Exactly one is taken off.
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if c.Pause && len(c.Command) > 0 {
		return nil, fmt.Errorf("--pause runs no command: cannot use %q", c.Command[0])
	}
	return c, nil
}

// plain is what kong would make of a command line without flags or with the plainest of them,
// which is no work for it; nil where there is another flag or a variable. The inner fini of a
// pair is told so in front.
func plain(args, environ []string) *commandLine {
	for _, variable := range environ {
		if strings.HasPrefix(variable, "FINI_") {
			return nil
		}
	}
	c := &commandLine{
		Shield: true, Grace: duration(5 * time.Second), Linger: duration(500 * time.Millisecond), Orphans: stopAll,
	}
	if len(args) > 0 {
		if numbers, ok := strings.CutPrefix(args[0], "--inner="); ok {
			for number := range strings.SplitSeq(numbers, ",") {
				fd, err := strconv.Atoi(number)
				if err != nil || fd < 3 {
					return nil
				}
				c.Inner = append(c.Inner, fd)
			}
			if len(c.Inner) < 2 {
				return nil
			}
			args = args[1:]
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

func (c *commandLine) speaker() speaker {
	if c.Quiet {
		return speaker{failure}
	}
	return speaker{notice + level(c.Verbose)}
}

func (c *commandLine) rules() rules {
	r := rules{
		grace:       time.Duration(c.Grace),
		linger:      time.Duration(c.Linger),
		killAfter:   time.Duration(c.KillAfter),
		deathsig:    syscall.SIGTERM,
		orphans:     string(c.Orphans),
		orphansExit: -1,
		singleChild: c.SingleChild,
		warnReaped:  c.WarnReaped,
		rewrite:     map[syscall.Signal]syscall.Signal{},
	}
	for _, rewrite := range c.Rewrite {
		r.rewrite[rewrite.from] = rewrite.to
	}
	if c.Pdeathsig != nil && *c.Pdeathsig != 0 {
		r.deathsig = syscall.Signal(*c.Pdeathsig)
	}
	if c.OrphansExit != nil {
		r.orphansExit = int(*c.OrphansExit)
	}
	for _, n := range c.RemapExit {
		r.remap = append(r.remap, int(n))
	}
	return r
}

// version ends in seven hexadecimal digits, by which Docker knows an init: it
// compares what `<init> --version` prints with a pattern.
func version() string {
	revision := "0000000"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				revision = s.Value[:7]
			}
		}
	}
	return fmt.Sprintf("fini version %s - git.%s", number(), revision)
}

// number is the version alone.
func number() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, found := strings.CutPrefix(info.Main.Version, "v"); found && !strings.HasPrefix(v, "0.0.0-") {
			return v
		}
	}
	return "0.1.0"
}
