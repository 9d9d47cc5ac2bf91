// Package promises has one test for each promise of docs/behavior.md. Each is short, and
// what it calls is told below or by its name. What goes deeper is in the rooms beside this one: see "Where a test goes" in CONTRIBUTING.md.
//
// rig.Fini is the built binary, and p.Command("--", "true") is `fini -- true` in one of the places where fini runs: as a pair,
// which is the default, with --no-shield, or as PID 1 of a PID namespace.
package promises
