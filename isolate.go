package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/pdeath"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// isolation is what --isolate asks for: the outer fini of a pair starts the inner one as the
// init of a PID namespace. When that one ends, however it does, the kernel ends the command and
// its tree.
//
// In it the inner one and the command see other numbers: what they are told of processes outside
// is told by the outer one, or by its pidfds.
type isolation string

const (
	isolate    isolation = "1"
	tryIsolate isolation = "try" // and go on without
)

// IsBool tells kong that the flag may come without a value.
func (i *isolation) IsBool() bool { return true }

// Decode is what kong calls.
func (i *isolation) Decode(ctx *kong.DecodeContext) error {
	value := "1"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		value = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	switch strings.ToLower(value) {
	case "1", "true", "yes":
		*i = isolate
	case "0", "false", "no":
		*i = ""
	case "try":
		*i = tryIsolate
	default:
		return fmt.Errorf("cannot use %q: want try, or no value", value)
	}
	return nil
}

// settle completes the isolation that this process was started for, and tells the outer fini. It
// reports whether it is complete. Signals are caught by then: of one that is not, the Go runtime
// ends an init with a status of its own.
func (l *loop) settle(in *inner) bool {
	proc, err := in.isolated.by.Settle()
	reaper.Word{Write: in.word}.Settled(err)
	if err != nil {
		return false
	}
	l.outside = orphans.NewOutside(proc)
	if l.report != nil {
		l.report.outside = l.outside
	}
	return true
}

// isolated is what the inner fini of an isolated pair has to know beyond others, since it can't
// see the outer one.
type isolated struct {
	pid    int  // the outer one's
	leader bool // that one leads the session
	word   int  // descriptor of the word's reading end, see reaper.Word.Continue
	pidfd  int  // the outer one's
	by     reaper.Isolation
}

// String is what follows the numbers of an inner.
func (i *isolated) String() string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf("/%d,%t,%d,%d,%t,%x", i.pid, i.leader, i.word, i.pidfd, i.by.User, i.by.Bounding)
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
	i.pidfd, failed[3] = strconv.Atoi(words[3])
	i.by.User, failed[4] = strconv.ParseBool(words[4])
	i.by.Bounding, failed[5] = strconv.ParseUint(words[5], 16, 64)
	if errors.Join(failed[:]...) != nil || i.word < 3 || i.pidfd < 3 {
		return errNotForUsers
	}
	return nil
}

// beIsolated returns the role of the outer one of an isolated pair, or another if it may go on
// without.
func (l *loop) beIsolated(r *role, how isolation) (*role, error) {
	// What can't be told by pids of a namespace is told by pidfds.
	self, err := pdeath.Process(os.Getpid())
	if err != nil {
		return l.notIsolated(r, how == tryIsolate, err)
	}
	outer, err := r.beOuter(reaper.NewIsolation(), self)
	if err != nil {
		_ = unix.Close(self)
	}
	if err == nil && outer.rules.job != 0 {
		if err = outer.word.ContinueBy(); err != nil {
			outer.close()
		}
	}
	if err == nil {
		outer.goOn = how == tryIsolate
		return outer, nil
	}
	return l.notIsolated(r, how == tryIsolate, err)
}

// notIsolated returns the role that goes on without isolation, if it may.
func (l *loop) notIsolated(alone *role, goOn bool, err error) (*role, error) {
	if !goOn {
		// Its status is that of a fini that failed, and not of a command that was not found.
		return nil, fmt.Errorf("--isolate: %v; --isolate=try goes on without", err)
	}
	l.sayf(failure, "--isolate: %v: going on without", err)
	return l.beShielded(alone), nil
}

// startIsolated goes on when the inner fini was started, or was not: it waits until that one has
// settled.
func (l *loop) startIsolated(r *role, child reaper.Child, err error) (*role, reaper.Child, error) {
	reaper.CloseOnExec(r.word.Read)
	if err == nil {
		err = r.word.AwaitSettled(child, settleBound)
	}
	if err == nil {
		return r, child, nil
	}
	if refused := (*reaper.RefusedError)(nil); errors.As(err, &refused) {
		refused.User = r.command.Isolation.User
		err = surroundingsHere().explain(refused)
	}
	r.close()
	next, err := l.notIsolated(r.fallback, r.goOn, err)
	if err != nil {
		return r, child, err
	}
	return l.start(next)
}

// An inner fini has told by then what it has come to, unless it is stopped.
const settleBound = 10 * time.Second

// isolates reports whether this is one of an isolated pair.
func (l *loop) isolates() bool { return l.outside != nil || l.role.command.Isolation != nil }

// acceptSignal reports whether a signal is for this one of an isolated pair, and who has sent
// it, by a number by which copies are found. In a job both get what is sent to that.
func (l *loop) acceptSignal(got signals.Received) (sender int, mine bool) {
	inJob := l.role.rules.job != 0
	if l.role.outer {
		// What the tree has sent to the job has reached the inner one, which does not continue that.
		stop := l.role.rules.orphaned && got.Signal == syscall.SIGTSTP
		return got.Sender, got.Kernel || !inJob || stop || !l.ofTree(got.Sender)
	}
	if !got.Relayed && inJob && (got.Kernel || got.Sender == 0 && slices.Contains(jobStops, got.Signal)) {
		return 0, false // the outer one relays it, or is stopped by it
	}
	if !got.Kernel && (got.Relayed || got.Sender == 0) {
		return fromOutside, true
	}
	return got.Sender, true
}

// fromOutside stands for all senders outside: here they have no pid.
const fromOutside = -1

// innerTold takes in what an isolated inner fini has told: the i-th that is watched.
func (l *loop) innerTold(i int) {
	t, news := l.role.word.Told()
	if news && !t.Done {
		l.bond.Fds[i].Fd = int32(l.bound[i].fd) // there is more to come
		return
	}
	l.queue = append(l.queue, told{t})
}

// lastWatch waits, for a bounded time, until an isolated inner fini has gone that has told its last: it
// goes only after all in its namespace has.
type lastWatch struct {
	*watch
	result result
}

// lastWord is what the watch makes of that word.
func (w *watch) lastWord(t reaper.Told) ([]action, machine) {
	last := lastWatch{w, result{sig: syscall.SIGKILL}}
	if t.Done {
		last.result = resultOf(t.Status)
	}
	switch {
	case t.Stays:
		return []action{exit{result: last.result}}, nil
	case t.Done:
		return []action{wake{refusedBound}}, last
	}
	return []action{wake{killedBound}}, last
}

func (l lastWatch) step(now time.Duration, e event) (do []action, next machine) {
	if _, ok := e.(elapsed); ok {
		return []action{
			say{failure, "gave up on the PID namespace: a process in it does not end"},
			exit{result: l.result},
		}, nil
	}
	do, next = l.watch.step(now, e)
	if next == machine(l.watch) {
		next = l
	}
	return do, next
}

// stays reports whether an inner fini that has done its work is to go on: it is the init of those
// that a policy leaves alone, which end with it.
func (l *loop) stays() bool {
	return l.role.isolated != nil && leaves(l.was) && !l.collect().none
}

// leaves reports whether the policy with which a machine has come to its end leaves anything alone.
func leaves(m machine) bool {
	switch m := m.(type) {
	case *ladder:
		return m.orphans == leaveAll
	case *sweep:
		return m.policy == leaveAll || m.policy == stopPipes || m.allow
	}
	return false
}

// stay makes this fini the init of what is left, and nothing else.
func (l *loop) stay() {
	l.machine, l.queue, l.threshold = remaining{}, nil, failure-1
	l.timeout, l.wake, l.report = 0, 0, nil
	l.watch(nil, pdeath.Unwatched)
	reaper.CloseStderr()
	l.mustReap = true
}

// remaining is the machine of an isolated inner fini whose command and whose outer one are gone:
// it reaps until nobody is left, or somebody ends it.
type remaining struct{}

func (remaining) mayDelayReap() bool { return true }

func (r remaining) step(_ time.Duration, e event) ([]action, machine) {
	switch e := e.(type) {
	case ended:
		if e.none {
			return nil, nil
		}
	case received:
		if e.sig == syscall.SIGTERM {
			return nil, nil
		}
	}
	return nil, r
}

// surroundings are the reasons for which systems refuse an isolation.
type surroundings struct {
	root     bool   // the user is
	apparmor bool   // user namespaces are for programs with a profile
	disabled bool   // user namespaces are for root
	limit    string // a sysctl of which there may be none: "user.max_user_namespaces"
	filter   bool   // a seccomp filter is in force
	masked   bool   // something is mounted below /proc
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
	}
	s.filter = strings.Contains(text("/proc/self/status"), "\nSeccomp:\t2")
	s.masked = strings.Contains(text("/proc/self/mountinfo"), " /proc/")
	return s
}

// explain adds to what was refused the likely reason, and what helps.
func (s surroundings) explain(refused *reaper.RefusedError) error {
	user := refused.User
	mounts := refused.Mounts()
	why := ""
	switch {
	case errors.Is(refused, syscall.ENOSPC) && s.limit != "":
		why = "there may be no such namespace here; set the sysctl " + s.limit
	case errors.Is(refused, syscall.ENOSPC):
		why = "there are as many such namespaces as may be, or one in another too often; see the sysctls user.max_*_namespaces"
	case errors.Is(refused, syscall.EINVAL), errors.Is(refused, syscall.ENOSYS):
		why = "this kernel has no such namespaces"
	case user && s.apparmor:
		why = "AppArmor lets only programs with a profile have user namespaces; be root, give fini a profile with `userns,`, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
	case user && s.disabled:
		why = "user namespaces are for root; be root, or set the sysctl kernel.unprivileged_userns_clone to 1"
	case mounts && user && s.masked && errors.Is(refused, syscall.EPERM):
		why = "parts of /proc are masked, as in a container; be its PID 1, which promises the same, or unmask them (docker run --security-opt systempaths=unconfined, procMount: Unmasked in Kubernetes)"
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
	return fmt.Errorf("%w: %s", refused, why)
}
