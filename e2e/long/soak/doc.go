// Package soak is a room of make test-all: lives that are drawn at random, things that grow over many lives,
// and measurements that take long. FINI_FULL=1h is for an hour.
package soak
