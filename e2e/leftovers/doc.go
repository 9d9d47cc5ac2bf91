// Package leftovers holds promise 2: when fini is gone, no process of the tree is alive, whatever the tree did.
// The policies of --orphans are here too; what each of them leaves alone is in room report, because the report lists it.
//
// What few users can meet, and the pages don't say:
//
//   - A child from before fini (helper & exec fini) is spared with its descendants. What it starts later, and leaves when it
//     exits, counts as a leftover.
//   - --orphans=pipes misses a pipe in a descriptor table that only one thread has, in a message in flight (SCM_RIGHTS), or in an
//     io_uring, and a FIFO that was renamed, because FIFOs are compared by their paths.
//   - Until execve(2), a new process has the command line of its parent, which --allow-orphan=cmd: matches.
//   - The kernel doesn't show a process that waits in vfork(2) for a suspended child as suspended, so fini doesn't continue it.
//   - Start times are known to 10 ms, so a process that started just before SIGTERM is spared as clean-up. If a start time can't
//     be read, the process is spared for five seconds, or for half of --grace if that is less.
//   - SIGTERM for the command's group during a clean-up also reaches the processes of the clean-up in that group. With -c, or in
//     a job at a terminal, only what a leftover starts after fini's own SIGTERM counts as clean-up.
//   - With a --grace of 5 ms or less, or after a second SIGINT, a process whose parent exits during the scan may get SIGKILL
//     without SIGTERM.
//   - Under --orphans=wait, fini may notice an allowed name that execve(2) brings only after two minutes.
//   - Without a /proc of its PID namespace, a leftover may get SIGTERM twice, or only SIGKILL if its parent outlives --grace.
package leftovers
