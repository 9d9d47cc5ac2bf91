// Package clients starts MCP servers as clients do, with fini before the server and without: a Host is a client
// of an SDK in Node or Python.
package clients
