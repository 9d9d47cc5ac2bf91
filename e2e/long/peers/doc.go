// Package peers is a room of make test-all: suites of others with fini in front, and the peers beside fini at a
// terminal.
package peers
