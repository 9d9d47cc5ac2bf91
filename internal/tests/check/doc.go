// Package check contains what unit tests and the rooms of e2e share: assertions, waits for facts, pipes and streams,
// commands, and the choice of cases. How to write tests with it is explained in e2e/rig/doc.go.
//
// The packages next to it ask for programs and rights (need), read /proc (procfs), change the process of a unit test
// (self), set up what tests rely on (surroundings), and implement what a test binary does when it is started as
// @script, for example (programs).
package check
