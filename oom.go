package main

import (
	"fmt"
	"syscall"

	"github.com/seed-126c5d8a/fini/reaper"
)

// kills knows which ends by SIGKILL are not fini's own work, and whether the kernel has killed
// for memory meanwhile. It takes nobody's word for whom the kernel has killed: there is only a
// count for the whole cgroup.
type kills struct {
	memory reaper.Memory
	own    map[int]bool // pids that fini has sent SIGKILL and not reaped yet
	group  bool         // it has sent SIGKILL to the command's group
	over   bool         // the main child has ended: what ends now is a leftover
	told   int
}

// sent notes a SIGKILL of fini's own.
func (k *kills) sent(sig syscall.Signal, group bool, pids ...int) {
	if sig != syscall.SIGKILL {
		return
	}
	if k.own == nil {
		k.own = map[int]bool{}
	}
	k.group = k.group || group
	for _, pid := range pids {
		k.own[pid] = true
	}
}

// others are those exits by SIGKILL of which fini has sent none, the main child's and
// leftovers'. A shell turns that of its last command into the status 137.
func (k *kills) others(exits []reaper.Exit, main int) (found []reaper.Exit) {
	for _, x := range exits {
		killed := x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL
		shown := x.Pid == main && x.Status.Exited() && x.Status.ExitStatus() == 128+int(syscall.SIGKILL)
		if (killed || shown) && (x.Pid == main || k.over) && !k.own[x.Pid] && !k.group {
			found = append(found, x)
		}
		if x.Status.Exited() || x.Status.Signaled() {
			delete(k.own, x.Pid)
		}
	}
	return found
}

// tellOfMemory says of processes that were killed, not by fini, that it may have been for memory.
func (l *loop) tellOfMemory(exits []reaper.Exit) {
	for _, x := range l.kills.others(exits, l.main) {
		n, err := l.kills.memory.KilledSince()
		if err != nil {
			l.report.OOM(x.Pid, l.main, "unknown", err.Error())
			continue
		}
		if n == 0 {
			continue
		}
		count := "a process"
		if n > 1 {
			count = fmt.Sprintf("%d processes", n)
		}
		l.report.OOM(x.Pid, l.main, "likely", fmt.Sprintf("oom_kill in %s rose by %d", l.kills.memory.File, n))
		if l.kills.told++; l.kills.told > maxTold {
			continue
		}
		who := fmt.Sprintf("leftover %d", l.outside.Pid(x.Pid))
		switch {
		case x.Pid == l.main && x.Status.Exited():
			who = "the command exited with 137, as for SIGKILL"
		case x.Pid == l.main:
			who = "the command was ended by SIGKILL"
		default:
			who += " was ended by SIGKILL"
		}
		l.sayf(warning, "%s; the kernel killed %s for memory in this cgroup (oom: likely)", who, count)
	}
}
