// Package transparent holds promise 6: the command sees what it would have seen without fini. The terminal is
// in a room of its own.
package transparent
