// Package cli reads the command line and the variables of the environment, and explains what is wrong with them.
package cli

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-126c5d8a/fini/internal/life"
)

// Options is the command line: one field for each flag. From it `make flags` makes help, the man page's OPTIONS, README's
// table of the flags that are tagged common, the completions, and line, the struct that kong fills in. All of them have the
// text of the tag help, and the man page adds the field's comment. The tag preset is a default that depends on where fini
// runs, and variable:"-" means that no FINI_ variable sets the flag. Parse knows the other defaults.
type Options struct {
	// fini then treats the processes that it has inherited as leftovers, and exits with 0. It does the same when the parent
	// process dies.
	Pause bool `short:"P" xor:"stdin,idle" group:"other" help:"run no command: reap until SIGTERM or SIGINT"`
	// SIG is also the first signal after a --bind process has exited. As PID 1, under nohup(1) and in docker exec fini watches
	// the parent process only if you give this flag.
	Pdeathsig *syscall.Signal `common:"" short:"p" type:"deathsig" placeholder:"SIG" preset:"TERM" group:"stop" help:"when the parent process dies, stop the command with SIG; none: let it run on"`
	// Stdin must be a pipe, a stream socket, a terminal, or /dev/null, which counts as closed at once.
	StdinEOF bool `common:"" name:"stdin-eof" short:"i" xor:"stdin" group:"stop" help:"when stdin closes, wait --grace, then stop the command"`
	// 0 turns it off.
	Timeout time.Duration `common:"" short:"t" placeholder:"DUR" group:"stop" help:"stop the command after DUR and exit 124"`
	// This stops a server that its host has forgotten. 0 turns it off.
	Idle time.Duration `common:"" xor:"idle" placeholder:"DUR" group:"stop" help:"stop the command and exit 124 when no process that holds its stdin has read or written a byte for DUR"`
	Bind []int         `type:"pid" placeholder:"PID" group:"stop" help:"stop the command when process PID exits; repeatable"`
	// SIGKILL follows the last one. If the parent process or a --bind process has died, fini sends the signal of -p instead.
	StopSignal []syscall.Signal `type:"signals" placeholder:"SIG[,SIG]" default:"TERM" group:"stop" help:"what -i, -t and --idle send to stop the command; each SIG has --grace to work"`
	Grace      time.Duration    `common:"" placeholder:"DUR" default:"5s" group:"stop" help:"time to exit after stdin closes, and again after each stop signal, before SIGKILL"`
	// Otherwise it is up to the sender of a signal to send another. 0 turns it off.
	KillAfter time.Duration `common:"" short:"k" placeholder:"DUR" group:"stop" help:"send SIGKILL if the command still runs DUR after a forwarded TERM, INT, HUP or QUIT"`
	Shield    *bool         `negatable:"" preset:"on, except as PID 1" group:"stop" help:"run as two processes: if one of them is killed, the other stops the command"`
	Linger    time.Duration `placeholder:"DUR" default:"500ms" group:"leftovers" help:"time for leftovers to exit by themselves before fini stops them"`
	// When the parent process has died, and under wait after a terminating signal, fini stops all leftovers except those that
	// --allow-orphan names. When PID 1 exits, the kernel kills every process in its PID namespace.
	Orphans string `common:"" type:"policy" placeholder:"POLICY" enum:"stop,pipes,wait,leave" default:"stop" group:"leftovers" help:"stop leftovers, wait for them or leave them; pipes: stop only those that hold stdout or stderr"`
	// With --orphans=leave this is an audit: fini names, counts and reports the leftovers that still run after --linger, stops
	// none, and still exits with CODE.
	OrphansExit *int `common:"" type:"status" placeholder:"CODE" group:"leftovers" help:"exit with CODE if the command succeeded but left something running"`
	// NAME is the kernel's name of a process, the name of its executable without directories, or a pattern of names as in
	// glob(7) without classes such as [:alpha:]. PATTERN is compared with the whole command line, its words joined by spaces,
	// and VALUE may be a pattern too; * and ? match a slash. fini also spares the descendants of such a process, and doesn't count any of
	// them for --orphans-exit. While the command runs, an allowed process in its process group gets the signals of that group.
	AllowOrphan []string `common:"" type:"pattern" placeholder:"NAME" group:"leftovers" help:"leave alone leftovers of this name, or with this command line (cmd:PATTERN) or variable (env:NAME=VALUE); repeatable"`
	// If fini is called tini, docker-init, podman-init or catatonit, this is on unless -g is given.
	SingleChild *bool     `common:"" short:"c" xor:"group" group:"signals" help:"forward signals only to the main child, not to its process group"`
	Group       bool      `name:"g" short:"g" xor:"group" variable:"-" group:"signals" help:"forward signals to the command's process group, as fini does under its own name"`
	Rewrite     []Rewrite `short:"r" type:"rewrite" placeholder:"FROM:TO" group:"signals" help:"forward signal FROM as TO, or drop it if TO is 0; repeatable"`
	// A terminal and its shell then treat the command as if fini weren't there.
	Foreground *bool `negatable:"" preset:"on at a terminal, except as PID 1" group:"signals" help:"keep the command in fini's process group"`
	RemapExit  []int `short:"e" type:"status" placeholder:"N" group:"status" help:"exit 0 if the command exits with N, such as 143 for a JVM; repeatable"`
	// FILE is a regular file, or a stream: /dev/stdout, /dev/stderr or /dev/fd/N. fini replaces only an empty file or an
	// earlier report. The report lists how the command ended, each
	// signal with its sender, each leftover, and the resources used.
	Report     string `common:"" type:"file" placeholder:"FILE" group:"status" help:"write a report in JSON to FILE; - is stdout"`
	WarnReaped bool   `short:"w" group:"status" help:"name each orphan that fini reaps, and how it ended"`
	Quiet      bool   `short:"q" xor:"level" group:"status" help:"write only errors"`
	Verbose    bool   `short:"v" type:"verbosity" xor:"level" group:"status" help:"also write about the start, each signal, and the exit"`
	// The copy has mode 0755, and is written whole or not at all.
	Install   string   `type:"file" placeholder:"PATH" variable:"-" group:"other" help:"copy this binary to PATH, and exit"`
	Subreaper bool     `name:"s" short:"s" variable:"-" group:"other" help:"accepted for tini's sake: fini always does what tini does with it"`
	License   bool     `short:"l" aliases:"L" variable:"-" group:"other" help:"print the license"`
	Version   bool     `short:"V" variable:"-" group:"other" help:"print the version"`
	Help      bool     `short:"h" variable:"-" group:"other" help:"print this help"`
	Command   command  `arg:"" optional:"" passthrough:"partial"`
	Misspelt  []string `kong:"-"` // a line for each variable that sets nothing, but whose name looks as if it did
	called    string   // the name of the program
}

// Help is what --help prints.
//
//go:embed help.txt
var Help string

// Parse reads the command line, which begins with the program's name, and the variables.
func Parse(argv, environ []string) (*Options, error) {
	name, args := "", argv
	if len(argv) > 0 {
		name, args = path.Base(argv[0]), argv[1:]
	}
	c := &Options{called: name, StopSignal: []syscall.Signal{syscall.SIGTERM}, Grace: 5 * time.Second, Linger: 500 * time.Millisecond, Orphans: life.StopAll}
	isFlag := len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" && args[0] != "--"
	if !isFlag && !slices.ContainsFunc(environ, matters) {
		c.Command = args
		if len(args) > 0 && args[0] == "--" {
			c.Command = args[1:]
		}
		return c, nil // a parse takes as long as the rest of the start
	}
	initial, v := *c, newVariables(environ)
	parser := newParser((*line)(c), v)
	// Kong copies the words that are left each time it takes one, and there may be 100,000. No flag has two values, so of
	// two words without a dash the second belongs to the command.
	const most = 1000
	read := args[:min(most, len(args))]
	for i, word := range read {
		if bare := !strings.HasPrefix(word, "-"); word == "--" || bare && i > 0 && !strings.HasPrefix(read[i-1], "-") {
			read = read[:i+1]
			break
		}
	}
	_, err := parser.Parse(read)
	if err != nil {
		return nil, fmt.Errorf("%w; see fini --help", v.explain(err))
	}
	if c.Command = args[len(read)-len(c.Command):]; len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case c.Pause && len(c.Command) > 0:
		err = fmt.Errorf("--pause runs no command: cannot use %q; see fini --help", c.Command[0])
	case c.Install != "" && len(c.Command) > 0:
		err = fmt.Errorf("--install runs no command: cannot use %q; see fini --help", c.Command[0])
	}
	for i, fields := 0, reflect.ValueOf(&initial).Elem(); i < len(v.flags); i++ {
		if flag := v.flags[i]; !flag.Set { // kong has set it to zero
			flag.Target.Set(fields.Field(i))
		}
	}
	c.Misspelt = v.misspelt(environ, c.SingleChild == nil && !c.ToGroup())
	return c, err
}

// matters reports whether a variable may set a flag, or get a hint.
func matters(variable string) bool {
	return strings.HasPrefix(variable, "FINI_") || strings.HasPrefix(variable, "TINI_") || strings.HasPrefix(variable, "DUMB_INIT_")
}

// newParser returns a parser that fills in a struct of flags. No mapper asks the file system, because an heir parses too.
func newParser(flags any, v *variables) *kong.Kong {
	parser, err := kong.New(flags, kong.NoDefaultHelp(), kong.Resolvers(v),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), each(duration)),
		kong.NamedMapper("deathsig", each(deathsig)),
		kong.NamedMapper("signals", each(stopSignals)),
		kong.NamedMapper("pid", each(pid)),
		kong.NamedMapper("status", each(status)),
		kong.NamedMapper("pattern", each(pattern)),
		kong.NamedMapper("rewrite", each(rewrite)),
		kong.NamedMapper("file", each(file)),
		kong.NamedMapper("policy", each(policy)),
		kong.NamedMapper("verbosity", kong.MapperFunc(verbosity)))
	if err != nil {
		panic(err) // a tag is wrong
	}
	v.flags = parser.Model.Flags
	return parser
}

// Flags returns the flags with their texts.
func Flags() []*kong.Flag { return newParser(new(Options), new(variables)).Model.Flags }

// Policy returns what a life obeys.
func (c *Options) Policy() life.Policy {
	p := life.Policy{
		Grace:       c.Grace,
		Linger:      c.Linger,
		KillAfter:   c.KillAfter,
		Timeout:     c.Timeout,
		Idle:        c.Idle,
		StopSignals: c.StopSignal,
		Deathsig:    syscall.SIGTERM,
		Orphans:     c.Orphans,
		Allow:       len(c.AllowOrphan) > 0,
		OrphansExit: -1,
		Remap:       c.RemapExit,
		WarnReaped:  c.WarnReaped,
		Rewrite:     map[syscall.Signal]syscall.Signal{},
	}
	if c.Pdeathsig != nil {
		p.Deathsig = cmp.Or(*c.Pdeathsig, p.Deathsig)
	}
	if c.OrphansExit != nil {
		p.OrphansExit = *c.OrphansExit
	}
	for _, r := range c.Rewrite {
		p.Rewrite[r.From] = r.To
	}
	return p
}

// ToGroup reports whether fini forwards signals to the command's process group, and not only to the main child.
func (c *Options) ToGroup() bool {
	switch {
	case c.Group:
		return true
	case c.SingleChild != nil:
		return !*c.SingleChild
	}
	return !slices.Contains([]string{"tini", "docker-init", "podman-init", "catatonit"}, c.called)
}

// Wanted returns what the processes of fini are to be.
func (c *Options) Wanted() life.Wanted {
	return life.Wanted{Pause: c.Pause, Shield: c.Shield, Foreground: c.Foreground, ToGroup: c.ToGroup()}
}

// Level says how much fini says.
func (c *Options) Level() life.Level {
	switch {
	case c.Quiet:
		return life.Always
	case c.Verbose:
		return life.Detail
	}
	return life.Normal
}
