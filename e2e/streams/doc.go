// Package streams holds promises 3 and 5: a reader of the command's output gets end of file, standard input is
// watched and never read, and the command has the very same descriptors.
package streams
