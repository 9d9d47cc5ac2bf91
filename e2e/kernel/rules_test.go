package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	"github.com/seed-126c5d8a/fini/e2e/rig/shells"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

func init() {
	rig.Modes["@rule"] = helperRule
	rig.Modes["@kin"] = helperKin
	rig.Modes["@seizer"] = func(args []string) int {
		runtime.LockOSThread()
		pid, _ := strconv.Atoi(args[0])
		const seize = 0x4206 // PTRACE_SEIZE
		if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, seize, uintptr(pid), 0, 0, 0, 0); errno != 0 {
			fmt.Println(errno)
			return 1
		}
		fmt.Println("traces")
		for {
			time.Sleep(time.Hour)
		}
	}
}

// The explorer of package life runs its loop in a model of the kernel, life/world_test.go. Each rule of
// that model is stated here to the kernel itself, so that a wrong one is found. A rule runs in a
// process of its own, which is a subreaper in a session of its own.
var kernelRules = []struct {
	name string
	rule func() error
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
			argv := rig.Mode("rule", strconv.Itoa(i))
			cmd := exec.Command(argv[0], argv[1:]...)
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
	t.Run("the end of PID 1 is that of its namespace", func(t *testing.T) {
		rig.NeedPidNamespace(t)
		argv := rig.Mode("pid1", "/bin/sh", "-c", "trap '' TERM; (setsid sh -c 'echo ready; exec sleep 1000' &); read x")
		cmd := exec.Command(argv[0], argv[1:]...)
		rig.AsPID1(cmd)
		l := rig.StartCmd(t, cmd)
		l.Out.Want("ready")
		if err := l.Stdin.Close(); err != nil {
			t.Fatal(err)
		}
		if l.Status(); rig.HeldOpen(l.Witness) {
			t.Error("PID 1 is gone and a process of its namespace is alive")
		}
	})
}

func init() {
	if len(os.Args) > 1 && (os.Args[1] == "@rule" || os.Args[1] == "@kin") {
		runtime.LockOSThread() // in init: parent death signals and tracing are matters of threads
	}
}

func helperRule(args []string) int {
	n, _ := strconv.Atoi(args[0])
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		err = kernelRules[n].rule()
	}
	for _, pid := range started {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
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
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
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
	if _, err := fmt.Sscanf(k.say(), "pid %d", &pid); err != nil {
		panic(err)
	}
	return pid
}

func (k *kinline) say() string {
	line, err := k.out.ReadString('\n')
	if err != nil {
		panic(err)
	}
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

// end kills a process and waits until it has ended; reaps it if it is a child.
func end(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		panic(err)
	}
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
func hasState(pid int, want byte) error {
	if !rig.Poll(rig.Patience, func() bool {
		return rig.StatOf(pid).State() == want && (want != 'T' || shells.IsStopped(pid))
	}) {
		return fmt.Errorf("%d never gets into state %c", pid, want)
	}
	return nil
}

func want[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

func ruleFork() error {
	k := begin(1)
	k.do("setpgid")
	k.fork()
	last := k.last()
	return errors.Join(want("parent", rig.ParentOf(last), k.pids[0]), want("group", rig.GroupOf(last), k.pids[0]), want("session", rig.SessionOf(last), os.Getpid()))
}

func rulePids() error {
	k := begin(1)
	k.do("setpgid")
	k.fork()
	leader := k.pids[0]
	_ = unix.Kill(leader, unix.SIGKILL)
	if err := hasState(leader, 'Z'); err != nil {
		return err
	}
	for _, when := range []string{"a zombie has it", "a group has it"} {
		if err := cloneAs(leader); err == unix.EPERM || err == unix.ENOSYS || err == unix.EINVAL {
			return errors.New("missing: the right to choose a pid")
		} else if err != unix.EEXIST {
			return fmt.Errorf("%s: %v, want EEXIST", when, err)
		}
		_, _ = unix.Wait4(leader, nil, 0, nil)
	}
	end(k.last())
	return want("when nobody has it", cloneAs(leader), nil)
}

// cloneAs starts a process with a pid, which ends at once, and waits for it.
func cloneAs(pid int) error {
	set := int32(pid)
	args := struct{ flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize uint64 }{
		exitSignal: uint64(unix.SIGCHLD), setTid: uint64(uintptr(unsafe.Pointer(&set))), setTidSize: 1,
	}
	_, err := rawClone3(unsafe.Pointer(&args), unsafe.Sizeof(args))
	runtime.KeepAlive(&set)
	if err == nil {
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	return err
}

// rawClone3 starts a process that ends at once.
//
//go:norace
func rawClone3(args unsafe.Pointer, size uintptr) (int, error) {
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(args), size, 0)
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

func ruleSetsid() error {
	k := begin(1)
	k.do("setpgid")
	if got := k.do("setsid"); got != "error operation not permitted" {
		return fmt.Errorf("a leader of a group: %s", got)
	}
	k.fork()
	if err := want("a member", k.do("setsid"), "done"); err != nil {
		return err
	}
	last := k.last()
	return errors.Join(want("group", rig.GroupOf(last), last), want("session", rig.SessionOf(last), last))
}

func ruleAdoption() error {
	k := begin(2)
	k.do("subreaper")
	k.fork()
	k.fork()
	k.do("setsid")
	last, self := k.last(), os.Getpid()
	end(k.pids[2])
	if err := want("parent below a subreaper", rig.ParentOf(last), k.pids[1]); err != nil {
		return err
	}
	end(k.pids[1])
	return want("parent when that is gone", rig.ParentOf(last), self)
}

func ruleNoChild() error {
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		return fmt.Errorf("without a child: %v, want ECHILD", err)
	}
	k := begin(2)
	k.do("setsid")
	end(k.pids[0])
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid != 0 || err != nil {
		return fmt.Errorf("with an orphan in a session of its own: %d, %v", pid, err)
	}
	end(k.last())
	_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	return want[error]("when it is gone", err, unix.ECHILD)
}

func ruleZombie() error {
	k := begin(1)
	pid := k.last()
	k.do("setpgid")
	_ = unix.Kill(pid, unix.SIGKILL)
	if err := hasState(pid, 'Z'); err != nil {
		return err
	}
	err := errors.Join(unix.Kill(pid, unix.SIGTERM), unix.Kill(-pid, unix.SIGTERM))
	_, _ = unix.Wait4(pid, nil, 0, nil)
	return errors.Join(err, want[error]("when it is reaped", unix.Kill(pid, 0), unix.ESRCH))
}

func ruleAdoptedZombie() error {
	k := begin(2)
	_ = unix.Kill(k.last(), unix.SIGKILL)
	if err := hasState(k.last(), 'Z'); err != nil {
		return err
	}
	end(k.pids[0])
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, 0, nil)
	return errors.Join(err, want("who is waited for", pid, k.last()), want("ended by", status.Signal(), unix.SIGKILL))
}

func ruleStops() error {
	k := begin(1)
	const options = unix.WUNTRACED | unix.WCONTINUED
	for _, tt := range []struct {
		sig  unix.Signal
		told func(unix.WaitStatus) bool
	}{{unix.SIGSTOP, unix.WaitStatus.Stopped}, {unix.SIGCONT, unix.WaitStatus.Continued}} {
		_ = unix.Kill(k.last(), tt.sig)
		var status unix.WaitStatus
		if pid, err := unix.Wait4(-1, &status, options, nil); err != nil || pid != k.last() || !tt.told(status) {
			return fmt.Errorf("%v: told of %d with %x, %v", tt.sig, pid, status, err)
		}
		if pid, err := unix.Wait4(-1, &status, options|unix.WNOHANG, nil); pid != 0 || err != nil {
			return fmt.Errorf("%v is told of again: %d, %v", tt.sig, pid, err)
		}
	}
	return nil
}

func ruleStopped() error {
	a, b := begin(1), begin(1)
	for _, k := range []*kinline{a, b} {
		_ = unix.Kill(k.last(), unix.SIGSTOP)
		if err := hasState(k.last(), 'T'); err != nil {
			return err
		}
		_ = unix.Kill(k.last(), unix.SIGTERM)
	}
	if err := want("state after SIGTERM", statePending(a.last(), unix.SIGTERM), 'T'); err != nil {
		return err
	}
	_ = unix.Kill(a.last(), unix.SIGCONT)
	_ = unix.Kill(b.last(), unix.SIGKILL)
	for k, sig := range map[*kinline]unix.Signal{a: unix.SIGTERM, b: unix.SIGKILL} {
		var status unix.WaitStatus
		_, _ = unix.Wait4(k.last(), &status, 0, nil)
		if err := want("ended by", status.Signal(), sig); err != nil {
			return err
		}
	}
	return nil
}

// statePending is the state of a process for which a signal waits.
func statePending(pid int, sig unix.Signal) byte {
	rig.Poll(rig.Patience, func() bool { return rig.MaskHas(rig.ProcStatus(pid, "ShdPnd"), sig) })
	return rig.StatOf(pid).State()
}

func ruleParentDeath() error {
	k := begin(3)
	k.do("catch 10")
	k.do("deathsig 10")
	for _, parent := range []int{k.pids[1], k.pids[0]} { // the second one is not its parent
		end(parent)
		if parent == k.pids[1] {
			if err := want("its parent's end", k.do("caught"), "caught 10"); err != nil {
				return err
			}
		}
	}
	// Adopted, it gets it again when that one ends.
	n := begin(2)
	n.do("subreaper")
	n.fork()
	n.fork()
	n.do("catch 12")
	n.do("deathsig 12")
	for i, parent := range []int{n.pids[2], n.pids[1]} {
		end(parent)
		if err := want(fmt.Sprint("end of parent ", i), n.do("caught"), "caught 12"); err != nil {
			return err
		}
	}
	n.fork()
	return want("a child of it", n.do("getdeathsig"), "deathsig 0")
}

func ruleCredentials() error {
	if os.Getuid() != 0 {
		return errors.New("missing: root, to become another user")
	}
	k := begin(1)
	k.do("deathsig 10")
	if got := k.do("setuid"); got != "done" {
		return errors.New(got)
	}
	return want("afterwards", k.do("getdeathsig"), "deathsig 0")
}

func rulePermission() error {
	if os.Getuid() != 0 {
		return errors.New("missing: root, to become another user")
	}
	k, other := begin(1), begin(2)
	other.do("setsid")
	k.do("setuid")
	return errors.Join(
		want("TERM", k.do(fmt.Sprintf("kill %d 15", other.pids[0])), "error operation not permitted"),
		want("CONT", k.do(fmt.Sprintf("kill %d 18", other.pids[0])), "done"),
		want("CONT in another session", k.do(fmt.Sprintf("kill %d 18", other.last())), "error operation not permitted"),
		want("who is gone", k.do("kill 4194304 15"), "error no such process"))
}

func ruleGroup() error {
	if os.Getuid() != 0 {
		return errors.New("missing: root, to become another user")
	}
	// The one to signal is another user's, in the group of one that may be signalled.
	k := begin(2)
	k.do("setpgid")
	group := k.last()
	k.fork()
	k.do("setuid")
	k.fork()
	if err := want("a group with one member that may", k.do(fmt.Sprintf("kill %d 0", -group)), "done"); err != nil {
		return err
	}
	n := begin(1)
	n.do("setpgid")
	return want("a group with none", k.do(fmt.Sprintf("kill %d 0", -n.last())), "error operation not permitted")
}

func ruleOrphanedGroup() error {
	k := begin(2)
	k.do("setsid") // the rule's process links no group of this session
	k.fork()
	k.do("setpgid")
	k.do("catch 1")
	last := k.last()
	_ = unix.Kill(last, unix.SIGSTOP)
	if err := hasState(last, 'T'); err != nil {
		return err
	}
	end(k.pids[1])
	return want("it is continued and", k.do("caught"), "caught 1")
}

func ruleStopKey() error {
	k := begin(2)
	k.do("setsid")
	_ = unix.Kill(k.last(), unix.SIGTSTP)
	if err := want("one alone in its session", k.do("catch 1"), "done"); err != nil {
		return err
	}
	k.fork()
	k.do("setpgid")
	_ = unix.Kill(k.last(), unix.SIGTSTP)
	return hasState(k.last(), 'T')
}

func ruleTracer() error {
	pid := begin(1).last()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	seizer, err := seize(pid)
	if err != nil {
		return err
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	if !readable(fd, -1) {
		return errors.New("the pidfd never becomes readable")
	}
	if err := hasState(pid, 'Z'); err != nil {
		return err
	}
	if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got != 0 || err != nil {
		return fmt.Errorf("while it is traced: %d, %v; want to be told of nobody", got, err)
	}
	end(seizer)
	got, err := unix.Wait4(pid, nil, 0, nil)
	return errors.Join(err, want("when the tracer is gone", got, pid))
}

// seize starts a child that traces a process and does not wait for it.
func seize(pid int) (int, error) {
	said, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	argv := rig.Mode("seizer", strconv.Itoa(pid))
	child, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, w.Fd(), 2}})
	if err != nil {
		return 0, err
	}
	_ = w.Close()
	started = append(started, child)
	line, _ := bufio.NewReader(said).ReadString('\n')
	if line != "traces\n" {
		return 0, errors.New("missing: the right to trace: " + strings.TrimSpace(line))
	}
	return child, nil
}

func ruleAutoreap() error {
	const autoreap = 1 << 34 // CLONE_AUTOREAP, Linux 7.1
	pidfd := int32(-1)
	args := struct{ flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls uint64 }{
		flags: autoreap | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(&pidfd))),
	}
	pid, err := rawClone3(unsafe.Pointer(&args), unsafe.Sizeof(args))
	if err == unix.EINVAL || err == unix.ENOSYS {
		return errors.New("kernel: no CLONE_AUTOREAP")
	}
	if err != nil {
		return err
	}
	if !readable(int(pidfd), -1) {
		return errors.New("the pidfd never becomes readable")
	}
	_, err = unix.Wait4(pid, nil, 0, nil)
	return want[error]("wait4", err, unix.ECHILD)
}

func ruleTicks() error {
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
		start := time.Duration(rig.StatOf(k.last()).Number(22)) * tick
		if start > after || start+tick <= before {
			return fmt.Errorf("started between %v and %v, and /proc says %v", before, after, start)
		}
		end(k.last())
	}
	return nil
}

func rulePending() error {
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR1 - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	for range 2 {
		if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1); err != nil {
			return err
		}
	}
	none := unix.Timespec{}
	take := func() unix.Errno {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&none)), 8, 0, 0)
		return errno
	}
	return errors.Join(want("the first", take(), 0), want("the second", take(), unix.EAGAIN))
}

func rulePidfd() error {
	k := begin(1)
	fd, err := unix.PidfdOpen(k.last(), 0)
	if err != nil {
		return err
	}
	if readable(fd, 0) {
		return errors.New("it is readable while its process lives")
	}
	_ = unix.Kill(k.last(), unix.SIGKILL)
	if !readable(fd, -1) {
		return errors.New("it never becomes readable")
	}
	err = want[error]("a zombie", unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0), nil)
	_, _ = unix.Wait4(k.last(), nil, 0, nil)
	return errors.Join(err, want[error]("one that was reaped", unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0), unix.ESRCH))
}
