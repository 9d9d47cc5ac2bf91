package rig

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Modes are programs that tests start, added by the init functions of other files.
var Modes = map[string]func(args []string) int{}

// helper runs one of the programs that tests start. It never returns.
func helper(name string, args []string) {
	programs := map[string]func(args []string) int{
		"@pid1":     helperPID1,
		"@signals":  helperSignals,
		"@orphans":  helperOrphans,
		"@forker":   helperForker,
		"@clock":    helperClock,
		"@clean":    helperClean,
		"@launcher": helperLauncher,
		"@threads":  helperThreads,
		"@refuse":   helperRefuse,
	}
	program, ok := programs[name]
	if !ok {
		program, ok = Modes[name]
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "no such helper:", name)
		os.Exit(99)
	}
	os.Exit(program(args))
}

// forever is the end of a helper that stays. Without cgo, as where there is no C compiler, the runtime
// takes an empty select for a deadlock.
func forever() int {
	for {
		time.Sleep(time.Hour)
	}
}

// helperPID1 gives a new PID namespace its /proc and becomes args.
func helperPID1(args []string) int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@pid1:", err)
	return 98
}

// helperSignals prints "ready PID" and then each signal it gets. It ends with status
// 7 on the signal named first, and otherwise not at all.
func helperSignals(args []string) int {
	c := make(chan os.Signal, 1<<14) // more than are sent before a busy machine lets this one read
	ignored := ProcStatus(os.Getpid(), "SigIgn")
	for n := syscall.Signal(1); n <= 64; n++ {
		if n != syscall.SIGURG && !MaskHas(ignored, n) {
			signal.Notify(c, n)
		}
	}
	fmt.Println("ready", os.Getpid())
	for sig := range c {
		n := int(sig.(syscall.Signal))
		if n == int(syscall.SIGCHLD) {
			continue
		}
		fmt.Println("signal", n)
		if len(args) > 0 && strconv.Itoa(n) == args[0] {
			return 7
		}
	}
	return 0
}

// helperOrphans makes as many orphans as it is told, each of them by a child that ends
// first, says "made" and waits for a line on stdin.
func helperOrphans(args []string) int {
	n, _ := strconv.Atoi(args[0])
	for range n {
		// The shell ends at once and leaves the background process to the subreaper.
		if err := exec.Command("/bin/sh", "-c", "true &").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("made")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if more, err := strconv.Atoi(in.Text()); err == nil {
			return helperOrphans([]string{strconv.Itoa(more)})
		}
	}
	return 0
}

// helperForker says "ready", and from the moment it gets SIGTERM starts a process
// every few milliseconds for a second, each in a session of its own, and then ends.
func helperForker([]string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("ready")
	<-c
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
	}
	return 0
}

// helperClock prints the monotonic clock and ends.
func helperClock([]string) int {
	fmt.Println("now", Monotonic())
	return 0
}

func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// helperClean closes the descriptors it is told and waits for the end of stdin.
func helperClean(args []string) int {
	for _, fd := range strings.Split(args[0], ",") {
		n, _ := strconv.Atoi(fd)
		_ = unix.Close(n)
	}
	var b [1]byte
	for {
		if n, err := syscall.Read(0, b[:]); n <= 0 && err != syscall.EINTR {
			return 0
		}
	}
}

// helperLauncher leads a session, starts a command with its own streams and the witness, lets go of the
// witness, says "fini PID", and waits for the command's end.
func helperLauncher(args []string) int {
	_, _ = unix.Setsid() // see launch; it may lead one already
	cmd := exec.Command(args[0], args[1:]...)
	witness := os.NewFile(3, "witness")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{witness}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	_ = witness.Close()
	fmt.Println("fini", cmd.Process.Pid)
	_ = cmd.Wait()
	return ShellStatus(cmd.ProcessState)
}

// helperThreads starts a command that copies its stdin from a thread that ends, as often
// as it is told, and says "all alive" if each of them outlived that thread.
func helperThreads(args []string) int {
	rounds, _ := strconv.Atoi(args[0])
	for round := range rounds {
		cmd := exec.Command(args[1], args[2:]...)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		thread := make(chan int)
		go func() {
			// A locked goroutine that ends takes its thread with it.
			runtime.LockOSThread()
			if err := cmd.Start(); err != nil {
				fmt.Println(err)
			}
			thread <- unix.Gettid()
		}()
		tid := <-thread
		for unix.Tgkill(os.Getpid(), tid, 0) == nil {
			time.Sleep(time.Millisecond) // Gosched can keep the thread from its end for ever
		}
		reader := bufio.NewReader(out)
		for _, line := range []string{"one\n", "two\n"} {
			_, _ = in.Write([]byte(line))
			if got, _ := reader.ReadString('\n'); got != line {
				fmt.Println("round", round, "got", got)
				return 1
			}
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			fmt.Println("round", round, err)
			return 1
		}
		fmt.Println("round", round) // all of them together may take longer than a line may
	}
	fmt.Println("all alive")
	return 0
}

// A refusal is a system call for which a filter gives an error instead of the kernel's answer:
// all of its calls, or those with one argument that has a value or any bit of it.
type refusal struct {
	number uintptr
	arg    int // which argument, from 0
	is     uint32
	has    uint32
}

// refusals by the names that @refuse takes.
var refusals = map[string]refusal{
	"prctl":             {number: unix.SYS_PRCTL},
	"subreaper":         {number: unix.SYS_PRCTL, is: unix.PR_SET_CHILD_SUBREAPER},
	"pdeathsig":         {number: unix.SYS_PRCTL, is: unix.PR_SET_PDEATHSIG},
	"pidfd_open":        {number: unix.SYS_PIDFD_OPEN},
	"pidfd_send_signal": {number: unix.SYS_PIDFD_SEND_SIGNAL},
	"CLONE_PIDFD":       {number: unix.SYS_CLONE, has: unix.CLONE_PIDFD},
	"clone3":            {number: unix.SYS_CLONE3},
	"kill":              {number: unix.SYS_KILL},
	"wait4":             {number: unix.SYS_WAIT4, arg: 2, has: unix.WALL}, // shells do without it
	"waitid":            {number: unix.SYS_WAITID},
	"WNOWAIT":           {number: unix.SYS_WAITID, arg: 3, has: unix.WNOWAIT},
	"close_range":       {number: unix.SYS_CLOSE_RANGE},
	"mount":             {number: unix.SYS_MOUNT},
	"timerfd_create":    {number: unix.SYS_TIMERFD_CREATE},
	"eventfd2":          {number: unix.SYS_EVENTFD2},
	"epoll_create1":     {number: unix.SYS_EPOLL_CREATE1},
	"epoll_ctl":         {number: unix.SYS_EPOLL_CTL},
	"epoll_pwait":       {number: unix.SYS_EPOLL_PWAIT},
	"pwritev2":          {number: unix.SYS_PWRITEV2},
	"setpgid":           {number: unix.SYS_SETPGID},
	"RLIMIT_CORE":       {number: unix.SYS_PRLIMIT64, arg: 1, is: unix.RLIMIT_CORE},
	"recvmsg":           {number: unix.SYS_RECVMSG},
	"sendto":            {number: unix.SYS_SENDTO},
	"ppoll":             {number: unix.SYS_PPOLL},
	"TIOCSPGRP":         {number: unix.SYS_IOCTL, arg: 1, is: unix.TIOCSPGRP},
}

// code is the part of a filter that refuses, and otherwise goes on behind its end.
func (r refusal) code(errno syscall.Errno) []unix.SockFilter {
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	refuse := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	test := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: r.is}
	switch {
	case r.has != 0:
		test.Code, test.K = unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, r.has
	case r.is == 0:
		return []unix.SockFilter{
			load(0), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(r.number)}, refuse,
		}
	}
	return []unix.SockFilter{
		load(0), // struct seccomp_data begins with the call's number; its arguments are 64 bits each
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: uint32(r.number)},
		load(16 + 8*r.arg), test, refuse,
	}
}

// helperRefuse becomes a command for which the kernel refuses system calls. The first argument
// names them, with commas between, and behind a colon the error, which is ENOSYS if there is
// none. The filter is inherited by whatever the command starts.
func helperRefuse(args []string) int {
	names, kind, _ := strings.Cut(args[0], ":")
	errno := unix.ENOSYS
	if kind == "EPERM" {
		errno = unix.EPERM
	}
	var filter []unix.SockFilter
	for name := range strings.SplitSeq(names, ",") {
		r, ok := refusals[name]
		if !ok {
			fmt.Println("@refuse: no such call:", name)
			return 97
		}
		filter = append(filter, r.code(errno)...)
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Println("@refuse:", err)
	return 97
}
