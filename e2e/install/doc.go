// Package install holds how fini gets to its user: --install, make install, completions, and the modules that
// find the binary.
package install
