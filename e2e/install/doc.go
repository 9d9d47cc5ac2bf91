// Package install holds how fini gets to its user: --install, make install, completions, and the modules that
// find the binary.
//
// If fini is killed during --install=PATH, a file called .fini- and a random number may stay beside PATH.
package install
