// Package containers starts fini in containers: a Container by docker, and an Engine, which is Docker or
// podman, with root and without.
package containers
