package host

import (
	"runtime"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/cli"
	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/signals"
)

// Inherit is the rest of a life whose inner fini was killed.
func Inherit(options *cli.Options) life.Result {
	will, reportFD := entry.Inherit()
	result := life.ResultOf(syscall.WaitStatus(will.Status))
	k := newKernel(options)
	k.begun, k.main = signals.Uptime(), int(will.Main)
	k.kills.Over = true
	k.failed(k.tree.EarlierAre(entry.Earlier()))
	switch {
	case options.Report == "" || will.Main == 0:
	case reportFD < 0:
		k.Sayf(life.Failure, "--report: nothing is written: the inner fini was killed, and its descriptor of %q is lost", options.Report)
	default:
		k.report = report.New(report.Place{FD: reportFD, Path: options.Report}, options.Command, VersionNumber())
		k.report.Pid = k.main
	}
	var err error
	if k.caught, err = signals.Catch(entry.Inherited().Ignored, k.keepDefault()); err != nil {
		k.failed(err)
		_, _, err = k.tree.Kill()
		k.failed(err)
		return result
	}
	k.rules.Ignored = k.caught.Ignored
	k.caught.Children()
	k.caught.Unblock()
	k.tree.Allow(options.AllowOrphan, k.main)
	reserve()
	runtime.UnlockOSThread() // as in Run
	switch {
	case will.EndBy != 0:
		result = life.Result{Sig: syscall.Signal(will.EndBy)}
	case result.Sig == 0:
		result.Code = life.ExitFailed // the runtime of the inner fini aborted
	}
	return life.NewHeir(k, k.rules, k.main, result).Run()
}
