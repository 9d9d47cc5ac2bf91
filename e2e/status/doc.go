// Package status holds promise 1: the parent process gets the command's status, for all 256 exit codes and
// every signal; and one line tells why fini cannot start a command.
package status
