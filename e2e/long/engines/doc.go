// Package engines is a room of make test-all: fini in containers, by Docker and podman, with root and without,
// in each way in which a container ends.
package engines
