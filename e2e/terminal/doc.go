// Package terminal holds the second half of promise 6: at a terminal every key and every word of job control
// does what it does without fini. The cases of job control are typed to real shells.
package terminal
