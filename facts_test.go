package main

import (
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
)

const (
	mainPid = 100
	ms      = time.Millisecond
)

// Leftovers.
var (
	member  = orphans.Process{Pid: 201, Parent: 1, Group: mainPid, Session: 1, Name: "member", State: 'S', Start: 10 * ms}
	escapee = orphans.Process{Pid: 203, Parent: 1, Group: 203, Session: 203, Name: "escapee", State: 'S', Start: 20 * ms}
	holder  = orphans.Process{Pid: 204, Parent: 1, Group: 204, Session: 204, Name: "holder", State: 'S', Start: 20 * ms, Holds: orphans.Stdout}
)

// exited and signaled are wait(2) statuses.
func exited(code int) syscall.WaitStatus             { return syscall.WaitStatus(code << 8) }
func signaled(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }
