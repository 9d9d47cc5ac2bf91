// Package mcp is fini around an MCP server, in front of clients and servers as npm and PyPI have them.
package mcp
