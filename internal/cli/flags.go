// Package cli parses the command line and FINI_ variables, and explains what is wrong with them.
package cli

import (
	"cmp"
	_ "embed"
	"errors"
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

// Options holds the parsed command line, with one field for each flag. `make flags` generates --help, the man page's
// OPTIONS, README's table of common flags and the completions from the fields' comments. The first sentence of a
// comment is used in all of them, and the rest only in the man page. The texts are not in tags because kong parses
// every tag at startup. The tag preset is a default that depends on how fini is run. The tag env:"-" marks a flag with
// which fini runs no command, and which has no FINI_ variable.
type Options struct {
	// Run no command, and only reap zombies until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3 arrives. Then fini stops
	// the processes that it has inherited, as it stops leftovers, and exits with 0. It also does so when the parent
	// process dies. As PID 1, fini ignores these signals if they come from a process in its own container. When it
	// ends, it also stops the commands that docker exec has started.
	Pause bool `short:"P" xor:"stdin,idle" group:"other"`
	// When the parent process dies, stop the command with SIG; none keeps the command running. SIG is also the signal
	// that stops the command after a --bind process has exited. As PID 1, under nohup(1) and in docker exec, fini
	// watches the parent process only if you give this flag.
	Pdeathsig *syscall.Signal `common:"" short:"p" type:"deathsig" placeholder:"SIG" preset:"TERM" group:"stop"`
	// When stdin closes, wait --grace for the command to exit, and then stop it. Stdin must be a pipe, a stream socket,
	// a terminal, or /dev/null, which counts as closed from the start.
	StdinEOF bool `common:"" name:"stdin-eof" short:"i" xor:"stdin" group:"stop"`
	// Stop the command after DUR, and exit with 124. 0 means no limit.
	Timeout time.Duration `common:"" short:"t" placeholder:"DUR" group:"stop"`
	// Stop the command after DUR without input or output, and exit with 124. This ends a server that its host has
	// forgotten. fini counts read(2) and write(2) calls in every process that has the command's stdin open. 0 means no
	// limit.
	Idle time.Duration `xor:"idle" placeholder:"DUR" group:"stop"`
	Bind []int         `type:"pid" placeholder:"PID" group:"stop"` // Stop the command when process PID exits; can be repeated.
	// The signals that -i, -t and --idle send to stop the command, one after another. fini waits --grace after each of
	// them, and sends SIGKILL after the last one. If the parent process or a --bind process has died, fini sends the
	// signal of -p instead.
	StopSignal []syscall.Signal `type:"signals" placeholder:"SIG[,SIG]" default:"TERM" group:"stop"`
	// How long the command may take to exit after stdin closes and after each stop signal, before it is killed.
	Grace time.Duration `common:"" placeholder:"DUR" default:"5s" group:"stop"`
	// Kill the command if it is still running DUR after fini has forwarded TERM, INT or a --stop-signal. Without this
	// flag, fini forwards signals and leaves it to their sender to send SIGKILL. 0 turns this off.
	KillAfter time.Duration `common:"" short:"k" placeholder:"DUR" group:"stop"`
	// Limit the whole shutdown to DUR, and shorten the other waits if necessary. The shutdown begins when fini receives
	// SIGTERM or a --stop-signal, when fini stops the command for a reason of its own, or when the command exits and
	// leaves something running. If DUR is a second less than docker stop -t or a pod's grace period, the exit status is
	// kept. 0 turns this off.
	StopWithin time.Duration `placeholder:"DUR" group:"stop"`
	// Run as two processes, so that if one is killed, the other stops the command.
	Shield *bool `negatable:"" preset:"on, except as PID 1" group:"stop"`
	// How long leftovers may keep running after the command's exit before fini stops them.
	Linger time.Duration `placeholder:"DUR" default:"500ms" group:"leftovers"`
	// How long leftovers may take to exit after SIGTERM before they are killed. For a leftover that received SIGTERM
	// together with the command, --grace applies instead, and begins with that signal. With --pause, --grace applies to
	// every process.
	OrphansGrace *time.Duration `placeholder:"DUR" preset:"the shorter of --grace and 5s" group:"leftovers"`
	// While the command runs, stop each process whose parent exited at least DUR ago, with its descendants. fini sends
	// them SIGTERM and, after the --orphans-grace period, SIGKILL. It looks twice in each DUR, which must be 100ms or
	// longer, so such a process may run for one and a half times DUR. Daemons are such processes too: --allow-orphan
	// names those that may keep running. As PID 1, fini also stops what docker exec has left, and with --pause every
	// child of PID 1. This flag can't be used with --orphans=leave. 0 turns it off.
	OrphanTimeout time.Duration `type:"orphanTimeout" placeholder:"DUR" group:"leftovers"`
	// What to do with leftovers: stop them all, stop only those that hold stdout or stderr open (pipes), wait, or leave
	// them running. If the parent process, a --bind process or one of fini's own processes has died, fini stops all
	// leftovers except those that --allow-orphan names. With wait, it also does so after a terminating signal. When PID
	// 1 exits, the kernel kills every process in its PID namespace.
	Orphans string `placeholder:"POLICY" enum:"stop,pipes,wait,leave" default:"stop" group:"leftovers"`
	// Exit with CODE if the command succeeded but left something running. With --orphans=leave this is an audit: fini
	// stops nothing, but names, counts and reports the leftovers that still run after --linger, and exits with CODE.
	OrphansExit *int `common:"" type:"status" placeholder:"CODE" group:"leftovers"`
	// Don't stop leftovers called NAME; use cmd:PATTERN to match the command line or env:NAME=VALUE to match a
	// variable; can be repeated. NAME is the process's name in the kernel (ps -o comm), the name of its executable
	// without directories, or a pattern as in glob(7), but without classes such as [:alpha:]. PATTERN must match the
	// whole command line, with its words joined by spaces. VALUE may be a pattern as well. * and ? also match a slash,
	// and only the first 256 KiB count. fini spares the descendants of such a process too, and counts none of them for
	// --orphans-exit. While the command runs, an allowed process in the command's process group still receives the
	// signals that fini sends to the group.
	AllowOrphan []string `common:"" type:"pattern" placeholder:"NAME" group:"leftovers"`
	// Forward signals only to the main child, not to its process group. This is the default if fini is called tini,
	// docker-init, podman-init or catatonit.
	SingleChild *bool `common:"" short:"c" xor:"group" group:"signals"`
	// Forward signals to the command's process group, which is the default under fini's own name.
	Group bool `name:"g" short:"g" xor:"group" group:"signals"`
	// Forward signal FROM as TO, or drop it if TO is 0; can be repeated.
	Rewrite []Rewrite `short:"r" type:"rewrite" placeholder:"FROM:TO" group:"signals"`
	// Keep the command in fini's own process group, so that a terminal and its shell treat it as if fini weren't there.
	Foreground *bool `negatable:"" preset:"on at a terminal, except as PID 1" group:"signals"`
	// Exit with 0 if the command exits with N, such as 143 for a JVM; can be repeated.
	RemapExit []int `short:"e" type:"status" placeholder:"N" group:"status"`
	// Write a report to FILE, as JUnit XML if the name ends in .xml, and otherwise as JSON; can be repeated. FILE is a
	// regular file, - for stdout, or another stream: /dev/stdout, /dev/stderr or /dev/fd/N. fini overwrites a file only
	// if it is empty or contains an earlier report. The report tells how the command ended and what it was doing when
	// it was stopped, and lists each signal with its sender, each leftover, and the resources used.
	Report     []string `common:"" type:"file" placeholder:"FILE" group:"status"`
	WarnReaped bool     `short:"w" group:"status"`             // Name each orphan that fini reaps, and say how it ended.
	Quiet      bool     `short:"q" xor:"level" group:"status"` // Write only errors.
	// Also report the start, each signal and the exit.
	Verbose int `short:"v" type:"counter" xor:"level" group:"status"`
	// Copy this binary to PATH and exit. The copy has mode 0755. If it can't be completed, nothing appears at PATH.
	Install string `type:"file" placeholder:"PATH" env:"-" group:"other"`
	// Accepted for compatibility with tini, and on in any case: be a subreaper.
	Subreaper bool     `name:"s" short:"s" group:"other"`
	License   bool     `short:"l" aliases:"L" env:"-" group:"other"` // Print the license.
	Version   bool     `short:"V" env:"-" group:"other"`             // Print the version.
	Help      bool     `short:"h" env:"-" group:"other"`             // Print this help.
	Command   []string `arg:"" optional:"" type:"words"`
	Misspelt  []string `kong:"-"` // warnings about variables that look like FINI_ variables but have no effect
	called    string   // name that the program was started with
}

// Help is the text that --help prints.
//
//go:embed help.txt
var Help string

// Parse parses the command line and the FINI_ variables in environ. argv[0] is the program's name.
func Parse(argv, environ []string) (*Options, error) {
	c, args := new(Options), argv
	if len(argv) > 0 {
		c.called, args = path.Base(argv[0]), argv[1:]
	}
	isFlag := len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" && args[0] != "--"
	if !isFlag && !slices.ContainsFunc(environ, matters) { // without kong, which takes as long as the rest of the start
		c.setDefaults()
		if c.Command = args; len(args) > 0 && args[0] == "--" {
			c.Command = args[1:]
		}
		return c, nil
	}
	read := args
	if i := slices.Index(args, "--"); i >= 0 { // kong copies all remaining words at each word, and there may be 100,000
		read = args[:min(i+2, len(args))]
	}
	v := &variables{environ: environ, from: map[string]string{}}
	v.parser = newParser(c, v)
	if _, err := v.parser.Parse(read); err != nil {
		return nil, fmt.Errorf("%w; see fini --help", v.explain(err))
	}
	c.Command = args[len(read)-len(c.Command):]
	c.Misspelt = v.misspelt(environ, c.SingleChild == nil && !c.ToGroup())
	return c, nil
}

// Validate is called by kong and checks rules that the tag xor can't express.
func (c *Options) Validate() error {
	switch {
	case c.Pause && len(c.Command) > 0:
		return fmt.Errorf("--pause runs no command: cannot use %q", c.Command[0])
	case c.OrphanTimeout > 0 && c.Orphans == life.LeaveAll:
		return errors.New("--orphan-timeout stops orphans, and --orphans=leave stops nothing: want one of the two")
	case c.Install != "" && len(c.Command) > 0:
		return fmt.Errorf("--install runs no command: cannot use %q", c.Command[0])
	}
	return nil
}

// setDefaults sets the same defaults as kong does from the tag default.
func (c *Options) setDefaults() {
	for i, fields := 0, reflect.ValueOf(c).Elem(); i < fields.NumField(); i++ {
		field := fields.Type().Field(i)
		if text, ok := field.Tag.Lookup("default"); ok {
			scan := kong.Scan().PushTyped(text, kong.FlagValueToken)
			_ = kinds[cmp.Or(field.Tag.Get("type"), field.Type.Name())](&kong.DecodeContext{Scan: scan}, fields.Field(i))
		}
	}
}

// matters reports whether a variable may set a flag or deserves a warning.
func matters(variable string) bool {
	prefix, _, _ := strings.Cut(variable, "_")
	return prefix == "FINI" || prefix == "TINI" || strings.HasPrefix(variable, "DUMB_INIT_")
}

// newParser returns a parser that stores into c. It must not access files, because an heir parses the command line too.
func newParser(c *Options, v *variables) *kong.Kong {
	options := []kong.Option{kong.NoDefaultHelp(), kong.Resolvers(kong.ResolverFunc(v.resolve)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kinds["Duration"]),
		kong.KindMapper(reflect.String, kinds["string"])}
	for name, mapper := range kinds {
		options = append(options, kong.NamedMapper(name, mapper))
	}
	return kong.Must(c, options...)
}

// Flags returns all flags, with their texts.
func Flags() []*kong.Flag { return newParser(new(Options), new(variables)).Model.Flags }

// Policy returns the rules that the command line sets for a life.
func (c *Options) Policy() life.Policy {
	p := life.Policy{
		Grace:         c.Grace,
		Linger:        c.Linger,
		KillAfter:     c.KillAfter,
		StopWithin:    c.StopWithin,
		Timeout:       c.Timeout,
		Idle:          c.Idle,
		OrphanTimeout: c.OrphanTimeout,
		StopSignals:   c.StopSignal,
		StopOnDeath:   syscall.SIGTERM,
		Orphans:       c.Orphans,
		Allow:         len(c.AllowOrphan) > 0,
		OrphansExit:   -1,
		Remap:         c.RemapExit,
		WarnReaped:    c.WarnReaped,
		Reports:       len(c.Report) > 0,
		Rewrite:       map[syscall.Signal]syscall.Signal{},
		Pause:         c.Pause,
	}
	p.OrphansGrace = min(c.Grace, 5*time.Second)
	if c.OrphansGrace != nil {
		p.OrphansGrace = *c.OrphansGrace
	}
	if c.Pdeathsig != nil {
		p.StopOnDeath = cmp.Or(*c.Pdeathsig, p.StopOnDeath)
	}
	if c.OrphansExit != nil {
		p.OrphansExit = *c.OrphansExit
	}
	for _, r := range c.Rewrite {
		p.Rewrite[r.From] = r.To
	}
	return p
}

// ToGroup reports whether fini forwards signals to the command's process group rather than only to the main child.
func (c *Options) ToGroup() bool {
	switch {
	case c.Group:
		return true
	case c.SingleChild != nil:
		return !*c.SingleChild
	}
	return !slices.Contains([]string{"tini", "docker-init", "podman-init", "catatonit"}, c.called)
}

// Wanted returns the roles that the command line asks for, such as one process or a pair.
func (c *Options) Wanted() life.Wanted {
	return life.Wanted{Pause: c.Pause, Shield: c.Shield, Foreground: c.Foreground, ToGroup: c.ToGroup()}
}

// Level returns which messages fini writes.
func (c *Options) Level() life.Level {
	switch {
	case c.Quiet:
		return life.Always
	case c.Verbose > 0:
		return life.Detail
	}
	return life.Normal
}
