package host

import (
	"cmp"
	"runtime"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/report"
)

// TakeOver takes over from an inner fini that was killed. It runs until the command and its tree have ended.
//
// Until all children are gone, an heir must not open paths that may hang. The directory that fini was started in may be
// on a server that doesn't respond, or the tree may have replaced it with a symbolic link. An heir, and an inner fini
// that stops a tree, use only the following paths:
//
//	/proc, /proc/self/fd/N,      answered by the kernel; the reader of package orphans opens files that may hang, and
//	/proc/PID and what is below  the loop doesn't wait for it forever
//	/dev/tty                     opened with O_NONBLOCK, so it doesn't wait for a modem
//	/sys/fs/cgroup               the number of processes killed for lack of memory, answered by the kernel
//	GITHUB_STEP_SUMMARY          only after the last child; a --report was opened before the command started
func TakeOver(options *cli.Options, self entry.Origin) life.Result {
	result := life.ResultOf(syscall.WaitStatus(self.Status))
	k := newSystem(options, self)
	k.begun = calls.Uptime()
	k.tree.StartDir = cmp.Or(self.Dir, k.tree.StartDir)
	k.tree.SetInherited(self.Inherited, self.KnowsInherited)
	var places []report.Place
	for i, path := range options.Report[:min(len(options.Report), entry.MaxReports)] {
		switch fd := self.Reports[i]; {
		case self.Main == 0:
		case fd < 0:
			k.Sayf(life.Always, "--report: cannot write %q: its descriptor was lost when the inner fini was killed", path)
		default:
			places = append(places, report.Place{FD: fd, Path: path})
		}
	}
	if len(places) > 0 {
		k.report = report.New(places, options.Command, VersionNumber())
	}
	k.report.Pid, k.report.Fini = int(self.Main), self.Pid
	k.failed(k.catch()) // an heir continues even if this fails, because it must stop the leftovers
	k.caught.Children()
	k.caught.Unblock()
	k.tree.Allow(options.AllowOrphan, int(self.Main))
	reserve()
	runtime.UnlockOSThread() // as in Run
	switch {
	case self.EndBy != 0:
		result = life.Result{Sig: syscall.Signal(self.EndBy)}
	case result.Sig == 0:
		result.Code = life.ExitFailed // the Go runtime of the inner fini has aborted
	}
	return life.NewHeir(k, k.rules, int(self.Main), result, self.Asked).Run()
}
