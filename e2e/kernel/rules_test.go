package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/programs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

func init() {
	programs.Programs["@rule"] = helperRule
	programs.Programs["@kin"] = helperKin
}

// The explorer of package life runs its loop in a model of the kernel, internal/life/world_test.go. Each rule of
// that model is stated here to the kernel itself, so that a wrong one is found. A rule runs in a
// process of its own, which is a subreaper in a session of its own, and panics with what is wrong.
var kernelRules = []struct {
	name string
	rule func()
}{
	{"a new process is in its parent's group and session", ruleFork},
	{"a pid is free when nobody has it as a pid, group or session", rulePids},
	{"who leads a group can't make a session", ruleSetsid},
	{"the nearest subreaper above adopts, whatever session or group", ruleAdoption},
	{"a subreaper without children has no descendant", ruleNoChild},
	{"a zombie stays until its parent waits, and may be signalled", ruleZombie},
	{"a zombie that is adopted is for its new parent", ruleAdoptedZombie},
	{"a stop and a continuation are told of once", ruleStops},
	{"SIGKILL ends who is stopped, SIGTERM waits for SIGCONT", ruleStopped},
	{"a parent death signal comes with each parent's end, and is not inherited", ruleParentDeath},
	{"a change of credentials clears the parent death signal", ruleCredentials},
	{"who has another uid may be sent SIGCONT in its session, and else nothing", rulePermission},
	{"a group gets a signal if any member may", ruleGroup},
	{"a group that loses its last link while stopped gets SIGHUP and SIGCONT", ruleOrphanedGroup},
	{"SIGTSTP stops a group of which a member's parent is in another one of the session, and no other", ruleStopKey},
	{"a tracer hides a zombie from its parent, and not from a pidfd", ruleTracer},
	{"one with CLONE_AUTOREAP is never a zombie, and nobody is told", ruleAutoreap},
	{"start times are rounded down to 10 ms", ruleTicks},
	{"two pending signals of a kind are one", rulePending},
	{"a pidfd is of its process for ever", rulePidfd},
}

func TestKernelRules(t *testing.T) {
	t.Parallel()
	for i, rule := range kernelRules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			cmd := rig.CommandOf(rig.Mode("rule", strconv.Itoa(i)))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, err := cmd.CombinedOutput()
			switch text := strings.TrimSpace(string(out)); {
			case strings.HasPrefix(text, "kernel: "):
				need.Kernel(t, false, "what the rule needs ("+text+")")
			case strings.HasPrefix(text, "missing: "):
				need.That(t, false, strings.TrimPrefix(text, "missing: "))
			case err != nil:
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func init() {
	if len(os.Args) > 1 && (os.Args[1] == "@rule" || os.Args[1] == "@kin") {
		runtime.LockOSThread() // in init: parent death signals and tracing are matters of threads
	}
}

func helperRule(args []string) (status int) {
	n, _ := strconv.Atoi(args[0])
	defer func() {
		for _, pid := range started {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if wrong := recover(); wrong != nil {
			fmt.Println(wrong)
			status = 1
		}
	}()
	check(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	kernelRules[n].rule()
	return 0
}

func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// helperKin is a process of a rule's tree. It says its pid, and then does what it reads, a word a
// line: fork starts one like itself.
func helperKin([]string) int {
	caught := make(chan os.Signal, 10)
	fmt.Println("pid", os.Getpid())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var err error
		switch word, rest, _ := strings.Cut(in.Text(), " "); word {
		case "fork":
			// Its end is not waited for: it has this one's streams and is told in turn.
			_, err = syscall.ForkExec("/proc/self/exe", []string{os.Args[0], "@kin"}, &syscall.ProcAttr{
				Env: os.Environ(), Files: []uintptr{0, 1, 2}})
			if err == nil {
				for { // its child reads on
					time.Sleep(time.Hour)
				}
			}
		case "setsid":
			_, err = unix.Setsid()
		case "setpgid":
			err = unix.Setpgid(0, 0)
		case "subreaper":
			err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		case "deathsig":
			n, _ := strconv.Atoi(rest)
			err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(n), 0, 0, 0)
		case "getdeathsig":
			var sig int32
			err = unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0)
			fmt.Println("deathsig", sig)
		case "setuid":
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
				err = errno
			} else {
				err = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // so that /proc/self/exe stays its own
			}
		case "kill":
			var pid, sig int
			_, _ = fmt.Sscan(rest, &pid, &sig)
			err = unix.Kill(pid, unix.Signal(sig))
		case "catch":
			n, _ := strconv.Atoi(rest)
			signal.Notify(caught, syscall.Signal(n))
		case "caught":
			fmt.Println("caught", int((<-caught).(syscall.Signal)))
			continue
		case "exit":
			return 0
		}
		fmt.Println(map[bool]string{true: "done", false: fmt.Sprint("error ", err)}[err == nil])
	}
	return 0
}

var started []int // to be killed at the end of a rule

// A kinline is a chain of processes, each the child of the one before. The last one does what it
// is told.
type kinline struct {
	pids []int
	in   *os.File
	out  *bufio.Reader
}

// begin starts a chain of n.
func begin(n int) *kinline {
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	pid, err3 := syscall.ForkExec("/proc/self/exe", []string{os.Args[0], "@kin"}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{inR.Fd(), outW.Fd(), 2}})
	check(err1, err2, err3)
	_, _ = inR.Close(), outW.Close()
	k := &kinline{in: inW, out: bufio.NewReader(outR)}
	started = append(started, pid)
	k.pids = append(k.pids, k.pid())
	for range n - 1 {
		k.fork()
	}
	return k
}

func (k *kinline) pid() (pid int) {
	_, err := fmt.Sscanf(k.say(), "pid %d", &pid)
	check(err)
	return pid
}

func (k *kinline) say() string {
	line, err := k.out.ReadString('\n')
	check(err)
	return strings.TrimSpace(line)
}

func (k *kinline) fork() {
	_, _ = fmt.Fprintln(k.in, "fork")
	k.pids = append(k.pids, k.pid())
	started = append(started, k.pids[len(k.pids)-1])
}

// do makes the last one do something, and returns what it says.
func (k *kinline) do(what string) string {
	_, _ = fmt.Fprintln(k.in, what)
	return k.say()
}

func (k *kinline) last() int { return k.pids[len(k.pids)-1] }

// another is begin where a rule is about other users.
func another(n int) *kinline {
	if os.Getuid() != 0 {
		panic("missing: root, to become another user")
	}
	return begin(n)
}

func pidfdOf(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	check(err)
	return fd
}

// end kills a process and waits until it has ended; reaps it if it is a child.
func end(pid int) {
	fd := pidfdOf(pid)
	_ = unix.Kill(pid, unix.SIGKILL)
	readable(fd, -1)
	_ = unix.Close(fd)
	_, _ = unix.Wait4(pid, nil, 0, nil)
}

func readable(fd, milliseconds int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, milliseconds)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// hasState waits until a process is in a state; if that is stopped, with all its threads.
func hasState(pid int, want byte) {
	if !rig.Await(rig.Enough, func() bool {
		return procfs.StatOf(pid).State() == want && (want != 'T' || procfs.IsStopped(pid))
	}) {
		panic(fmt.Sprintf("%d never gets into state %c", pid, want))
	}
}

func want[T comparable](what string, got, want T) {
	if got != want {
		panic(fmt.Sprintf("%s: %v, want %v", what, got, want))
	}
}

// wantChild asserts of whom wait4(2) tells, and how.
func wantChild(what string, of, options, pid int, wrong error) {
	got, err := unix.Wait4(of, nil, options, nil)
	want(what, got, pid)
	want(what, err, wrong)
}

func ruleFork() {
	k := begin(1)
	k.do("setpgid")
	k.fork()
	want("parent", procfs.ParentOf(k.last()), k.pids[0])
	want("group", procfs.GroupOf(k.last()), k.pids[0])
	want("session", procfs.SessionOf(k.last()), os.Getpid())
}

func rulePids() {
	k := begin(1)
	k.do("setpgid")
	k.fork()
	leader := k.pids[0]
	_ = unix.Kill(leader, unix.SIGKILL)
	hasState(leader, 'Z')
	for _, when := range []string{"a zombie has it", "a group has it"} {
		err := cloneAs(leader)
		if err == unix.EPERM || err == unix.ENOSYS || err == unix.EINVAL {
			panic("missing: the right to choose a pid")
		}
		want[error](when, err, unix.EEXIST)
		_, _ = unix.Wait4(leader, nil, 0, nil)
	}
	end(k.last())
	want("when nobody has it", cloneAs(leader), nil)
}

// cloneArgs is struct clone_args.
type cloneArgs struct{ flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize uint64 }

// cloneAs starts a process with a pid, which ends at once, and waits for it.
func cloneAs(pid int) error {
	set := int32(pid)
	args := cloneArgs{exitSignal: uint64(unix.SIGCHLD), setTid: uint64(uintptr(unsafe.Pointer(&set))), setTidSize: 1}
	_, err := rawClone3(&args)
	runtime.KeepAlive(&set)
	if err == nil {
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	return err
}

// rawClone3 starts a process that ends at once.
//
//go:norace
func rawClone3(args *cloneArgs) (int, error) {
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(pid), nil
}

func ruleSetsid() {
	k := begin(1)
	k.do("setpgid")
	want("a leader of a group", k.do("setsid"), "error operation not permitted")
	k.fork()
	want("a member", k.do("setsid"), "done")
	want("group", procfs.GroupOf(k.last()), k.last())
	want("session", procfs.SessionOf(k.last()), k.last())
}

func ruleAdoption() {
	k := begin(2)
	k.do("subreaper")
	k.fork()
	k.fork()
	k.do("setsid")
	end(k.pids[2])
	want("parent below a subreaper", procfs.ParentOf(k.last()), k.pids[1])
	end(k.pids[1])
	want("parent when that is gone", procfs.ParentOf(k.last()), os.Getpid())
}

func ruleNoChild() {
	wantChild("without a child", -1, unix.WNOHANG, -1, unix.ECHILD)
	k := begin(2)
	k.do("setsid")
	end(k.pids[0])
	wantChild("with an orphan in a session of its own", -1, unix.WNOHANG, 0, nil)
	end(k.last())
	wantChild("when it is gone", -1, unix.WNOHANG, -1, unix.ECHILD)
}

func ruleZombie() {
	k := begin(1)
	pid := k.last()
	k.do("setpgid")
	_ = unix.Kill(pid, unix.SIGKILL)
	hasState(pid, 'Z')
	check(unix.Kill(pid, unix.SIGTERM), unix.Kill(-pid, unix.SIGTERM))
	_, _ = unix.Wait4(pid, nil, 0, nil)
	want[error]("when it is reaped", unix.Kill(pid, 0), unix.ESRCH)
}

func ruleAdoptedZombie() {
	k := begin(2)
	_ = unix.Kill(k.last(), unix.SIGKILL)
	hasState(k.last(), 'Z')
	end(k.pids[0])
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, 0, nil)
	check(err)
	want("who is waited for", pid, k.last())
	want("ended by", status.Signal(), unix.SIGKILL)
}

func ruleStops() {
	k := begin(1)
	const options = unix.WUNTRACED | unix.WCONTINUED
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		_ = unix.Kill(k.last(), sig)
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, options, nil)
		check(err)
		want("who is told of", pid, k.last())
		want("is stopped", status.Stopped(), sig == unix.SIGSTOP)
		want("is continued", status.Continued(), sig == unix.SIGCONT)
		wantChild("once more", -1, options|unix.WNOHANG, 0, nil)
	}
}

func ruleStopped() {
	a, b := begin(1), begin(1)
	for _, k := range []*kinline{a, b} {
		_ = unix.Kill(k.last(), unix.SIGSTOP)
		hasState(k.last(), 'T')
		_ = unix.Kill(k.last(), unix.SIGTERM)
	}
	want("state after SIGTERM", statePending(a.last(), unix.SIGTERM), 'T')
	_ = unix.Kill(a.last(), unix.SIGCONT)
	_ = unix.Kill(b.last(), unix.SIGKILL)
	for k, sig := range map[*kinline]unix.Signal{a: unix.SIGTERM, b: unix.SIGKILL} {
		var status unix.WaitStatus
		_, _ = unix.Wait4(k.last(), &status, 0, nil)
		want("ended by", status.Signal(), sig)
	}
}

// statePending is the state of a process for which a signal waits.
func statePending(pid int, sig unix.Signal) byte {
	rig.Await(rig.Enough, func() bool { return procfs.MaskHas(procfs.Status(pid, "ShdPnd"), sig) })
	return procfs.StatOf(pid).State()
}

func ruleParentDeath() {
	k := begin(3)
	k.do("catch 10")
	k.do("deathsig 10")
	end(k.pids[1])
	want("its parent's end", k.do("caught"), "caught 10")
	end(k.pids[0]) // which is not its parent
	// Adopted, it gets it again when that one ends.
	n := begin(2)
	n.do("subreaper")
	n.fork()
	n.fork()
	n.do("catch 12")
	n.do("deathsig 12")
	for i, parent := range []int{n.pids[2], n.pids[1]} {
		end(parent)
		want(fmt.Sprint("end of parent ", i), n.do("caught"), "caught 12")
	}
	n.fork()
	want("a child of it", n.do("getdeathsig"), "deathsig 0")
}

func ruleCredentials() {
	k := another(1)
	k.do("deathsig 10")
	want("setuid", k.do("setuid"), "done")
	want("afterwards", k.do("getdeathsig"), "deathsig 0")
}

func rulePermission() {
	k, other := another(1), begin(2)
	other.do("setsid")
	k.do("setuid")
	const refused = "error operation not permitted"
	want("TERM", k.do(fmt.Sprintf("kill %d 15", other.pids[0])), refused)
	want("CONT", k.do(fmt.Sprintf("kill %d 18", other.pids[0])), "done")
	want("CONT in another session", k.do(fmt.Sprintf("kill %d 18", other.last())), refused)
	want("who is gone", k.do("kill 4194304 15"), "error no such process")
}

func ruleGroup() {
	// The one to signal is another user's, in the group of one that may be signalled.
	k := another(2)
	k.do("setpgid")
	group := k.last()
	k.fork()
	k.do("setuid")
	k.fork()
	want("a group with one member that may", k.do(fmt.Sprintf("kill %d 0", -group)), "done")
	n := begin(1)
	n.do("setpgid")
	want("a group with none", k.do(fmt.Sprintf("kill %d 0", -n.last())), "error operation not permitted")
}

func ruleOrphanedGroup() {
	k := begin(2)
	k.do("setsid") // the rule's process links no group of this session
	k.fork()
	k.do("setpgid")
	k.do("catch 1")
	_ = unix.Kill(k.last(), unix.SIGSTOP)
	hasState(k.last(), 'T')
	end(k.pids[1])
	want("it is continued and", k.do("caught"), "caught 1")
}

func ruleStopKey() {
	k := begin(2)
	k.do("setsid")
	_ = unix.Kill(k.last(), unix.SIGTSTP)
	want("one alone in its session", k.do("catch 1"), "done")
	k.fork()
	k.do("setpgid")
	_ = unix.Kill(k.last(), unix.SIGTSTP)
	hasState(k.last(), 'T')
}

func ruleTracer() {
	pid := begin(1).last()
	fd, seizer := pidfdOf(pid), seize(pid)
	_ = unix.Kill(pid, unix.SIGKILL)
	readable(fd, -1)
	hasState(pid, 'Z')
	wantChild("while it is traced", pid, unix.WNOHANG, 0, nil)
	end(seizer)
	wantChild("when the tracer is gone", pid, 0, pid, nil)
}

// seize starts a child that traces a process and does not wait for it.
func seize(pid int) int {
	said, w, err1 := os.Pipe()
	argv := rig.Mode("tracer", strconv.Itoa(pid))
	child, err2 := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, w.Fd(), 2}})
	check(err1, err2)
	_ = w.Close()
	started = append(started, child)
	if line, _ := bufio.NewReader(said).ReadString('\n'); line != "tracing\n" {
		panic("missing: the right to trace: " + line)
	}
	return child
}

func ruleAutoreap() {
	const autoreap = 1 << 34 // CLONE_AUTOREAP, Linux 7.1
	pidfd := int32(-1)
	args := cloneArgs{flags: autoreap | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(&pidfd)))}
	pid, err := rawClone3(&args)
	if err == unix.EINVAL || err == unix.ENOSYS {
		panic("kernel: no CLONE_AUTOREAP")
	}
	check(err)
	readable(int(pidfd), -1)
	wantChild("wait4", pid, 0, -1, unix.ECHILD)
}

func ruleTicks() {
	const tick = 10 * time.Millisecond
	now := func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		return time.Duration(ts.Nano())
	}
	for range 20 {
		before := now()
		k := begin(1)
		after := now()
		start := time.Duration(procfs.StatOf(k.last()).Number(22)) * tick
		if start > after || start+tick <= before {
			panic(fmt.Sprintf("started between %v and %v, and /proc says %v", before, after, start))
		}
		end(k.last())
	}
}

func rulePending() {
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR1 - 1)
	check(unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil))
	for range 2 {
		check(unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1))
	}
	none := unix.Timespec{}
	for _, wanted := range []unix.Errno{0, unix.EAGAIN} {
		_, _, got := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&none)), 8, 0, 0)
		want("sigtimedwait", got, wanted)
	}
}

func rulePidfd() {
	pid := begin(1).last()
	fd := pidfdOf(pid)
	want("readable while its process lives", readable(fd, 0), false)
	_ = unix.Kill(pid, unix.SIGKILL)
	readable(fd, -1)
	check(unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)) // to a zombie
	_, _ = unix.Wait4(pid, nil, 0, nil)
	want[error]("one that was reaped", unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0), unix.ESRCH)
}
