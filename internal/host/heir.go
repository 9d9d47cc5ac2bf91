package host

import (
	"cmp"
	"runtime"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/report"
)

// Inherit is the rest of a life whose inner fini was killed.
//
// Until all children are gone, an heir avoids paths, because the server of the directory that fini was started in may
// not answer, or the tree may have replaced the directory by a link. In an heir, and in an inner fini that stops a tree,
// only the following calls name a path, and each of them ends:
//
//	/proc, /proc/self/fd/N,      the kernel answers. Files that may wait are for the reader of package orphans, which
//	/proc/PID and what is below  the loop leaves behind after a time
//	/dev/tty                     only the kernel's own file system is asked, and O_NONBLOCK waits for no line
//	/sys/fs/cgroup               the count of processes killed for memory: the kernel answers
//	GITHUB_STEP_SUMMARY          after the last child. --report was opened before the command started
func Inherit(options *cli.Options, self entry.Facts) life.Result {
	result := life.ResultOf(syscall.WaitStatus(self.Status))
	k := newKernel(options, self)
	k.begun = proc.Uptime()
	k.tree.StartDir = cmp.Or(self.Dir, k.tree.StartDir)
	k.failed(k.tree.EarlierAre(self.Earlier, self.KnowsEarlier))
	var places []report.Place
	for i, path := range options.Report[:min(len(options.Report), entry.MaxReports)] {
		switch fd := self.Reports[i]; {
		case self.Main == 0:
		case fd < 0:
			k.Sayf(life.Always, "--report: nothing is written: the inner fini was killed, and its descriptor of %q is lost", path)
		default:
			places = append(places, report.Place{FD: fd, Path: path})
		}
	}
	if len(places) > 0 {
		k.report = report.New(places, options.Command, VersionNumber())
	}
	k.report.Pid, k.report.Fini = int(self.Main), self.Pid
	k.failed(k.catch()) // it goes on without a descriptor: what is left has to be stopped
	k.caught.Children()
	k.caught.Unblock()
	k.tree.Allow(options.AllowOrphan, int(self.Main))
	reserve()
	runtime.UnlockOSThread() // as in Run
	switch {
	case self.EndBy != 0:
		result = life.Result{Sig: syscall.Signal(self.EndBy)}
	case result.Sig == 0:
		result.Code = life.ExitFailed // the runtime of the inner fini aborted
	}
	return life.NewHeir(k, k.rules, int(self.Main), result, self.Asked).Run()
}
