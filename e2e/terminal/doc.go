// Package terminal holds the second half of promise 6: at a terminal every key and every word of job control
// does what it does without fini. The cases of job control are typed to real shells.
//
// What few users can meet, and the pages don't say:
//
//   - The kernel sends an orphaned job with a suspended process, such as a script in docker run -t, SIGHUP and SIGCONT when the
//     command exits: see setpgid(2).
//   - Without a shield, Ctrl-Z between fork and exec leaves fini waiting in vfork(2): the prompt comes back after kill -CONT.
//   - Without a shield, if the command of a suspended job is killed, fini is suspended too, and the shell shows the job as
//     stopped until fg.
//   - In (fini cmd &) the read of a terminal fails. But if the shell is there when the command starts, the command is suspended.
package terminal
