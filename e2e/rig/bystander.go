package rig

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	Modes["@bystander"] = helperBystander
	Modes["@adopter"] = helperAdopter
	Modes["@setsid-launcher"] = helperSetsidLauncher
	Modes["@hup-launcher"] = helperHupLauncher
	Modes["@tracer"] = helperTracer
	Modes["@autoreap"] = helperAutoreap
}

// AloneOrPair are the ways to live outside of a PID namespace. In make test it is the quick one alone.
func AloneOrPair(_ *testing.T, quick Place) []Place {
	if Quick() {
		return []Place{quick}
	}
	return []Place{Pair, Alone}
}

// MustRecord asserts what is left of a recorder's lines.
func MustRecord(t testing.TB, who string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", who, got, want)
	}
}

func MustKill(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("cannot send %v to %d: %v", sig, pid, err)
	}
}

// MustStay asserts that a process is alive, now.
func MustStay(t testing.TB, who string, pid int) {
	t.Helper()
	if StatOf(pid).Gone() {
		t.Errorf("%s has ended", who)
	}
}

// helperBystander has as many descendants as it is told, one below the other. Each says
// "bystander PID", every signal that it gets, and "end" at the end of its stdin.
func helperBystander(args []string) int {
	c := make(chan os.Signal, 1000)
	signal.Notify(c)
	if below, _ := strconv.Atoi(args[0]); below > 0 {
		argv := Mode("bystander", strconv.Itoa(below-1))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	say := func(a ...any) { _, _ = os.Stdout.WriteString(fmt.Sprintln(a...)) }
	ended := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(ended)
	}()
	say("bystander", os.Getpid())
	for {
		select {
		case sig := <-c:
			if sig != syscall.SIGURG && sig != syscall.SIGCHLD { // of its own runtime and child
				say("signal", int(sig.(syscall.Signal)))
			}
		case <-ended:
			say("end")
			return 0
		}
	}
}

// Executed is command, where prefix is what executes fini.
func (p Place) Executed(prefix []string, args ...string) *exec.Cmd {
	cmd := p.Command(args...)
	if !p.PID1 {
		argv := append(slices.Clone(prefix), cmd.Args...)
		return exec.Command(argv[0], argv[1:]...)
	}
	cmd.Args = slices.Concat(cmd.Args[:2], prefix, cmd.Args[2:]) // behind "self @pid1"
	return cmd
}

// helperSetsidLauncher forks, moves to a session of its own, and lets the child execute fini
// only then.
func helperSetsidLauncher(args []string) int {
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read moved <&4; exec "$@" 4<&-`, "sh"}, args...)...)
	r, w, err := os.Pipe()
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness"), r}
		err = cmd.Start()
	}
	if err == nil {
		_ = unix.Close(3)
		_, err = unix.Setsid()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = w.WriteString("moved\n")
	_ = cmd.Wait()
	return ShellStatus(cmd.ProcessState)
}

// MustBeAsked asserts that a command whose inner fini was killed is asked to end: by the heir, and if the kernel sends the
// parent death signal, by that too. The kernel sends it once for each thread of the inner fini that outlives the one
// before. Its sender is the inner fini, or 0 if the inner fini has been reaped by then. Then the command is told to end by
// signal 64, which would come last.
func (l *Life) MustBeAsked(command, inner, outer int, kernel bool) {
	l.T.Helper()
	const said = "fini: stopping the command: the inner fini was killed"
	l.Err.Want(said)
	for asked := false; !asked; {
		asked = (l.Out.Want("signal 15 from ") != fmt.Sprint(outer)) == kernel
	}
	MustKill(l.T, command, 64)
	byKernel, byHeir := 0, 0
	for line := range strings.Lines(l.Out.Whole()) {
		switch line {
		case fmt.Sprintf("ready %d\n", command):
		case fmt.Sprintf("signal 15 from %d\n", inner), "signal 15 from 0\n":
			byKernel++
		case fmt.Sprintf("signal 15 from %d\n", outer):
			byHeir++
		default:
			l.T.Errorf("the command says %q", line)
		}
	}
	if byHeir > 1 || kernel != (byKernel > 0) {
		l.T.Errorf("the command is asked to end %d times by the kernel, and %d times by the heir", byKernel, byHeir)
	}
	WantOnce(l.T, l.Err.Whole(), said)
}

// helperAdopter inherits the orphans of a command that it runs, says "launcher PID STATUS" of the
// command's end and "adopted PID STATUS" of theirs, and ends when it has no child.
func helperAdopter(args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	path, _ := exec.LookPath(args[0])
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, 3}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = unix.Close(3)
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0
		}
		who, n := "adopted", status.ExitStatus()
		if status.Signaled() {
			n = 128 + int(status.Signal())
		}
		if got == pid {
			who = "launcher"
		}
		fmt.Println(who, got, n)
	}
}

// helperTracer traces its parent process, or the one that it is told, says "tracing" and never
// waits; if it is told more, it continues that process whenever a signal stops it for the tracer,
// and only its end is not waited for. Nothing but SIGKILL ends it.
func helperTracer(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	runtime.LockOSThread() // it is a thread that traces
	pid := os.Getppid()
	if len(args) > 0 {
		pid, _ = strconv.Atoi(args[0])
	}
	if err := unix.PtraceSeize(pid); err != nil {
		fmt.Println("cannot trace:", err)
		return 1
	}
	fmt.Println("tracing")
	for len(args) > 1 {
		var info struct { // siginfo_t of a child, see sigaction(2)
			_                 [3]int32
			_                 [0]uintptr
			pid, uid, stopped int32
			_                 [100]byte
		}
		if err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WSTOPPED|unix.WALL, nil); err != nil {
			break
		}
		_ = unix.PtraceCont(pid, int(info.stopped&0xff))
	}
	return forever()
}

// helperHupLauncher leads a session and runs a command that is started with SIGHUP ignored, or
// with its default, while it itself ignores it, or does not. It goes on as @launcher.
func helperHupLauncher(args []string) int {
	signal.Ignore(syscall.SIGHUP)
	if args[0] == "heeds" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return helperLauncher(args[1:])
}

// helperAutoreap forks a child that the kernel reaps by itself, which ends with its stdin, says
// "forked", and ends.
func helperAutoreap([]string) int {
	args := [8]uint64{0: 1 << 34} // struct clone_args; CLONE_AUTOREAP, see clone3(2)
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		fmt.Println("kernel:", errno)
		return 1
	}
	if pid == 0 {
		var b [1]byte
		for {
			n, _, errno := syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
			if errno == 0 && n == 0 {
				_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
	}
	fmt.Println("forked")
	return 5
}
