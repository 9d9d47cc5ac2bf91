// Package soak is a room of make test-all: lives that are drawn at random. FINI_FULL=1h is for an hour.
package soak
