package life

import (
	"syscall"

	"github.com/seed-126c5d8a/fini/reaper"
)

// Kills knows which processes were killed by SIGKILL, but not by fini: the kernel may have killed them because memory
// ran out. The kernel doesn't report which processes it has killed; it only counts them for the whole cgroup.
type Kills struct {
	own   map[int]bool // pids that fini has sent SIGKILL and not reaped yet
	group bool         // fini has sent SIGKILL to the command's group
	Over  bool         // the main child has exited: each process that dies now is a leftover
}

// Sent records a SIGKILL that fini has sent.
func (k *Kills) Sent(sig syscall.Signal, group bool, pids ...int) {
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

// Others are the exits of the main child and of leftovers that were killed by SIGKILL, but not by fini. A main child
// that exits with 137 is among them: it may be a shell whose last command was killed by SIGKILL.
func (k *Kills) Others(exits []reaper.Exit, main int) (found []reaper.Exit) {
	for _, x := range exits {
		killed := x.Status.Signaled() && x.Status.Signal() == syscall.SIGKILL
		shown := x.Pid == main && x.Status.Exited() && x.Status.ExitStatus() == 128+int(syscall.SIGKILL)
		if (killed || shown) && (x.Pid == main || k.Over) && !k.own[x.Pid] && !k.group {
			found = append(found, x)
		}
		if x.Status.Exited() || x.Status.Signaled() {
			delete(k.own, x.Pid)
		}
	}
	return found
}
