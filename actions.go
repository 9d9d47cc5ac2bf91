package main

// How the loop in main.go does what a machine has decided.

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/signals"
)

// do carries out one action.
func (l *loop) do(a action) {
	switch a := a.(type) {
	case forward:
		if l.reaped {
			break
		}
		l.sayf(detail, "sending %s to the command", signals.Name(a.sig))
		toGroup := l.role.rules.group && !l.role.outer
		l.kills.sent(a.sig, toGroup, l.main)
		if toGroup {
			l.failed(signals.ToGroup(l.main, a.sig))
		} else {
			l.failed(signals.To(l.main, a.sig))
		}
	case relay:
		if l.reaped {
			break
		}
		l.failed(signals.Relay(l.main, signals.Received{Signal: a.sig, Sender: a.sender, Kernel: a.from == fromKernel}))
	case resume:
		l.failed(signals.ContinueJob())
	case watchAll:
		l.watch(slices.Concat(l.role.watch, l.role.whileStopped), pdeath.Unwatched)
	case askStdin:
		l.queue = append(l.queue, unread{pdeath.Unread()})
	case reap:
		l.collect()
	case look:
		if l.collect().none {
			return
		}
		found, err := l.tree.Look()
		l.found = familyOf(found)
		l.owners.Remember(found)
		l.queue = append(l.queue, looked{found, err})
	case remember:
		if found, err := l.tree.Look(); err == nil {
			l.owners.Remember(found)
		}
	case send:
		l.report.Sent(a.process.Pid, a.sig)
		l.kills.sent(a.sig, false, a.process.Pid)
		l.failed(l.tree.Signal(a.process, a.sig))
	case kill:
		l.kill(a.childrenOnly)
	case because:
		l.sayf(a.level, "%s: %s", a.what, l.because(a.why))
		l.report.Stopped(a.why.word())
	case tell:
		l.tell(a)
	case leave:
		l.leave(a)
	case say:
		l.sayf(a.level, "%s", a.text)
	case wake:
		l.wake = signals.Uptime() + a.after
	case hurry:
		if at := signals.Uptime() + a.after; l.wake == 0 || l.wake > at {
			l.wake = at
		}
	case exit:
		l.exit(a)
	default:
		panic(fmt.Sprintf("no such action: %T", a))
	}
}

// kill sends SIGKILL to the children, or to the whole tree, and reaps.
func (l *loop) kill(childrenOnly bool) {
	round := l.tree.Kill
	if childrenOnly {
		round = l.tree.KillChildren
	}
	hit, refused, err := round()
	l.kills.sent(syscall.SIGKILL, false, hit...)
	for _, pid := range hit {
		l.report.Sent(pid, syscall.SIGKILL)
	}
	l.collect()
	l.queue = append(l.queue, swept{hit, refused, err})
}

// exit ends the life: it says what is to be said at the end, and tells the outer fini.
func (l *loop) exit(a exit) {
	l.result = a.result
	l.close(a)
	if !l.role.inner {
		return
	}
	if l.role.isolated != nil && l.role.rules.job != 0 {
		l.role.word.Continue() // the outer one may have been stopped with the job
	}
	if l.stays() {
		l.role.word.Stays(a.result.waitStatus())
		l.stay()
		return
	}
	l.role.word.Done(a.result.waitStatus())
	if outer := l.role.watch[0].pid; l.wasStopped && l.role.rules.job != 0 && os.Getppid() == outer {
		// The outer one, which is in the job, was stopped with the command. If it was killed, the
		// parent process is another one, or outside of the PID namespace.
		l.failed(signals.To(outer, syscall.SIGCONT))
	}
}

// failed says what could not be done.
func (l *loop) failed(err error) {
	if err != nil {
		l.sayf(failure, "%v", err)
	}
}
