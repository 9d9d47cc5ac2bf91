// Package check has what the unit tests and the rooms of e2e share: assertions, waits for facts, pipes and streams, commands,
// and how often a case runs. The comment on package rig, in e2e/rig/doc.go, explains how tests are written with it.
//
// The packages beside it ask for programs and rights (need), read /proc (procfs), act on the process of a unit test (self), set
// up what tests take for granted (surroundings), and are what a test binary becomes when it is started as @script or the
// like (programs).
package check
