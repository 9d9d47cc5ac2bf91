// Package e2e holds black-box tests of the built binary in its real surroundings:
// real processes, a real PID namespace, a real Docker engine, real npm packages.
//
// A test proves that a tree is gone by its witness: a pipe that every process of the
// tree inherits and only the kernel closes. Nothing here sleeps to let something
// happen: a line, a signal's record or the end of a pipe is what a test waits for.
package e2e
