// Package rig starts the built fini as its users do, and watches what becomes of the tree of processes below it. All rooms
// of e2e use it. This page is enough to write a test; `go doc -all ./e2e/rig` has the rest.
//
// # A test
//
// A leftover is a process that the command leaves behind. Fini stops it in each place where fini runs:
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
//	func TestMain(m *testing.M) { rig.Main(m) } // once in each room: leave it out where there is one, as in e2e/leftovers
//
//	func TestLeftoverIsStopped(t *testing.T) {
//		t.Parallel()
//		rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
//			t.Parallel()
//			l := rig.Start(t, p, "--linger=0", "--", "/bin/sh", "-c", `
//				setsid sh -c 'echo leftover $$; exec sleep 1000' &
//				read line; exit $line`)
//			pid := l.Out.WantPID("leftover ") // as PID 1 fini has a PID namespace, of which this pid is
//			rig.Write(t, l, "3\n")            // the command waits for it: by now the leftover is there
//			l.MustEnd(3)                      // and nothing of the tree is alive
//			l.Err.Want(fmt.Sprintf("fini: stopping leftover %d (", pid))
//		})
//	}
//
// Run it by `make build && go test ./e2e/leftovers -run LeftoverIsStopped -v`; with -short, as in make test, only the quick
// cases run.
//
// # Start
//
// A Place is a way in which fini runs: as a Pair (fini runs twice, and the inner one is the command's parent), Alone
// (--no-shield), and as PID1 of a PID namespace. InPlaces runs a test in all three, and in make test only in the one that is
// named; InEveryPlace runs all three there too. AloneOrPair are those outside of a namespace.
//
// Start starts fini in a place, and StartCmd any exec.Cmd: what you get is a Life. Launch has fini started by a parent
// process that you can kill. StartInCgroup has all of it in a Cgroup, for a tree that closes what it inherits. Ask runs fini
// to its end, if all you want is what it says.
//
// # Wait
//
// A test waits for facts, never for time. Life.Out and Life.Err are the two streams. Want reads up to a line that begins
// with a text, fails at EOF, and skips the lines before it for good: if two processes print in any order, start the second
// one after a Write. WantNext wants a whole line, and that it is the next one. Whole reads to EOF, and returns all lines, also those
// that were read before; Text returns what has come so far.
// Write sends a line to the command's stdin. Until polls for what no line tells, and its patience only ends a failure, after
// three minutes of a machine that is free, or longer if it is busy. Life.Caught waits until fini catches signals: from
// then on Life.Signal is safe. If a duration of fini's is the subject, such as --grace, assert only that it was not
// shorter, from the time before the Write that sets it off. Where it has to be too long to matter, take an hour, and where
// it has to run out, 100 ms.
//
// # Assert
//
// Life.MustEnd asserts the exit status, and that nothing of the tree is alive: each process of the tree inherits the witness,
// a pipe that hangs up when the last one is gone. If one survives, the test fails and kills it, so that nothing keeps a stream
// open, and goes on. As PID 1 nothing survives even if fini stops nothing, because the kernel kills the rest of the
// namespace: there only what fini says proves something.
// Cgroup.MustLeaveNothing asserts the same of a cgroup. Err.Want reads up to a line of fini's, and rig.WantOnce asserts a
// whole one in a text; docs/messages.md has them all. Only up to "leftover PID (" is a leftover's line the same everywhere:
// then follows its command, before or after its execve (UntilSleeps in a script waits for that of sleep(1)), and outside of
// a PID namespace the streams that it holds. What fini must not say is looked for in Err.Whole, after MustEnd. Equal compares two values, and NoError and Succeed end a test
// that can't go on. Break what you test once, and see the test fail.
//
// # How often
//
// make test has two minutes for everything, so a case says whether it is quick, which is a second or two: InPlaces takes the
// place that it is given for quick, Case asks for each case, and Long leaves a whole test to
// make test-all, QuickOrFull is a number of rounds. A test calls t.Parallel, or Serial with the reason why it can't. It asks
// for a program or a right with package need: if that is missing, the test is skipped, but fails under FINI_MUST_RUN=1.
//
// # Beside it
//
// What a few rooms share is in small packages:
//
//	programs    what the test binary is when started as @script, @signals or the like; Mode("signals") starts one
//	procfs      what /proc says of a process
//	self        what a unit test does to its own process
//	reports     reads a report of --report
//	refusals    system calls that are refused, and what fini keeps then; WithAndWithoutPidfds
//	kills       the matrix of trees, victims and moments
//	rest        whether a fini sleeps
//	pty, stdin  commands on a terminal, and with each kind of stdin
//	deadend     file systems and terminals that never answer
//	recipes     runs the blocks of a page
//	runners     steps of a CI job, started and cancelled as by its runner
//	columns     a case without a wrapper, under tini and under fini
//	shells      types keys to real shells
//	clients     MCP clients and servers
//	containers  Docker and podman
//
// What only one room needs is in that room's files.
package rig
