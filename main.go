// Command fini runs one command: it forwards signals to it, reaps every orphan, stops every process that the command
// left running, and ends as the command did.
//
// Except as PID 1, fini by default forks into a pair before its Go runtime starts. The inner fini runs the command. The
// outer fini sleeps in package entry. If the inner fini was killed, the outer fini starts its Go runtime as the heir,
// which stops what the command left running. If the inner fini asks for a single process, the outer fini starts its Go
// runtime as that process.
//
// A life goes like this. Parse the command line. Plan what this process has to do, as a process that is alone, the inner
// fini or the heir: see life.PlanOf. Catch signals, bind the command to fini's parent process, start the command, close
// the descriptors that fini has inherited, and run a life.Loop. For each event the loop asks a machine of package life
// what to do, and does it by the methods in package internal/host, until the machine says exit. CONTRIBUTING.md tells you
// where each thing is decided.
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

// license has the licenses of fini and of its parts, because an image may hold only the binary.
//
//go:embed internal/NOTICES
var license string

// fini starts the command on the main thread, because the main thread never exits. The kernel sends a parent death
// signal as soon as the thread that forked exits.
func init() { runtime.LockOSThread() }

// By default the Go runtime first collects garbage at a heap of 4 MB: too much if fini and its command have 8 MiB (see
// docs/platforms.md). With gcPercent the runtime first collects at 1 MB.
const gcPercent = 25

func main() {
	debug.SetGCPercent(gcPercent)
	environ, self := entry.Environ(), entry.Known()
	if len(os.Args) == 0 { // execve(2) could do that before Linux 5.18, and kong wants a name
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
		end(host.Inherit(options, self), self.Role)
	default:
		end(host.Run(options, environ, self), self.Role)
	}
}

// fail says why fini does nothing, and exits.
func fail(format string, args ...any) {
	host.Logger{Threshold: life.Normal}.Sayf(life.Always, format, args...)
	os.Exit(life.ExitFailed)
}

// answer prints the text that the user asked for instead of a command.
func answer(text string) {
	if _, err := fmt.Print(text); err != nil {
		fail("cannot write: %v", err)
	}
}

// end makes this process exit or die as the command did. For an inner fini, the outer fini does so.
func end(as life.Result, role entry.Role) {
	if as.Sig != 0 && os.Getpid() != 1 && role != entry.Inner {
		signals.EndBy(as.Sig)
	}
	os.Exit(as.Status())
}
