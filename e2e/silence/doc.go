// Package silence holds promise 10: standard output belongs to the command, and fini speaks on standard error
// in single lines, about errors, stops and leftovers.
package silence
