// Package shells types keys to a real shell at a terminal, and compares the screen, the statuses and what is
// alive with and without fini. The keys stand in TypedCases, because both the room terminal and the room
// long/peers type them.
package shells
