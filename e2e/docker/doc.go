// Package docker is fini as PID 1 of a container: one life of each kind. The matrix of engines is in
// e2e/long/engines.
package docker
