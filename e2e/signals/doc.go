// Package signals holds the chapter on signals in docs/behavior.md: every signal arrives, once, at the right
// process group.
package signals
