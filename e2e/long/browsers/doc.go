// Package browsers is a room of make test-all: the MCP servers that start a browser leave nothing of it behind.
package browsers
