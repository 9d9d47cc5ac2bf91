// Package stuck holds the part of promise 9 that is about processes that are stuck in execve(2), and about
// processes that fork faster than anyone can look. A reader of /proc waits for a stuck process, so no other
// room runs beside this one.
package stuck
