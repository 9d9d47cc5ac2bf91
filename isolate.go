package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/cli"
	"github.com/seed-126c5d8a/fini/life"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/report"
	"github.com/seed-126c5d8a/fini/signals"
)

// With --isolate the outer fini of a pair starts the inner one as the init of a PID namespace. When that
// one ends, however it does, the kernel ends the command and its tree.
//
// In the namespace pids are other numbers: what the inner one knows of processes outside it has from the
// outer one, in --inner and as pidfds that it inherits.

// isolatedInner is the inner fini.
type isolatedInner struct{ inner }

// isolatedOuter is the outer one.
type isolatedOuter struct {
	outer
	goOn bool // without isolation, if there is none
}

// isolated is what an isolated inner fini is told beyond the other orders, since it can't see the outer one.
type isolated struct {
	pid    int  // the outer one's
	leader bool // that one leads the session
	word   int  // descriptor of the word's reading end, see reaper.Word.Continue
	by     reaper.Isolation
	names  string // of the processes outside that are watched, the outer one's first, with newlines between
}

// String is what follows the numbers of the orders.
func (i *isolated) String() string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf("/%d,%t,%d,%t,%x,%x", i.pid, i.leader, i.word, i.by.User, i.by.Bounding, i.names)
}

func (i *isolated) parse(text string) error {
	words := strings.Split(text, ",")
	if len(words) != 6 {
		return errNotForUsers
	}
	var failed [6]error
	i.pid, failed[0] = strconv.Atoi(words[0])
	i.leader, failed[1] = strconv.ParseBool(words[1])
	i.word, failed[2] = strconv.Atoi(words[2])
	i.by.User, failed[3] = strconv.ParseBool(words[3])
	i.by.Bounding, failed[4] = strconv.ParseUint(words[4], 16, 64)
	names, err := hex.DecodeString(words[5])
	i.names, failed[5] = string(names), err
	if errors.Join(failed[:]...) != nil || i.word < 3 {
		return errNotForUsers
	}
	return nil
}

// settle completes the isolation that this process was started for, and tells the outer fini how that went.
// It reports whether the isolation is complete. Call it when signals are caught: by one that is not, the Go
// runtime would end an init with a status of its own.
func settle(in *orders) bool {
	err := in.isolated.by.Settle()
	reaper.Word{Write: in.word}.Settled(err)
	return err == nil
}

// isolate returns the outer one of an isolated pair, or another role if it may go on without.
func (l *loop) isolate(alone *solo, how cli.Isolation) (role, error) {
	by := reaper.NewIsolation()
	pair, err := newOuter(alone, by)
	if err == nil && pair.rules.Job != 0 {
		if err = pair.word.ContinueBy(); err != nil {
			pair.close()
		}
	}
	if err != nil {
		return l.notIsolated(alone, how == cli.TryIsolate, err)
	}
	o := &isolatedOuter{*pair, how == cli.TryIsolate}
	o.command.Isolation, o.command.Deathsig = by, 0
	o.watch = []watched{{fd: o.word.Read, why: innerTold}}
	if o.rules.Job != 0 {
		// Nobody in the namespace can be moved into a group that is outside.
		o.command.Group = reaper.SameGroup
	}
	return o, nil
}

// notIsolated returns the role that goes on without isolation, if it may.
func (l *loop) notIsolated(alone *solo, goOn bool, err error) (role, error) {
	if !goOn {
		// Its status is that of a fini that failed, and not of a command that was not found.
		return nil, fmt.Errorf("--isolate: %v; --isolate=try goes on without", err)
	}
	l.sayf(life.Failure, "--isolate: %v: going on without", err)
	return l.shield(alone), nil
}

// start waits until the inner fini has settled.
func (o *isolatedOuter) start(l *loop) (role, reaper.Child, error) {
	child, err := o.startInner()
	reaper.CloseOnExec(o.word.Read)
	if err == nil {
		err = o.word.AwaitSettled(child, settleBound)
	}
	if err == nil {
		l.caught.CatchIgnored()
		return o, child, nil
	}
	if refused := (*reaper.RefusedError)(nil); errors.As(err, &refused) {
		refused.User = o.command.Isolation.User
		err = surroundingsHere().explain(refused)
	}
	o.close()
	next, err := l.notIsolated(o.fallback, o.goOn, err)
	if err != nil {
		return o, child, err
	}
	return next.start(l)
}

// So long the outer fini waits for the inner one to settle, and then goes on: an inner one that takes longer
// is taken for stopped. It is a guess.
const settleBound = 10 * time.Second

// innerTold is no reason: it marks the descriptor by which an isolated inner fini tells.
const innerTold = life.Reasons

// shows takes in what the inner one has told.
func (o *isolatedOuter) shows(l *loop, i int, woken *life.Woken) {
	if l.bound[i].why != innerTold {
		o.outer.shows(l, i, woken)
		return
	}
	if t, news := o.word.Told(); news && !t.Done {
		l.bond.Again(i) // there is more to come
	} else {
		woken.Told = &t
	}
}

// accepts leaves to the inner one what the tree has sent to the job, since it has reached that one too.
// SIGTSTP in an orphaned job is for this one all the same: the inner one does not continue the job.
func (o *isolatedOuter) accepts(l *loop, got signals.Received) (origin int, mine bool) {
	stop := o.rules.Orphaned && got.Signal == syscall.SIGTSTP
	return got.Sender, got.Kernel || o.rules.Job == 0 || stop || !l.ofTree(got.Sender)
}

func newIsolatedInner(r *inner, from *isolated) *isolatedInner {
	reaper.CloseOnExec(from.word)
	r.word.Read, r.rules.Leader = from.word, from.leader
	for i, name := range strings.Split(from.names, "\n") { // pids outside mean nothing here
		if i < len(r.watch) {
			r.watch[i].name = name
		}
	}
	return &isolatedInner{*r}
}

func (r *isolatedInner) start(l *loop) (role, reaper.Child, error) {
	_, child, err := r.inner.start(l)
	return r, child, err
}

// fromOutside stands for all senders outside: here they have no pid.
const fromOutside = -1

// accepts leaves to the outer one what the kernel sends to a job, as for a key of the terminal, and stop
// signals from outside: both processes get these, and the outer one relays them or is stopped by them.
func (r *isolatedInner) accepts(_ *loop, got signals.Received) (origin int, mine bool) {
	if !got.Relayed && r.rules.Job != 0 && (got.Kernel || got.Sender == 0 && slices.Contains(jobStops, got.Signal)) {
		return 0, false
	}
	if !got.Kernel && (got.Relayed || got.Sender == 0) {
		return fromOutside, true
	}
	return got.Sender, true
}

// exit keeps this fini as the init of those that a policy leaves alone, which would end with it.
func (r *isolatedInner) exit(l *loop, end life.End) (stays bool) {
	if r.rules.Job != 0 {
		r.word.Continue() // the outer one may have been stopped with the job
	}
	if end.Leaves {
		if _, none := l.Reap(); !none {
			r.word.Stays(end.WaitStatus())
			l.threshold, l.report = life.Silence, report.Report{}
			l.watch(nil, pdeath.Unwatched)
			reaper.CloseStderr()
			return true
		}
	}
	r.word.Done(end.WaitStatus())
	return false
}

// surroundings are the reasons for which systems refuse an isolation.
type surroundings struct {
	root     bool   // the user is
	apparmor bool   // user namespaces are for programs with a profile
	disabled bool   // user namespaces are for root
	limit    string // a sysctl of which there may be none: "user.max_user_namespaces"
	filter   bool   // a seccomp filter is in force
	masked   bool   // something is mounted below /proc
	without  bool   // the kernel has no PID, mount or user namespaces
}

// surroundingsHere are those of this process.
func surroundingsHere() (s surroundings) {
	text := func(path string) string {
		text, _ := reaper.ReadAll(path)
		return strings.TrimSpace(text)
	}
	s.root = os.Geteuid() == 0
	s.apparmor = text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
	s.disabled = text("/proc/sys/kernel/unprivileged_userns_clone") == "0"
	for _, name := range []string{"user", "pid", "mnt"} {
		if text("/proc/sys/user/max_"+name+"_namespaces") == "0" {
			s.limit = "user.max_" + name + "_namespaces"
		}
		if syscall.Access("/proc/self/ns/"+name, 0) == syscall.ENOENT {
			s.without = true
		}
	}
	s.filter = strings.Contains(text("/proc/self/status"), "\nSeccomp:\t2")
	s.masked = strings.Contains(text("/proc/self/mountinfo"), " /proc/")
	return s
}

// explain adds to what was refused the likely reason, and what helps. An error number alone is no
// reason: where nothing else speaks for one, none is given.
func (s surroundings) explain(refused *reaper.RefusedError) error {
	user := refused.User
	mounts, namespaces := refused.Mounts(), refused.Namespaces()
	denied := errors.Is(refused, syscall.EPERM) || errors.Is(refused, syscall.EACCES) || errors.Is(refused, syscall.ENOSYS) && s.filter
	why := ""
	switch {
	case errors.Is(refused, syscall.ENOSPC) && mounts:
		why = "there are as many mounts as may be; see the sysctl fs.mount-max"
	case errors.Is(refused, syscall.ENOSPC) && s.limit != "":
		why = "there may be no such namespace here; set the sysctl " + s.limit
	case errors.Is(refused, syscall.ENOSPC) && namespaces:
		why = "there are as many such namespaces as may be, or one in another too often; see the sysctls user.max_*_namespaces"
	case namespaces && s.without && (errors.Is(refused, syscall.EINVAL) || errors.Is(refused, syscall.ENOSYS)):
		why = "this kernel has no such namespaces"
	case !denied || !mounts && !namespaces:
	case refused.Fresh() && user && s.masked && errors.Is(refused, syscall.EPERM):
		why = "parts of /proc are masked, as in a container or by systemd's ProtectKernelTunables=; be a container's PID 1, which promises the same, or unmask them (docker run --security-opt systempaths=unconfined, procMount: Unmasked in Kubernetes, ProtectKernelTunables=no and ProtectKernelLogs=no in a unit)"
	case user && s.apparmor:
		why = "AppArmor lets only programs with a profile have user namespaces; be root, give fini a profile with `userns,`, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
	case user && s.disabled:
		why = "user namespaces are for root; be root, or set the sysctl kernel.unprivileged_userns_clone to 1"
	case mounts:
		why = "a security module, as AppArmor in a container, refuses mounts; be the container's PID 1, which promises the same, or take its profile off (docker run --security-opt apparmor=unconfined)"
	case s.root && refused.Mapping():
		why = "root has too few capabilities; give it CAP_SYS_ADMIN or CAP_SETFCAP"
	case s.filter:
		why = "a seccomp filter, as of a container, refuses namespaces; be the container's PID 1, which promises the same, or give it CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)"
	case s.root:
		why = "CAP_SYS_ADMIN is missing"
	default:
		why = "user namespaces are for root here, or this is a chroot"
	}
	if why == "" {
		return refused
	}
	return fmt.Errorf("%w: %s", refused, why)
}
