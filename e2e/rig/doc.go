// Package rig is what the rooms of e2e share: it starts the built fini in each of its places, and watches what
// becomes of the tree. It has no tests.
//
// A room is a package with tests of one promise of docs/behavior.md, or of one place where fini is used. Its
// TestMain is Main, which builds fini, gives the tests the surroundings that they take for granted, and makes
// the folder e2e their working directory.
//
// A Life is a started fini: Start runs fini in a Place (Pair, Alone, PID1), StartCmd runs any
// exec.Cmd, and Launch has fini started by a launcher that can be killed. Life.Out and Life.Err are its
// streams, line by line. Life.MustEnd asserts the status, and that nothing of the tree is alive: each process
// of the tree inherits the witness, a pipe that only the kernel closes. A Cgroup holds the tree if its
// processes close what they inherit. Life.Worker is the inner fini of a pair, whose child is the command.
//
// A test waits for facts: a line, the end of a pipe, an empty cgroup. Until and Await poll, and
// their patience only ends a failure: a minute of a machine that is free, and as much more as it is busy. Nothing sleeps to let
// something happen.
//
// Programs that tests start are modes of the test binary: Mode("signals") is the command line of one. They are
// here, one file for each kind; the room kernel adds its own to Modes.
//
// A test asks for a program or a right with package need. If that is missing, need skips the test, and make
// test says so; under FINI_MUST_RUN=1 the test fails. Case says of a case whether it is quick, and Long of a
// test that it isn't: make test-all alone runs those that repeat a proof in one more place, shell or language.
package rig
