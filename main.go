// Command fini runs a command. It forwards signals to the command, reaps every orphan, stops every process that the
// command leaves running, and ends the way the command did.
//
// Unless it is PID 1, fini usually forks into a pair before its Go runtime starts. The inner fini runs the command,
// while the outer fini sleeps in package entry. If the inner fini is killed, the outer fini starts its own Go runtime.
// As the heir of the inner fini, it then stops what the command has left running. It also starts its runtime if the
// inner fini finds that the command line asks for a single process.
//
// main parses the command line, and life.PlanOf decides what this process has to do. Then host.Run catches signals,
// binds the command to fini's parent process, starts the command, closes the descriptors that fini has inherited, and
// runs a life.Loop. For each event, the loop asks a machine of package life what to do, and does it with methods of
// package host, until the machine says exit. docs/architecture.md says where each decision is made.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/files"
	"github.com/seed-126c5d8a/fini/internal/host"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/signals"
)

// license contains the licenses of fini and of its parts, because a container image may contain only the binary.
//
//go:embed internal/NOTICES
var license string

// init keeps main on the main thread, which never exits. The command must be started on that thread, because the kernel
// sends a parent death signal as soon as the thread that forked exits.
func init() { runtime.LockOSThread() }

// gcPercent makes the Go runtime start collecting garbage at a heap of 1 MB. Its default of 4 MB is too much if fini
// and its command share 8 MiB. See docs/platforms.md.
const gcPercent = 25

func main() {
	debug.SetGCPercent(gcPercent)
	environ, self := entry.Environ(), entry.Known()
	if len(os.Args) == 0 { // execve(2) allows this before Linux 5.18, but kong needs a name
		os.Args = []string{"fini"}
	}
	options, err := cli.Parse(os.Args, environ)
	if err != nil {
		fail("%v", err)
	}
	switch {
	case options.Help:
		answer(cli.Help)
	case options.Version:
		answer(host.Version() + "\n")
		if !self.Linked {
			host.Logger{Threshold: options.Level()}.Sayf(life.Normal, "%s", life.LimitedBuild)
		}
	case options.License:
		answer(license)
	case options.Install != "":
		if err := files.Install(options.Install); err != nil {
			fail("--install: %v", err)
		}
	case len(options.Command) == 0 && !options.Pause:
		fail("%v", cli.NoCommand(os.Args))
	case self.Role == entry.Heir:
		end(host.TakeOver(options, self), self.Role)
	default:
		end(host.Run(options, environ, self), self.Role)
	}
}

// fail writes a message about why fini can't do what it was asked to, and exits.
func fail(format string, args ...any) {
	host.Logger{Threshold: life.Normal}.Sayf(life.Always, format, args...)
	os.Exit(life.ExitFailed)
}

// answer prints text that the user asked for instead of running a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		fail("cannot write: %v", err)
	}
}

// end makes this process end the way the command did. For an inner fini, the outer fini does that.
func end(as life.Result, role entry.Role) {
	if as.Sig != 0 && os.Getpid() != 1 && role != entry.Inner {
		signals.EndBy(as.Sig)
	}
	os.Exit(as.Status())
}
