// Package kill9 holds promise 8: SIGKILL of any one fini process ends the tree.
//
// What few users can meet, and the pages don't say:
//
//   - If both processes are killed, and the command has changed its user or group (gosu, su), its parent death signal, or its
//     AppArmor or SELinux domain, the kernel doesn't even send it SIGTERM.
//   - The command may get SIGTERM once for each thread of a killed inner fini.
//   - If a terminating signal follows within milliseconds of the inner fini's death, the outer fini kills the tree at once.
//   - If a debugger holds the inner fini's first thread and the outer fini is killed, nothing is stopped until it continues.
//   - With fini inside fini, if one of the four processes is killed, a signal may reach the command more than once.
//   - With --stop-within, the outer fini counts on from the first SIGTERM that it has relayed, or begins anew if there was none.
package kill9
