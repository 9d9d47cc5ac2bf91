// Package refused holds the part of promise 9 that is about refused system calls and a missing /proc: fini
// gives up the feature, says so once, and goes on.
package refused
