// Package rig starts the built fini as its users do, and watches what happens to the processes below it. All rooms of e2e
// use it. This page explains how to write a test. `go doc -all ./e2e/rig` describes everything else.
//
// # A test
//
// A leftover is a process that the command leaves behind. This test shows that fini stops it wherever it runs:
//
//	package leftovers
//
//	import (
//		"fmt"
//		"testing"
//
//		"github.com/seed-126c5d8a/fini/e2e/rig"
//	)
//
//	func TestMain(m *testing.M) { rig.Main(m) } // each room has one already
//
//	func TestLeftoverIsStopped(t *testing.T) {
//		t.Parallel()
//		rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
//			t.Parallel()
//			l := rig.Start(t, p, "--linger=0", "--", "/bin/sh", "-c", `
//				setsid sh -c 'echo leftover $$; exec sleep 1000' &
//				read line; exit $line`)
//			pid := l.Out.WantPID("leftover ") // a pid as fini sees it, which matters if it is PID 1
//			rig.Write(t, l, "3\n")            // only now does the command exit
//			l.MustEnd(3)                      // with this status, and with no process left
//			l.Err.Want(fmt.Sprintf("fini: stopping leftover %d (", pid))
//		})
//	}
//
// Run it with `make build && go test ./e2e/leftovers -run LeftoverIsStopped -v`, or with -short for only the quick cases.
//
// # Start
//
// A Place is a way to run fini: as a Pair (fini forks, and the inner fini is the command's parent), Alone (--no-shield), or
// as PID1 of a PID namespace. InPlaces runs a test in all three places, except in make test, where it runs only in the place
// that you name. InEveryPlace always runs all three. AloneOrPair leaves out the PID namespace.
//
// Start starts fini in a place and returns a Life. StartCmd does the same for any exec.Cmd. Launch starts a parent process,
// which you can kill, and that process starts fini. StartInCgroup puts everything into a Cgroup, which helps if a process
// closes the descriptors that it inherits. Ask runs fini to its end and returns its output.
//
// # Wait
//
// A test waits for facts, never for time. The output of a Life can be read from Life.Out and Life.Err:
//
//	Want      reads up to a line that begins with a text, skips all lines before it, and fails at EOF
//	WantNext  reads one line, which must be the given one
//	Whole     reads to EOF, and returns all lines; Text returns what has arrived so far
//
// Because Want skips lines, it can't wait for the lines of two processes that write in any order. Start the second process
// after a Write, which sends a line to the command's stdin. Until polls for facts that no line shows. Its deadline, 25
// seconds on an idle machine and more on a busy one, only ends a test that fails. Call Life.Caught before Life.Signal, because fini doesn't catch signals from the start.
//
// To test a duration such as --grace, take the time before the Write that starts it, and assert only that it was not shorter.
// Use an hour for a duration that must not elapse, and 100 ms for one that must.
//
// # Assert
//
// Life.MustEnd asserts the exit status, and that no process of the tree is alive. Every process inherits a pipe, the witness,
// which hangs up when the last one has exited. If a process survives, the test fails and kills it. When PID 1 exits, the
// kernel kills the rest of its namespace, so there you have to assert what fini writes. Cgroup has MustLeaveNothing.
//
// Err.Want reads up to a line of fini's, and WantOnce asserts that a text contains a line once. docs/messages.md lists all
// lines. A line about a leftover is the same everywhere only up to "leftover PID (". The command that follows may be the one
// before or after execve, unless the script calls UntilSleeps, which waits for sleep(1). To assert that fini does not write a
// line, search Err.Whole after MustEnd. NoError and Succeed end a test that can't continue. Once, break what you test, to
// see the test fail.
//
// # How often
//
// make test has to stay short, so it runs only quick cases, which take a second or two of a processor. InPlaces is quick
// in one place, Case says whether each case is quick, Long leaves a test to make test-all, and QuickOrFull chooses between
// numbers of rounds. Every test calls t.Parallel, or Serial with a reason. It asks package need for programs and rights, and
// is skipped if one is missing, or fails if FINI_MUST_RUN=1.
//
// # Other packages
//
// Everything that unit tests use too is in internal/tests: check, under the name rig here, procfs, which reads /proc, and
// programs, which are what the test binary becomes when started as @script, @signals and so on (see Mode).
//
// The following packages are used by several rooms. What only one room needs is in the room itself.
//
//	reports     reads a report written by --report
//	refusals    refuses system calls, and says what fini can do without them; WithAndWithoutPidfds
//	kills       the matrix of trees, victims and moments
//	rest        reports whether a fini sleeps
//	pty, stdin  run commands on a terminal, and with every kind of stdin
//	deadend     file systems and terminals that never respond
//	recipes     runs the code blocks of a page
//	runners     starts and cancels steps as CI runners do
//	columns     runs a case without a wrapper, with tini and with fini
//	shells      types into real shells
//	clients     MCP clients and servers
//	containers  Docker and podman
package rig
