// Package signals holds the chapter on signals in docs/behavior.md: every signal arrives, once, at the right
// process group.
//
// What few users can meet, and the pages don't say:
//
//   - Of two equal real-time signals at once, the report knows the sender of the last one.
//   - The kernel drops SIGTERM and the like for a PID 1 that has not made its first system call, as for any PID 1.
//   - A blocked signal that was pending before fini started is lost, or it ends fini (HUP, INT, QUIT, ABRT, TERM and 34).
//   - SIGQUIT before the command starts may make Go print a dump and exit with 2.
//   - If the command's execve(2) hangs, signals wait until it returns; SIGKILL kills fini and the process that hangs.
package signals
