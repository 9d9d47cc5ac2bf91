// Package stuck holds the part of promise 9 that is about processes that are stuck in execve(2), and about
// processes that fork faster than anyone can look. A reader of /proc waits for a stuck process, so no other
// room runs beside this one.
//
// Such a process holds its exec_update_lock while the kernel closes its close-on-exec descriptors, and a FUSE, NFS or virtiofs
// server may never answer that. Only SIGKILL frees a reader that waits for the lock. On every kernel environ, ns/user and ns/net
// wait for it. On kernels with "proc: protect ptrace_may_access() with exec_update_lock", which stable releases of 2026 have
// too, all files do that give details, except cmdline, which waits for the lock of the process's memory. With hidepid every file
// may wait. So fini reads status first, and skips the details of a process that is in uninterruptible sleep or inside execve(2).
// The reader counts as stuck after 100 ms without a step in uninterruptible sleep, or a second in another state.
package stuck
