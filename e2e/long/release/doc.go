// Package release is a room of make test-all: a release is made twice, installed in each way, and run.
package release
